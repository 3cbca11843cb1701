"""Claims: the nodes that they allow, the pods that they delay, and the steps for unbound ones."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_builders import HOSTNAME, ZONE, a_node, a_pod

from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.plan import Placed, Planner, Unplaced
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.volumes import SelectNode, TakeVolume

CLAIM = ObjectKey("default", "data")


def a_planner(*nodes: Obj) -> Planner:
    planner = Planner(Snapshot(), SchedulerConfig())
    for node in nodes or (a_node("a", zone="z1"), a_node("b", zone="z2")):
        planner.snapshot.set_node(node)
    planner.volumes.classes["now"] = {"metadata": {"name": "now"}, "provisioner": "x", "volumeBindingMode": "Immediate"}
    planner.volumes.classes["late"] = {
        "metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    planner.volumes.classes["static"] = {
        "metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    return planner


def a_claim(storage_class: str, *, volume: str = "", modes: tuple[str, ...] = ("ReadWriteOnce",), **about: Any) -> Obj:
    annotations = about.pop("annotations", {}) | ({"pv.kubernetes.io/bind-completed": "yes"} if volume else {})
    spec = {
        "storageClassName": storage_class,
        "accessModes": list(modes),
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "metadata": {"name": "data", "namespace": "default", "uid": "c", "annotations": annotations, **about},
        "spec": spec | ({"volumeName": volume} if volume else {}),
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def a_volume(name: str, *, key: str = HOSTNAME, value: str = "", size: str = "1Gi", **spec: Any) -> Obj:
    affinity = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "static", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            **({"nodeAffinity": affinity} if value else {}), **spec,
        },
        "status": {"phase": "Available"},
    }  # fmt: skip


def place(planner: Planner, name: str = "p") -> Placed | Unplaced:
    pod = a_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    return planner.place(planner.snapshot.pod_info(pod), lambda: 0.0)


def said(decided: Placed | Unplaced) -> str:
    assert isinstance(decided, Unplaced)
    return decided.message.partition(" preemption:")[0]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (a_claim("now"), "pod has unbound immediate PersistentVolumeClaims"),
        (a_claim(""), "pod has unbound immediate PersistentVolumeClaims"),
        (a_claim("late", deletionTimestamp="2024-01-01T00:00:00Z"), 'persistentvolumeclaim "data" is being deleted'),
        (a_claim("late") | {"status": {"phase": "Lost"}}, 'persistentvolumeclaim "data" bound to non-existent persistentvolume "None"'),
    ],
)  # fmt: skip
def test_a_claim_that_is_not_ready_holds_the_pod_up(claim: Obj | None, message: str) -> None:
    planner = a_planner()
    if claim is not None:
        planner.volumes.claims[CLAIM] = claim
    decided = place(planner)
    assert said(decided) == f"0/2 nodes are available: {message}."
    assert isinstance(decided, Unplaced) and decided.plugins == {"VolumeBinding"}


def test_a_bound_claim_leads_to_where_its_volume_can_be_used() -> None:
    planner = a_planner()
    planner.volumes.claims[CLAIM] = a_claim("static", volume="pv")
    planner.volumes.volumes["pv"] = a_volume("pv", key=ZONE, value="z2")
    decided = place(planner)
    assert isinstance(decided, Placed) and decided.node == "b" and not decided.steps
    planner.volumes.volumes["pv"] = a_volume("pv", key=ZONE, value="z9")
    assert said(place(planner)) == "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
    del planner.volumes.volumes["pv"]
    assert "bound to non-existent pv(s)" in said(place(planner))


def test_a_late_claim_is_provisioned_for_the_chosen_node() -> None:
    planner = a_planner()
    planner.volumes.claims[CLAIM] = a_claim("late")
    decided = place(planner)
    assert isinstance(decided, Placed)
    assert decided.steps == (SelectNode(CLAIM, decided.node),)


def test_a_claim_whose_node_is_selected_leads_there() -> None:
    planner = a_planner()
    planner.volumes.claims[CLAIM] = a_claim("late", annotations={"volume.kubernetes.io/selected-node": "b"})
    decided = place(planner)
    assert isinstance(decided, Placed) and decided.node == "b"


def test_allowed_topologies_of_a_class_limit_where_claims_are_provisioned() -> None:
    planner = a_planner()
    planner.volumes.classes["late"]["allowedTopologies"] = [
        {"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}
    ]
    planner.volumes.claims[CLAIM] = a_claim("late")
    decided = place(planner)
    assert isinstance(decided, Placed) and decided.node == "b"


def test_the_smallest_matching_volume_is_used_and_not_assigned_twice() -> None:
    planner = a_planner()
    planner.volumes.claims[CLAIM] = a_claim("static")
    planner.volumes.volumes = {
        "large": a_volume("large", value="b", size="9Gi"),
        "right": a_volume("right", value="b", size="2Gi"),
        "small": a_volume("small", value="b", size="512Mi"),
        "shared": a_volume("shared", value="b", accessModes=["ReadOnlyMany"]),
    }
    decided = place(planner)
    assert isinstance(decided, Placed) and decided.node == "b"
    assert decided.steps == (TakeVolume(CLAIM, "right"),)
    planner.volumes.promised["right"] = ObjectKey("default", "other")
    decided = place(planner)
    assert isinstance(decided, Placed) and decided.steps == (TakeVolume(CLAIM, "large"),)
    planner.volumes.promised["large"] = ObjectKey("default", "other")
    assert (
        said(place(planner)) == "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    )


def test_a_claim_for_one_pod_only_is_not_given_to_a_second() -> None:
    planner = a_planner()
    planner.volumes.claims[CLAIM] = a_claim("static", volume="pv", modes=("ReadWriteOncePod",))
    planner.volumes.volumes["pv"] = a_volume("pv")
    first = planner.snapshot.pod_info(
        a_pod("first", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    )
    planner.snapshot.hold(first.shape)
    planner.snapshot.add_pod(first, "a")
    assert "ReadWriteOncePod access mode already in-use by another pod" in said(place(planner))
    planner.snapshot.remove_pod(first)
    assert isinstance(place(planner), Placed)


def test_an_ephemeral_claim_that_is_not_there_yet_is_waited_for() -> None:
    planner = a_planner()
    pod = a_pod("p", volumes=[{"name": "v", "ephemeral": {}}])
    decided = planner.place(planner.snapshot.pod_info(pod), lambda: 0.0)
    expected = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"'
    assert said(decided) == f"0/2 nodes are available: {expected}."
