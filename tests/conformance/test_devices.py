"""Dynamic resource allocation: every verb and kind of patch on each of its kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_api import Api, Resource, conformance, labelled, unique
from conformance_steps import check_discovery

from shoal.kube.objects import Obj

GROUP = "resource.k8s.io/v1"
LABEL: Obj = {"metadata": {"labels": {"test.dra.example.com": "test"}}}
DEVICES: Obj = {"requests": [{"name": "req-0", "exactly": {"deviceClassName": "dra.example.com"}}]}


def check_resource(
    api: Api, plural: str, namespace: str, spec: Obj, *, change: Obj, patches: dict[str, Any] | None = None
) -> Resource:
    """Create, get, update, delete; then each patch on a fresh object; then the collection. Watched all the way."""
    check_discovery(api, GROUP, plural)
    resource, run, name = api.of(GROUP, plural, namespace), unique("run"), unique("e2e")
    made = labelled({"metadata": {"name": name}, "spec": spec}, run=run)
    group = {"apiVersion": GROUP, "kind": api_kind(api, plural)}
    with resource.watch(f"run={run}", after=resource.list()) as watch:

        def fresh(alter: Callable[[], Obj]) -> None:
            resource.create(made)
            watch.expect("ADDED", name)
            assert contains(alter(), change), "the change is not in the answer"
            assert contains(watch.expect("MODIFIED", name), change)
            assert contains(resource.get(name), change)
            resource.delete(name)
            watch.expect("DELETED", name)
            assert resource.is_gone(name)

        fresh(lambda: resource.update(name, lambda obj: merge(obj, change)))
        for kind, patch in (patches or {"strategic": change}).items():
            if kind == "apply":
                body = merged({**group, "metadata": {"name": name}}, patch)
                fresh(lambda body=body: resource.apply(name, body))  # type: ignore[misc]
            else:
                fresh(lambda kind=kind, patch=patch: resource.patch(name, patch, kind))  # type: ignore[misc]
        resource.create(made)
        watch.expect("ADDED", name)
        assert resource.names(f"run={run}") == api.of(GROUP, plural).names(f"run={run}") == [name]
        resource.delete_collection(f"run={run}")
        watch.expect("DELETED", name)
    assert resource.names(f"run={run}") == []
    return resource


def api_kind(api: Api, plural: str) -> str:
    listed = {found["name"]: found["kind"] for found in api.get(f"/apis/{GROUP}")["resources"]}
    return str(listed[plural])


def merge(obj: Obj, change: Obj) -> None:
    for name, value in change.items():
        if isinstance(value, dict):
            merge(obj.setdefault(name, {}), value)
        else:
            obj[name] = value


def merged(obj: Obj, change: Obj) -> Obj:
    merge(obj, change)
    return obj


def contains(obj: Any, part: Any) -> bool:
    """Whether all of ``part`` is in ``obj``; lists by position."""
    if isinstance(part, dict):
        return isinstance(obj, dict) and all(name in obj and contains(obj[name], part[name]) for name in part)
    if isinstance(part, list):
        return isinstance(obj, list) and len(obj) == len(part) and all(map(contains, obj, part))
    return bool(obj == part)


@conformance("[sig-node] [DRA] CRUD Tests resource.k8s.io/v1 DeviceClass [Conformance]")
def test_device_class(api: Api) -> None:
    spec = {"selectors": [{"cel": {"expression": "false"}}]}
    check_resource(api, "deviceclasses", "", spec, change={"spec": {"selectors": [{"cel": {"expression": "1 == 0"}}]}})


@conformance("[sig-node] [DRA] CRUD Tests resource.k8s.io/v1 DeviceTaintRule [Conformance]")
def test_device_taint_rule(api: Api) -> None:
    taint = {"key": "dra.example.com/taint", "value": "tainted", "effect": "NoSchedule"}
    rules = check_resource(
        api, "devicetaintrules", "", {"taint": taint}, change={"spec": {"taint": {**taint, "effect": "NoExecute"}}}
    )
    name = "status"
    rules.create({"metadata": {"name": name}, "spec": {"taint": taint}})
    condition = {
        "type": "Seen", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    changed = rules.patch(name, {"status": {"conditions": [condition]}}, "merge", "status")
    assert changed["status"]["conditions"][0]["type"] == "Seen"
    assert changed["metadata"]["generation"] == 1
    rules.delete(name)


@conformance("[sig-node] [DRA] CRUD Tests resource.k8s.io/v1 ResourceClaim [Conformance]")
def test_resource_claim(api: Api, namespace: str) -> None:
    patches = {
        "apply": LABEL,
        "strategic": LABEL,
        "merge": LABEL,
        "json": [{"op": "add", "path": "/metadata/labels/test.dra.example.com", "value": "test"}],
    }
    claims = check_resource(api, "resourceclaims", namespace, {"devices": DEVICES}, change=LABEL, patches=patches)

    made = {"metadata": {"name": "status"}, "spec": {"devices": DEVICES}}
    allocated: Obj = {"status": {"allocation": {}}}
    ways: list[Callable[[], Obj]] = [
        lambda: claims.update("status", lambda obj: merge(obj, allocated), "status"),
        lambda: claims.patch("status", allocated, "strategic", "status"),
        lambda: claims.patch("status", allocated, "merge", "status"),
        lambda: claims.apply(
            "status",
            {"apiVersion": GROUP, "kind": "ResourceClaim", "metadata": {"name": "status"}, **allocated},
            sub="status",
        ),
        lambda: claims.patch(
            "status", [{"op": "add", "path": "/status", "value": allocated["status"]}], "json", "status"
        ),
    ]
    for way in ways:
        claims.create(made)
        assert way()["status"]["allocation"] == {}
        assert claims.get("status", "status")["status"]["allocation"] == {}
        claims.delete("status")


@conformance("[sig-node] [DRA] CRUD Tests resource.k8s.io/v1 ResourceClaimTemplate [Conformance]")
def test_resource_claim_template(api: Api, namespace: str) -> None:
    check_resource(api, "resourceclaimtemplates", namespace, {"spec": {"devices": DEVICES}}, change=LABEL)


@conformance("[sig-node] [DRA] CRUD Tests resource.k8s.io/v1 ResourceSlice [Conformance]")
def test_resource_slice(api: Api) -> None:
    pool = {"name": "cluster", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.example.com", "pool": pool, "nodeName": "no-such-node"}
    check_resource(api, "resourceslices", "", spec, change={"spec": {"devices": [{"name": "device-0"}]}})
