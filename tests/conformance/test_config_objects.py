"""ConfigMaps, Secrets and PodTemplates."""

from __future__ import annotations

import base64

from conformance_api import Api, conformance, labelled, refused, unique
from conformance_objects import OTHER_IMAGE, pod_spec

from shoal.kube.objects import Obj


@conformance("[sig-node] ConfigMap should fail to create ConfigMap with empty key [Conformance]")
def test_configmap_with_an_empty_key(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    refused("Invalid", maps.create, {"metadata": {"name": "empty-key"}, "data": {"": "value-1"}})


@conformance("[sig-node] ConfigMap should update ConfigMap successfully [Conformance] [NodeConformance]")
def test_configmap_update(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    maps.create({"metadata": {"name": "map"}, "data": {"data": "value"}})
    updated = maps.replace({"metadata": {"name": "map"}, "data": {"data": "value-2"}})
    assert updated["data"] == {"data": "value-2"}
    assert maps.get("map")["data"] == {"data": "value-2"}


@conformance("[sig-node] ConfigMap should run through a ConfigMap lifecycle [Conformance]")
def test_configmap_lifecycle(api: Api, namespace: str) -> None:
    maps, run = api.of("v1", "configmaps", namespace), unique("run")
    with maps.watch(f"static={run}", after=maps.list()) as watch:
        maps.create({"metadata": {"name": "map", "labels": {"static": run}}, "data": {"valueName": "value"}})
        watch.expect("ADDED", "map")
        maps.patch("map", {"metadata": {"labels": {"state": "patched"}}, "data": {"valueName": "value1"}}, "strategic")
        watch.expect("MODIFIED", "map")
        read = maps.get("map")
        assert (read["data"]["valueName"], read["metadata"]["labels"]["state"]) == ("value1", "patched")
        assert api.of("v1", "configmaps").names(f"static={run}") == ["map"]
        maps.delete_collection(f"static={run}")
        watch.expect("DELETED", "map")
    assert maps.names(f"static={run}") == []


@conformance("[sig-storage] ConfigMap should be immutable if `immutable` field is set [Conformance]")
def test_configmap_immutable(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    check_immutable(api, namespace, "configmaps", {"data-1": "value-1"}, {"data-1": "value-2"})
    maps.delete("frozen")
    assert maps.is_gone("frozen")


@conformance("[sig-storage] Secrets should be immutable if `immutable` field is set [Conformance]")
def test_secret_immutable(api: Api, namespace: str) -> None:
    secrets = api.of("v1", "secrets", namespace)
    check_immutable(api, namespace, "secrets", {"data-1": encoded("value-1")}, {"data-1": encoded("value-2")})
    secrets.delete("frozen")
    assert secrets.is_gone("frozen")


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def check_immutable(api: Api, namespace: str, plural: str, data: Obj, changed: Obj) -> None:
    """Changeable until it is frozen; then neither its data nor the mark itself changes, but its labels may."""
    resource = api.of("v1", plural, namespace)
    resource.create({"metadata": {"name": "frozen"}, "data": data})
    resource.update("frozen", lambda obj: obj.update(data=changed))
    resource.update("frozen", lambda obj: obj.update(immutable=True))
    refused("Invalid", resource.update, "frozen", lambda obj: obj.pop("immutable"))
    refused("Invalid", resource.update, "frozen", lambda obj: obj.update(data=data))
    labels = resource.update("frozen", lambda obj: obj["metadata"].update(labels={"label1": "value1"}))
    assert labels["metadata"]["labels"] == {"label1": "value1"}
    assert labels["data"] == changed


@conformance("[sig-node] Secrets should fail to create secret due to empty secret key [Conformance]")
def test_secret_with_an_empty_key(api: Api, namespace: str) -> None:
    secrets = api.of("v1", "secrets", namespace)
    refused("Invalid", secrets.create, {"metadata": {"name": "empty-key"}, "data": {"": encoded("value-1")}})


@conformance("[sig-node] Secrets should patch a secret [Conformance]")
def test_secret_patch(api: Api, namespace: str) -> None:
    secrets, run = api.of("v1", "secrets", namespace), unique("run")
    metadata = {"name": "secret", "labels": {"testsecret-constant": run}}
    created = secrets.create({"metadata": metadata, "type": "Opaque", "data": {"key": encoded("value")}})
    everywhere = api.of("v1", "secrets")
    assert everywhere.names(f"testsecret-constant={run}") == ["secret"]
    patch = {"metadata": {"labels": {"testsecret": "true"}}, "data": {"key": encoded("value1")}}
    patched = secrets.patch("secret", patch, "strategic")
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert everywhere.items(f"testsecret=true,testsecret-constant={run}")[0]["data"] == {"key": encoded("value1")}
    secrets.delete_collection("testsecret=true")
    assert everywhere.items(f"testsecret-constant={run}") == []


def pod_template(name: str, run: str) -> Obj:
    return labelled({"metadata": {"name": name}, "template": {"spec": pod_spec()}}, podtemplate=run)


@conformance("[sig-node] PodTemplates should run the lifecycle of PodTemplates [Conformance]")
def test_pod_template_lifecycle(api: Api, namespace: str) -> None:
    templates, run = api.of("v1", "podtemplates", namespace), unique("run")
    templates.create(pod_template("nginx", run))
    assert templates.get("nginx")["metadata"]["name"] == "nginx"
    patched = templates.patch("nginx", {"metadata": {"labels": {"state": "patched"}}}, "strategic")
    assert patched["metadata"]["labels"] == {"podtemplate": run, "state": "patched"}
    assert api.of("v1", "podtemplates").names(f"podtemplate={run}") == ["nginx"]
    templates.delete("nginx")
    assert templates.is_gone("nginx")


@conformance("[sig-node] PodTemplates should delete a collection of pod templates [Conformance]")
def test_pod_template_collection(api: Api, namespace: str) -> None:
    templates, run = api.of("v1", "podtemplates", namespace), unique("run")
    for number in range(3):
        templates.create(pod_template(f"template-{number}", run))
    assert len(templates.items(f"podtemplate={run}")) == 3
    templates.delete_collection(f"podtemplate={run}")
    assert templates.items(f"podtemplate={run}") == []


@conformance("[sig-node] PodTemplates should replace a pod template [Conformance]")
def test_pod_template_replace(api: Api, namespace: str) -> None:
    templates, run = api.of("v1", "podtemplates", namespace), unique("run")
    created = templates.create(pod_template("nginx", run))

    def change(obj: Obj) -> None:
        obj["metadata"]["annotations"] = {"updated": "true"}
        obj["template"]["spec"]["containers"][0]["image"] = OTHER_IMAGE

    updated = templates.update("nginx", change)
    assert updated["metadata"]["annotations"] == {"updated": "true"}
    assert updated["template"]["spec"]["containers"][0]["image"] == OTHER_IMAGE
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
