"""StatefulSets with their controller at work. Their pods are as healthy as the tests say, through a readiness gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_api import Api, conformance
from conformance_live import (
    GATE,
    find,
    image_of,
    is_ready,
    name_of,
    nodes,
    observed,
    ready_pods,
    set_health,
    settles,
)  # fmt: skip
from conformance_objects import IMAGE, OTHER_IMAGE, pod, statefulset, workload

from shoal.kube.objects import Obj

REVISION = "controller-revision-hash"


class Set:
    """The StatefulSet ``db`` and its pods."""

    def __init__(self, live: Api, space: str, replicas: int, **spec: Any) -> None:
        self.sets, self.pods = live.of("apps/v1", "statefulsets", space), live.of("v1", "pods", space)
        made = workload("db", replicas, serviceName="test", **spec)
        made["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": GATE}]
        self.sets.create(made)

    def ordinals(self) -> list[int]:
        return sorted(int(name.rpartition("-")[2]) for name in self.pods.names())

    def appears(self, ordinal: int) -> None:
        """The pod of this ordinal comes."""
        settles(lambda: ordinal in self.ordinals())

    def heal(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            self.appears(ordinal)
            set_health(self.pods, f"db-{ordinal}", True)
            self.becomes(ordinal, is_ready)

    def break_(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            set_health(self.pods, f"db-{ordinal}", False)
            self.becomes(ordinal, lambda pod: not is_ready(pod))

    def becomes(self, ordinal: int, wanted: Callable[[Obj], bool]) -> None:
        """There comes to be a pod of this ordinal that is as wanted."""

        def check() -> bool:
            pod = find(self.pods, f"db-{ordinal}")
            return pod is not None and wanted(pod)

        settles(check)

    def scale(self, replicas: int) -> None:
        self.sets.patch("db", {"spec": {"replicas": replicas}}, sub="scale")

    def roll(self, image: str) -> None:
        container = {"name": "main", "image": image}
        self.sets.patch("db", {"spec": {"template": {"spec": {"containers": [container]}}}}, "strategic")

    def images(self) -> list[str]:
        return [image_of(each) for each in sorted(self.pods.items(), key=name_of)]

    def revisions(self) -> list[str]:
        return [str(each["metadata"]["labels"][REVISION]) for each in sorted(self.pods.items(), key=name_of)]

    def status(self) -> Obj:
        found: Obj = observed(self.sets, "db", lambda status: True)["status"]
        return found

    def rests(self, *ordinals: int) -> None:
        """The controller has seen everything there is, and there are these pods and no others."""
        observed(self.sets, "db", lambda status: status["replicas"] == len(ordinals))
        assert self.ordinals() == list(ordinals)


def heal_in_turn(db: Set, wanted: str, *ordinals: int) -> None:
    """Pods are replaced one at a time, each after the one before it is healthy."""
    for ordinal in ordinals:
        db.becomes(ordinal, lambda pod: image_of(pod) == wanted)
        db.heal(ordinal)


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should perform rolling updates and roll"
    " backs of template modifications [Conformance]"
)
def test_updates_roll_and_roll_back(live: Api, space: str) -> None:
    db = Set(live, space, 3)
    db.heal(0, 1, 2)
    first = observed(db.sets, "db", lambda status: status.get("readyReplicas") == 3)["status"]
    assert first["currentRevision"] == first["updateRevision"]
    assert db.revisions() == [first["currentRevision"]] * 3

    db.break_(1)
    db.roll(OTHER_IMAGE)
    second = db.status()
    assert second["currentRevision"] == first["currentRevision"] != second["updateRevision"]
    db.heal(1)
    heal_in_turn(db, OTHER_IMAGE, 2, 1, 0)
    done = observed(db.sets, "db", lambda status: status["currentRevision"] == status["updateRevision"])["status"]
    assert done["currentRevision"] == second["updateRevision"]
    assert db.images() == [OTHER_IMAGE] * 3
    assert db.revisions() == [second["updateRevision"]] * 3

    db.roll(IMAGE)
    assert db.status()["updateRevision"] == first["currentRevision"], "a roll back is a new revision"
    heal_in_turn(db, IMAGE, 2, 1, 0)
    done = observed(db.sets, "db", lambda status: status["currentRevision"] == status["updateRevision"])["status"]
    assert db.revisions() == [done["currentRevision"]] * 3 == [first["currentRevision"]] * 3


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should perform canary updates and phased"
    " rolling updates of template modifications [Conformance]"
)
def test_a_partition_holds_back_an_update(live: Api, space: str) -> None:
    def partition(first: int) -> Obj:
        return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": first}}}

    db = Set(live, space, 3, **partition(3))
    db.heal(0, 1, 2)
    old = db.status()["currentRevision"]
    db.roll(OTHER_IMAGE)
    new = db.status()["updateRevision"]
    assert old != new
    assert db.images() == [IMAGE] * 3

    db.sets.patch("db", {"spec": partition(2)})
    heal_in_turn(db, OTHER_IMAGE, 2)
    assert db.images() == [IMAGE, IMAGE, OTHER_IMAGE]
    assert db.revisions() == [old, old, new]

    for ordinal in (0, 2):
        before = db.pods.delete(f"db-{ordinal}")["metadata"]["uid"]
        db.becomes(ordinal, lambda pod, before=before: bool(pod["metadata"]["uid"] != before))  # type: ignore[misc]
        db.heal(ordinal)
    assert db.revisions() == [old, old, new], "a pod came back at another revision"

    for ordinal in (1, 0):
        db.sets.patch("db", {"spec": partition(ordinal)})
        heal_in_turn(db, OTHER_IMAGE, ordinal)
        assert db.revisions() == [old] * ordinal + [new] * (3 - ordinal)
    observed(db.sets, "db", lambda status: status["currentRevision"] == new)


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] Scaling should happen in predictable"
    " order and halt if any stateful pod is unhealthy [Conformance] [Slow]"
)
def test_scaling_keeps_its_order_and_waits_for_health(live: Api, space: str) -> None:
    db = Set(live, space, 1)
    db.heal(0)
    db.break_(0)
    db.scale(3)
    db.rests(0)
    with db.pods.watch(after=db.pods.list()) as watch:
        db.heal(0, 1, 2)
        added = [name_of(watch.until("ADDED")) for _ in range(2)]
    assert added == ["db-1", "db-2"]

    db.break_(0, 1, 2)
    db.scale(0)
    db.rests(0, 1, 2)
    with db.pods.watch(after=db.pods.list()) as watch:
        for ordinal in (0, 1, 2):
            set_health(db.pods, f"db-{ordinal}", True)
        deleted = [name_of(watch.until("DELETED")) for _ in range(3)]
    assert deleted == ["db-2", "db-1", "db-0"]


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] Burst scaling should run to completion"
    " even with unhealthy pods [Conformance] [Slow]"
)
def test_bursts_do_not_wait_for_health(live: Api, space: str) -> None:
    db = Set(live, space, 1, podManagementPolicy="Parallel")
    db.heal(0)
    db.break_(0)
    db.scale(3)
    settles(lambda: db.ordinals() == [0, 1, 2])
    assert not any(is_ready(each) for each in db.pods.items())
    db.scale(0)
    settles(lambda: db.ordinals() == [])


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] Should recreate evicted statefulset"
    " [Conformance]"
)
def test_a_rejected_pod_is_made_again(live: Api, space: str) -> None:
    pods, sets = live.of("v1", "pods", space), live.of("apps/v1", "statefulsets", space)
    node = nodes(live)[0]
    port = {"containerPort": 21017, "hostPort": 21017}

    def in_the_way(spec: Obj) -> Obj:
        [container] = spec["containers"]
        return {**spec, "nodeName": node, "containers": [{**container, "ports": [port]}]}

    blocker = pod("blocker")
    pods.create({**blocker, "spec": in_the_way(blocker["spec"])})
    ready_pods(pods, 1)
    made = statefulset("db")
    made["spec"]["template"]["spec"] = in_the_way(made["spec"]["template"]["spec"])
    with pods.watch("app=db", after=pods.list()) as watch:
        sets.create(made)
        failed = watch.until("MODIFIED", lambda obj: obj["status"]["phase"] == "Failed")
        assert failed["status"]["reason"] == "NodePorts"
        watch.until("DELETED")
        assert watch.until("ADDED")["metadata"]["uid"] != failed["metadata"]["uid"]
    pods.delete("blocker")
    settles(lambda: is_ready(find(pods, "db-0") or pod("none")))
