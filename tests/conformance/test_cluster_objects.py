"""Flow control, priority and runtime classes, leases and nodes."""

from __future__ import annotations

from conformance_api import Api, conformance, refused, unique
from conformance_objects import condition
from conformance_steps import check_discovery, check_operations, check_status

from shoal.kube.objects import Obj

FLOW = "flowcontrol.apiserver.k8s.io/v1"


def flow_schema(name: str) -> Obj:
    subject = {"kind": "User", "user": {"name": "example-e2e-non-existent-user"}}
    rule = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    spec = {
        "matchingPrecedence": 10000,
        "priorityLevelConfiguration": {"name": "global-default"},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject], "nonResourceRules": [rule]}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def priority_level(name: str) -> Obj:
    limited = {"nominalConcurrencyShares": 2, "limitResponse": {"type": "Reject"}}
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}


@conformance("[sig-api-machinery] API priority and fairness should support FlowSchema API operations [Conformance]")
def test_flow_schema_operations(api: Api) -> None:
    check_discovery(api, FLOW, "flowschemas", "flowschemas/status")
    schemas, name = api.of(FLOW, "flowschemas"), unique("status")
    check_operations(schemas, flow_schema, change=lambda obj: obj["spec"].update(matchingPrecedence=9999))
    schemas.create(flow_schema(name))
    first, second = dangling("first"), dangling("second")
    check_status(schemas, name, {"conditions": [first]}, "conditions", [second])
    schemas.delete(name)


def dangling(message: str) -> Obj:
    return condition("Dangling", status="False", message=message, lastTransitionTime="2024-05-01T10:00:00Z")


@conformance(
    "[sig-api-machinery] API priority and fairness should support PriorityLevelConfiguration API operations"
    " [Conformance]"
)
def test_priority_level_operations(api: Api) -> None:
    check_discovery(api, FLOW, "prioritylevelconfigurations", "prioritylevelconfigurations/status")
    levels, name = api.of(FLOW, "prioritylevelconfigurations"), unique("status")

    def change(obj: Obj) -> None:
        obj["spec"]["limited"]["nominalConcurrencyShares"] = 4

    check_operations(levels, priority_level, change=change)
    levels.create(priority_level(name))
    first, second = dangling("first"), dangling("second")
    check_status(levels, name, {"conditions": [first]}, "conditions", [second])
    levels.delete(name)


@conformance(
    "[sig-scheduling] SchedulerPreemption PriorityClass endpoints verify PriorityClass endpoints can be operated with"
    " different HTTP methods [Conformance] [Serial]"
)
def test_priority_class_endpoints(api: Api) -> None:
    classes = api.of("scheduling.k8s.io/v1", "priorityclasses")
    created = [classes.create({"metadata": {"name": unique("p")}, "value": value}) for value in (1, 2)]
    first, second = (made["metadata"]["name"] for made in created)
    refused("Invalid", classes.patch, first, {"value": 10})
    refused("Invalid", classes.update, second, lambda obj: obj.update(value=20))
    classes.patch(first, {"description": "updated description"})
    classes.update(second, lambda obj: obj.update(description="updated description"))
    assert {first, second} <= set(classes.names())
    for made in created:
        live = classes.get(made["metadata"]["name"])
        assert (live["value"], live["description"]) == (made["value"], "updated description")
        assert int(live["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


@conformance("[sig-node] RuntimeClass should support RuntimeClasses API operations [Conformance]")
def test_runtime_class_operations(api: Api) -> None:
    check_discovery(api, "node.k8s.io/v1", "runtimeclasses")
    classes = api.of("node.k8s.io/v1", "runtimeclasses")
    check_operations(
        classes, lambda name: {"metadata": {"name": name}, "handler": "non-existent"}, change=lambda obj: None
    )


def lease_spec(holder: str, duration: int, acquired: int, renewed: int, transitions: int) -> Obj:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "acquireTime": f"0001-01-01T00:00:{acquired:02d}.000000Z",
        "renewTime": f"0001-01-01T00:01:{renewed:02d}.000000Z",
        "leaseTransitions": transitions,
    }


@conformance("[sig-node] Lease lease API should be available [Conformance]")
def test_lease_operations(api: Api, namespace: str) -> None:
    leases = api.of("coordination.k8s.io/v1", "leases", namespace)
    first, second, third = lease_spec("a", 30, 2, 5, 0), lease_spec("b", 30, 20, 50, 1), lease_spec("c", 60, 50, 10, 2)
    created = leases.create({"metadata": {"name": "lease"}, "spec": first})
    assert leases.get("lease")["spec"] == first
    leases.replace({**created, "spec": second})
    assert leases.get("lease")["spec"] == second
    patched = leases.patch("lease", {"spec": third}, "strategic")
    assert leases.get("lease")["spec"] == third
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])

    leases.create({"metadata": {"name": "lease2", "labels": {"deletecollection": "true"}}, "spec": first})
    assert leases.names() == ["lease", "lease2"]
    leases.delete_collection("deletecollection=true")
    assert leases.names() == ["lease"]
    leases.delete("lease")
    assert leases.is_gone("lease")
    assert "items" in api.of("coordination.k8s.io/v1", "leases").list()


@conformance("[sig-node] Node Lifecycle should run through the lifecycle of a node [Conformance]")
def test_node_lifecycle(api: Api) -> None:
    nodes, name = api.of("v1", "nodes"), unique("e2e-fake-node")
    status = {"phase": "Running", "conditions": [condition("Ready")]}
    created = nodes.create({"metadata": {"name": name}, "spec": {"unschedulable": True}, "status": status})
    assert nodes.get(name)["metadata"]["uid"] == created["metadata"]["uid"]
    patched = nodes.patch(name, {"metadata": {"labels": {name: "patched"}}}, "strategic")
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert nodes.names(f"{name}=patched") == [name]
    updated = nodes.update(name, lambda obj: obj["metadata"]["labels"].update({name: "updated"}))
    assert updated["metadata"]["labels"][name] == "updated"
    nodes.delete(name)
    assert nodes.is_gone(name)
