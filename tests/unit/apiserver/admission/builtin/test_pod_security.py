"""PodSecurity: labels of namespaces are enforced on pods, warned about on templates, and explained when they change."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import NAMESPACES, a_container, a_pod, denied, warnings

from shoal.testing.servers import LocalServer, local_server

P = "pod-security.kubernetes.io/"
PODS = f"{NAMESPACES}/safe/pods"
BAD = {"hostNetwork": True}
HOST = "host namespaces (hostNetwork=true)"
GOOD_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def make(server: LocalServer, **labels: str) -> None:
    named = {P + name.replace("_", "-"): value for name, value in labels.items()}
    await server.post(NAMESPACES, {"metadata": {"name": "safe", "labels": named}})


async def test_an_enforced_standard_refuses_pods_and_says_why() -> None:
    async with local_server() as server:
        await make(server, enforce="baseline")
        answer = await server.call("POST", PODS, a_pod(**BAD))
        assert denied(answer) == f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {HOST}'
        assert warnings(answer) == []
        await server.post(PODS, a_pod())
        # a pod of a known shape is looked at again when the labels change
        await server.patch(f"{NAMESPACES}/safe", {"metadata": {"labels": {f"{P}enforce": "restricted"}}})
        assert 'violates PodSecurity "restricted:latest"' in denied(await server.call("POST", PODS, a_pod("q")))
        await server.patch(f"{NAMESPACES}/safe", {"metadata": {"labels": {f"{P}enforce": None}}})
        await server.post(PODS, a_pod("q"))


async def test_pods_that_meet_the_restricted_standard_get_their_token_all_the_same() -> None:
    async with local_server() as server:
        await make(server, enforce="restricted")
        made = await server.post(PODS, a_pod(containers=[a_container(securityContext=GOOD_CONTEXT)]))
        assert made["spec"]["volumes"][0]["name"].startswith("kube-api-access-")


async def test_a_standard_that_is_only_warned_about_lets_pods_pass() -> None:
    async with local_server() as server:
        await make(server, warn="restricted", warn_version="v1.21")
        answer = await server.call("POST", PODS, a_pod())
        assert answer.status == 201
        assert warnings(answer) == [
            'would violate PodSecurity "restricted:v1.21": allowPrivilegeEscalation != false (container "c" must set '
            'securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container "c" must set '
            'securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set '
            'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        ]


def deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [a_container()], **spec}}
    return {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


def cron_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [a_container()], "restartPolicy": "Never", **spec}}
    return {
        "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}},
    }


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        ("/apis/apps/v1/namespaces/safe/deployments", deployment(**BAD)),
        ("/apis/batch/v1/namespaces/safe/cronjobs", cron_job(**BAD)),
        ("/api/v1/namespaces/safe/podtemplates", {"metadata": {"name": "t"}, "template": deployment(**BAD)["spec"]["template"]}),
    ],
)  # fmt: skip
async def test_templates_are_warned_about_and_never_refused(path: str, obj: dict[str, Any]) -> None:
    async with local_server() as server:
        await make(server, enforce="baseline")
        answer = await server.call("POST", path, obj)
        assert answer.status == 201
        assert f'would violate PodSecurity "baseline:latest": {HOST}' in warnings(answer)


async def test_labels_that_cannot_be_read_are_refused_and_old_ones_do_not_block_other_changes() -> None:
    async with local_server() as server:
        labels = {f"{P}enforce": "strict"}
        answer = await server.call("POST", NAMESPACES, {"metadata": {"name": "safe", "labels": labels}})
        assert (answer.status, answer.json["message"]) == (
            422,
            f'Namespace "safe" is invalid: metadata.labels[{P}enforce]: Invalid value: "strict": must be one of '
            "privileged, baseline, restricted",
        )
        await make(server)
        merge = {"content-type": "application/merge-patch+json"}
        body = {"metadata": {"labels": {f"{P}warn-version": "1.2"}}}
        assert (await server.call("PATCH", f"{NAMESPACES}/safe", body, merge)).status == 422
        await server.patch(f"{NAMESPACES}/safe", {"metadata": {"labels": {"other": "label"}}})


async def test_raising_the_standard_warns_about_pods_that_violate_it() -> None:
    async with local_server() as server:
        await make(server)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        for name in ("web-2", "web-1", "web-3"):
            pod = a_pod(name, **BAD)
            pod["metadata"]["ownerReferences"] = [owner]
            await server.post(PODS, pod)
        await server.post(PODS, a_pod("root", containers=[a_container(securityContext={"privileged": True})]))
        await server.post(PODS, a_pod("good"))
        merge = {"content-type": "application/merge-patch+json"}
        body = {"metadata": {"labels": {f"{P}enforce": "baseline"}}}
        answer = await server.call("PATCH", f"{NAMESPACES}/safe", body, merge)
        assert answer.status == 200
        assert warnings(answer) == [
            'existing pods in namespace "safe" violate the new PodSecurity enforce level "baseline:latest"',
            "root: privileged",
            "web-1 (and 2 other pods): host namespaces",
        ]
        relaxed = {"metadata": {"labels": {f"{P}enforce": "privileged"}}}
        assert warnings(await server.call("PATCH", f"{NAMESPACES}/safe", relaxed, merge)) == []


async def test_pods_from_before_the_standard_can_be_updated_but_not_get_other_images() -> None:
    async with local_server() as server:
        await make(server)
        await server.post(PODS, a_pod(**BAD))
        await server.patch(f"{NAMESPACES}/safe", {"metadata": {"labels": {f"{P}enforce": "baseline"}}})
        await server.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
        made = await server.get(f"{PODS}/p")
        made["spec"]["containers"][0]["image"] = "example.com/image:2"
        assert HOST in denied(await server.call("PUT", f"{PODS}/p", made))
        made = await server.get(f"{PODS}/p")
        made["spec"]["ephemeralContainers"] = [a_container("debug")]
        assert HOST in denied(await server.call("PUT", f"{PODS}/p/ephemeralcontainers", made))
