"""Owners and their dependents: what goes with an owner, what stays, and in which order."""

from __future__ import annotations

from conformance_api import Api, conformance
from conformance_live import controller_of, name_of, ready_pods, settles
from conformance_objects import pod, replication_controller, workload

from shoal.kube.objects import Obj

REPLICAS = 10


def ownership(owner: Obj, api_version: str, kind: str, **more: bool) -> Obj:
    about = owner["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": about["name"], "uid": about["uid"], **more}


@conformance("[sig-api-machinery] Garbage collector should delete pods created by rc when not orphaning [Conformance]")
def test_pods_go_with_their_controller(live: Api, space: str) -> None:
    pods, controllers = live.of("v1", "pods", space), live.of("v1", "replicationcontrollers", space)
    created = controllers.create(replication_controller("rc", 2))
    settles(pods.items)
    uid = created["metadata"]["uid"]
    controllers.delete("rc", {"propagationPolicy": "Background", "preconditions": {"uid": uid}})
    assert controllers.is_gone("rc")
    settles(lambda: not pods.items())


@conformance(
    "[sig-api-machinery] Garbage collector should orphan pods created by rc if delete options say so [Conformance]"
    " [Serial]"
)
def test_pods_are_orphaned(live: Api, space: str) -> None:
    pods, controllers = live.of("v1", "pods", space), live.of("v1", "replicationcontrollers", space)
    controllers.create(replication_controller("rc", REPLICAS))
    before = {each["metadata"]["uid"] for each in ready_pods(pods, REPLICAS)}
    controllers.delete("rc", {"propagationPolicy": "Orphan"})
    settles(lambda: controllers.is_gone("rc"))
    left = pods.items()
    assert {each["metadata"]["uid"] for each in left} == before
    assert not any("deletionTimestamp" in each["metadata"] for each in left)
    assert all(controller_of(each) is None for each in left), "the owner went before its pods were set free"


@conformance(
    "[sig-api-machinery] Garbage collector should delete RS created by deployment when not orphaning [Conformance]"
)
def test_replica_sets_go_with_their_deployment(live: Api, space: str) -> None:
    deployments, sets = live.of("apps/v1", "deployments", space), live.of("apps/v1", "replicasets", space)
    pods = live.of("v1", "pods", space)
    deployments.create(workload("web", 2))
    settles(sets.items)
    deployments.delete("web", {"propagationPolicy": "Background"})
    settles(lambda: not deployments.items() and not sets.items() and not pods.items())


@conformance(
    "[sig-api-machinery] Garbage collector should orphan RS created by deployment when"
    " deleteOptions.PropagationPolicy is Orphan [Conformance]"
)
def test_replica_sets_are_orphaned(live: Api, space: str) -> None:
    deployments, sets = live.of("apps/v1", "deployments", space), live.of("apps/v1", "replicasets", space)
    pods = live.of("v1", "pods", space)
    deployments.create(workload("web", 2))
    ready_pods(pods, 2)
    deployments.delete("web", {"propagationPolicy": "Orphan"})
    settles(lambda: deployments.is_gone("web"))
    [left] = sets.items()
    assert controller_of(left) is None
    found = pods.items()
    assert len(found) == 2
    assert {str((controller_of(each) or {}).get("name")) for each in found} == {name_of(left)}


@conformance(
    "[sig-api-machinery] Garbage collector should keep the rc around until all its pods are deleted if the"
    " deleteOptions says so [Conformance] [Serial]"
)
def test_an_owner_waits_for_its_pods(live: Api, space: str) -> None:
    pods, controllers = live.of("v1", "pods", space), live.of("v1", "replicationcontrollers", space)
    controllers.create(replication_controller("rc", REPLICAS))
    found = ready_pods(pods, REPLICAS)
    kept = name_of(found[0])
    pods.patch(kept, {"metadata": {"finalizers": ["example.com/keep"]}})
    controllers.delete("rc", {"propagationPolicy": "Foreground"})
    settles(lambda: pods.names() == [kept])
    owner = controllers.get("rc")
    assert owner["metadata"]["deletionTimestamp"]
    assert owner["metadata"]["finalizers"] == ["foregroundDeletion"]
    pods.patch(kept, {"metadata": {"finalizers": None}})
    settles(lambda: controllers.is_gone("rc"))
    assert pods.items() == []


@conformance(
    "[sig-api-machinery] Garbage collector should not delete dependents that have both valid owner and owner that's"
    " waiting for dependents to be deleted [Conformance] [Serial]"
)
def test_a_second_owner_keeps_its_pods(live: Api, space: str) -> None:
    pods, controllers = live.of("v1", "pods", space), live.of("v1", "replicationcontrollers", space)
    controllers.create(replication_controller("leaving", REPLICAS))
    staying = controllers.create(replication_controller("staying", 0))
    found = ready_pods(pods, REPLICAS)
    shared = {name_of(each) for each in found[: REPLICAS // 2]}
    for each in found[: REPLICAS // 2]:
        owners = [*each["metadata"]["ownerReferences"], ownership(staying, "v1", "ReplicationController")]
        pods.patch(name_of(each), {"metadata": {"ownerReferences": owners}})
    controllers.delete("leaving", {"propagationPolicy": "Foreground"})
    settles(lambda: controllers.is_gone("leaving"))
    left = pods.items()
    assert {name_of(each) for each in left} == shared
    for each in left:
        assert "deletionTimestamp" not in each["metadata"]
        assert [owner["name"] for owner in each["metadata"]["ownerReferences"]] == ["staying"]


@conformance("[sig-api-machinery] Garbage collector should not be blocked by dependency circle [Conformance]")
def test_a_circle_of_owners_goes_as_a_whole(live: Api, space: str) -> None:
    pods = live.of("v1", "pods", space)
    made = [pods.create(pod(f"pod{number}")) for number in (1, 2, 3)]
    for number, each in enumerate(made):
        owner = ownership(made[number - 1], "v1", "Pod", controller=True, blockOwnerDeletion=True)
        pods.patch(name_of(each), {"metadata": {"ownerReferences": [owner]}}, "strategic")
    pods.delete("pod1", {"propagationPolicy": "Foreground"})
    settles(lambda: not pods.items())
