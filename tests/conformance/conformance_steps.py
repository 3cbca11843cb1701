"""Steps that many upstream tests share: discovery documents, and one walk through all verbs of a resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_api import Api, Resource, labelled, unique

from shoal.kube.objects import Obj


def check_discovery(api: Api, group_version: str, *resources: str) -> None:
    """The group is in /apis, the version in its group, and the resources in their version."""
    group, _, version = group_version.rpartition("/")
    if group:
        groups = {found["name"]: found for found in api.get("/apis")["groups"]}
        assert version in [found["version"] for found in groups[group]["versions"]]
        found = api.get(f"/apis/{group}")
        assert found["name"] == group
        assert version in [known["version"] for known in found["versions"]]
    document = api.get(f"/apis/{group_version}" if group else f"/api/{version}")
    assert document["groupVersion"] == group_version
    names = {found["name"] for found in document["resources"]}
    assert names >= set(resources), f"missing in discovery: {set(resources) - names}"


def check_operations(
    resource: Resource, make: Callable[[str], Obj], *, change: Callable[[Obj], None], everywhere: Resource | None = None
) -> Obj:
    """Create three, get, list, watch, patch, update, delete, delete the collection: each visible in the next.

    ``make`` gives an object for a name, ``change`` alters one for an update; ``everywhere`` is the same resource over
    all namespaces. Returns an object as it was stored, with the marks of the patch and the update.
    """
    run = unique("run")
    chosen = f"special-label={run}"
    names = [unique("one"), unique("two"), unique("three")]
    created = [resource.create(labelled(make(name), **{"special-label": run})) for name in names]
    first = created[0]["metadata"]
    assert first["uid"] and first["creationTimestamp"] and first["resourceVersion"]

    assert resource.get(names[0])["metadata"]["uid"] == first["uid"]
    listed = resource.list(chosen)
    assert sorted(item["metadata"]["name"] for item in listed["items"]) == sorted(names)
    if everywhere is not None:
        assert sorted(everywhere.names(chosen)) == sorted(names)

    with resource.watch(chosen, after=listed) as watch:
        patched = resource.patch(names[0], {"metadata": {"annotations": {"patched": "true"}}})
        assert patched["metadata"]["annotations"]["patched"] == "true"
        before = int(patched["metadata"]["resourceVersion"])

        def update(obj: Obj) -> None:
            obj["metadata"]["annotations"]["updated"] = "true"
            change(obj)

        updated = resource.update(names[0], update)
        assert updated["metadata"]["annotations"]["updated"] == "true"
        assert int(updated["metadata"]["resourceVersion"]) > before

        seen = watch.until("MODIFIED", lambda obj: "patched" in obj["metadata"].get("annotations", {}))
        assert seen["metadata"]["name"] == names[0]
        watch.until("MODIFIED", lambda obj: "updated" in obj["metadata"].get("annotations", {}))

        resource.delete(names[0])
        watch.until("DELETED", lambda obj: bool(obj["metadata"]["name"] == names[0]))
        assert resource.is_gone(names[0])
        assert sorted(resource.names(chosen)) == sorted(names[1:])
        resource.delete_collection(chosen)
        watch.until("DELETED")
        watch.until("DELETED")
    assert resource.names(chosen) == []
    return updated


def check_status(resource: Resource, name: str, patch: Obj, key: str, replaced: Any) -> Obj:
    """Patch a part of /status, read it, replace ``status[key]``; the object sees both, and so does a watch."""
    with resource.watch(fields=f"metadata.name={name}", after=resource.list()) as watch:
        annotated = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": patch}
        patched = resource.patch(name, annotated, sub="status")
        assert patched["status"][key] == patch[key]
        assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
        assert resource.get(name, "status")["status"][key] == patch[key]

        def update(obj: Obj) -> None:
            obj.setdefault("status", {})[key] = replaced

        updated = resource.update(name, update, "status")
        assert updated["status"][key] == replaced
        assert resource.get(name)["status"][key] == replaced
        watch.until("MODIFIED", lambda obj: bool(obj.get("status", {}).get(key) == patch[key]))
        watch.until("MODIFIED", lambda obj: bool(obj.get("status", {}).get(key) == replaced))
    return updated
