"""ServiceAccount: what a pod gets from its account, and which pods are refused."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import ACCOUNTS, NAMESPACES, PODS, a_container, a_pod, denied

from shoal.testing.servers import local_server

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
MIRROR = "kubernetes.io/config.mirror"


def mounts(container: dict[str, Any]) -> list[str]:
    return [mount["mountPath"] for mount in container.get("volumeMounts") or ()]


async def test_a_pod_runs_as_the_default_account_and_every_container_has_its_token() -> None:
    async with local_server() as server:
        init = a_container("i", volumeMounts=[{"name": "v", "mountPath": "/v"}])
        made = await server.post(PODS, a_pod(initContainers=[init], volumes=[{"name": "v", "emptyDir": {}}]))
        spec = made["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        *_, volume = spec["volumes"]
        assert volume["name"].startswith("kube-api-access-")
        assert len(volume["name"]) == len("kube-api-access-") + 5
        assert volume["projected"] == {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                        ]
                    }
                },
            ],
        }
        wanted = {"name": volume["name"], "readOnly": True, "mountPath": PATH}
        assert spec["containers"][0]["volumeMounts"] == [wanted]
        assert spec["initContainers"][0]["volumeMounts"][-1] == wanted


async def test_a_container_with_something_at_the_path_is_left_alone() -> None:
    async with local_server() as server:
        own = a_container(volumeMounts=[{"name": "v", "mountPath": PATH}])
        pod = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
        pod["spec"]["containers"] = [own]
        made = await server.post(PODS, pod)
        assert [volume["name"] for volume in made["spec"]["volumes"]] == ["v"]
        pod["metadata"]["name"] = "q"
        pod["spec"]["containers"] = [own, a_container("d")]
        made = await server.post(PODS, pod)
        assert [volume["name"][:4] for volume in made["spec"]["volumes"]] == ["v", "kube"]
        assert mounts(made["spec"]["containers"][1]) == [PATH]


async def test_a_volume_for_the_token_that_is_there_already_is_used() -> None:
    async with local_server() as server:
        made = await server.post(PODS, a_pod(volumes=[{"name": "kube-api-access-mine", "emptyDir": {}}]))
        assert [volume["name"] for volume in made["spec"]["volumes"]] == ["kube-api-access-mine"]
        assert made["spec"]["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-mine"


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [(None, None, True), (False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
async def test_the_pod_decides_about_its_token_before_the_account_does(
    of_account: bool | None, of_pod: bool | None, mounted: bool
) -> None:
    async with local_server() as server:
        account = {"metadata": {"name": "robot"}}
        if of_account is not None:
            account["automountServiceAccountToken"] = of_account  # type: ignore[assignment]
        await server.post(ACCOUNTS, account)
        pod = a_pod(serviceAccountName="robot")
        if of_pod is not None:
            pod["spec"]["automountServiceAccountToken"] = of_pod
        made = await server.post(PODS, pod)
        assert mounts(made["spec"]["containers"][0]) == ([PATH] if mounted else [])


async def test_pull_secrets_come_from_the_account_unless_the_pod_names_some() -> None:
    async with local_server() as server:
        await server.post(ACCOUNTS, {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]})
        made = await server.post(PODS, a_pod(serviceAccountName="robot"))
        assert made["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        made = await server.post(PODS, a_pod("q", serviceAccountName="robot", imagePullSecrets=[{"name": "own"}]))
        assert made["spec"]["imagePullSecrets"] == [{"name": "own"}]


async def test_pods_of_one_spec_follow_a_change_of_their_account() -> None:
    async with local_server() as server:
        await server.post(ACCOUNTS, {"metadata": {"name": "robot"}})
        for index in range(3):
            made = await server.post(PODS, a_pod(f"before-{index}", serviceAccountName="robot"))
            assert mounts(made["spec"]["containers"][0]) == [PATH]
        await server.patch(f"{ACCOUNTS}/robot", {"automountServiceAccountToken": False})
        for index in range(3):
            made = await server.post(PODS, a_pod(f"after-{index}", serviceAccountName="robot"))
            assert mounts(made["spec"]["containers"][0]) == []
        await server.delete(f"{ACCOUNTS}/robot")
        answer = await server.call("POST", PODS, a_pod("last", serviceAccountName="robot"))
        assert "service account default/robot" in denied(answer)


async def test_an_account_that_does_not_exist_is_named_and_a_missing_namespace_too() -> None:
    async with local_server() as server:
        answer = await server.call("POST", PODS, a_pod(serviceAccountName="nobody"))
        assert denied(answer) == (
            'pods "p" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
        )
        answer = await server.call("POST", f"{NAMESPACES}/nowhere/pods", a_pod())
        assert (answer.status, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


async def test_a_new_namespace_takes_pods_at_once() -> None:
    async with local_server() as server:
        await server.post(NAMESPACES, {"metadata": {"name": "new"}})
        made = await server.post(f"{NAMESPACES}/new/pods", a_pod())
        assert mounts(made["spec"]["containers"][0]) == [PATH]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "s", "secret": {"secretName": "x"}}]}, "a mirror pod may not reference secrets"),
        ({"imagePullSecrets": [{"name": "x"}]}, "a mirror pod may not reference secrets"),
        (
            {"containers": [a_container(envFrom=[{"secretRef": {"name": "x"}}])]},
            "a mirror pod may not reference secrets",
        ),
        (
            {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_a_mirror_pod_may_not_need_what_only_the_api_has(spec: dict[str, Any], fault: str) -> None:
    async with local_server() as server:
        answer = await server.call("POST", PODS, a_pod(annotations={MIRROR: "x"}, nodeName="n", **spec))
        assert denied(answer) == f'pods "p" is forbidden: {fault}'


async def test_a_mirror_pod_is_stored_as_it_is_whatever_came_before_it() -> None:
    async with local_server() as server:
        await server.post(PODS, a_pod("ordinary", nodeName="n"))
        for name in ("first", "second"):
            made = await server.post(PODS, a_pod(name, annotations={MIRROR: "x"}, nodeName="n"))
            assert "serviceAccountName" not in made["spec"]
            assert "volumes" not in made["spec"]
        made = await server.post(PODS, a_pod("another", nodeName="n"))
        assert made["spec"]["serviceAccountName"] == "default"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"volumes": [{"name": "s", "secret": {"secretName": "x"}}]},
            'volume with secret.secretName="x" is not allowed because service account strict does not reference that '
            "secret",
        ),
        (
            {
                "containers": [
                    a_container(env=[{"name": "E", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}])
                ]
            },
            'container c with envVar E referencing secret.secretName="x" is not allowed because service account '
            "strict does not reference that secret",
        ),
        (
            {"initContainers": [a_container("i", envFrom=[{"secretRef": {"name": "x"}}])]},
            'init container i with envFrom referencing secret.secretName="x" is not allowed because service account '
            "strict does not reference that secret",
        ),
        (
            {"imagePullSecrets": [{"name": "x"}]},
            'imagePullSecrets[0].name="x" is not allowed because service account strict does not reference that '
            "imagePullSecret",
        ),
    ],
)
async def test_an_account_can_limit_the_secrets_of_its_pods(spec: dict[str, Any], fault: str) -> None:
    async with local_server() as server:
        metadata = {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
        await server.post(ACCOUNTS, {"metadata": metadata, "secrets": [{"name": "y"}]})
        answer = await server.call("POST", PODS, a_pod(serviceAccountName="strict", **spec))
        assert denied(answer) == f'pods "p" is forbidden: {fault}'
        fine = a_pod(serviceAccountName="strict", volumes=[{"name": "s", "secret": {"secretName": "y"}}])
        await server.post(PODS, fine)


async def test_debug_containers_are_held_to_the_same_secrets() -> None:
    async with local_server() as server:
        metadata = {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
        await server.post(ACCOUNTS, {"metadata": metadata})
        made = await server.post(PODS, a_pod(serviceAccountName="strict"))
        made["spec"]["ephemeralContainers"] = [a_container("debug", envFrom=[{"secretRef": {"name": "x"}}])]
        answer = await server.call("PUT", f"{PODS}/p/ephemeralcontainers", made)
        assert denied(answer) == (
            'pods "p" is forbidden: ephemeral container debug with envFrom referencing secret.secretName="x" is not '
            "allowed because service account strict does not reference that secret"
        )
