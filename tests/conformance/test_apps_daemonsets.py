"""DaemonSets on the nodes of a cluster, which come and go as their labels change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_api import Api, Resource, conformance, unique
from conformance_live import find, image_of, is_ready, name_of, nodes, observed, ready_pods, settles
from conformance_objects import IMAGE, OTHER_IMAGE, workload

from shoal.kube.objects import Obj

COLOR = "daemonset-color"
REVISION = "controller-revision-hash"


def daemonset(**spec: object) -> Obj:
    return workload("agent", None, **spec)


def places(pods: Resource) -> list[str]:
    """The nodes that have a ready pod of the set."""
    return sorted(str(each["spec"].get("nodeName")) for each in pods.items() if is_ready(each))


def runs_on(pods: Resource, wanted: list[str]) -> None:
    settles(lambda: places(pods) == sorted(wanted) and len(pods.items()) == len(wanted))


def set_image(sets: Resource, image: str) -> None:
    container = {"name": "main", "image": image}
    sets.patch("agent", {"spec": {"template": {"spec": {"containers": [container]}}}}, "strategic")


@pytest.fixture
def colored(live: Api) -> Iterator[tuple[str, Resource]]:
    """A node whose color may be changed."""
    name, resource = nodes(live)[0], live.of("v1", "nodes")
    yield name, resource
    resource.patch(name, {"metadata": {"labels": {COLOR: None}}})


@conformance("[sig-apps] Daemon set should run and stop simple daemon [Conformance] [Serial]")
def test_a_daemon_runs_on_every_node(live: Api, space: str) -> None:
    sets, pods = live.of("apps/v1", "daemonsets", space), live.of("v1", "pods", space)
    sets.create(daemonset())
    runs_on(pods, nodes(live))
    observed(sets, "agent", lambda status: status["numberReady"] == status["desiredNumberScheduled"] == 3)
    stopped = pods.items()[0]
    pods.delete(name_of(stopped))
    settles(lambda: find(pods, name_of(stopped)) is None and places(pods) == sorted(nodes(live)))
    sets.delete("agent")
    settles(lambda: not pods.items())


@conformance("[sig-apps] Daemon set should run and stop complex daemon [Conformance] [Serial]")
def test_a_daemon_follows_the_labels_of_nodes(live: Api, space: str, colored: tuple[str, Resource]) -> None:
    sets, pods = live.of("apps/v1", "daemonsets", space), live.of("v1", "pods", space)
    node, resource = colored
    blue, green = unique("blue"), unique("green")
    made = daemonset()
    made["spec"]["template"]["spec"]["nodeSelector"] = {COLOR: blue}
    sets.create(made)
    observed(sets, "agent", lambda status: status["desiredNumberScheduled"] == 0)
    assert pods.items() == []
    resource.patch(node, {"metadata": {"labels": {COLOR: blue}}})
    runs_on(pods, [node])
    resource.patch(node, {"metadata": {"labels": {COLOR: green}}})
    settles(lambda: not pods.items())
    rolling = {"updateStrategy": {"type": "RollingUpdate"}}
    sets.patch("agent", {"spec": {**rolling, "template": {"spec": {"nodeSelector": {COLOR: green}}}}}, "strategic")
    runs_on(pods, [node])
    observed(sets, "agent", lambda status: status["numberReady"] == status["desiredNumberScheduled"] == 1)


@conformance("[sig-apps] Daemon set should retry creating failed daemon pods [Conformance] [Serial]")
def test_a_failed_daemon_is_made_again(live: Api, space: str) -> None:
    sets, pods = live.of("apps/v1", "daemonsets", space), live.of("v1", "pods", space)
    sets.create(daemonset())
    runs_on(pods, nodes(live))
    failed = pods.items()[0]
    pods.patch(name_of(failed), {"status": {"phase": "Failed"}}, sub="status")
    settles(lambda: find(pods, name_of(failed)) is None)
    runs_on(pods, nodes(live))


@conformance(
    "[sig-apps] Daemon set should update pod when spec was updated and update strategy is RollingUpdate [Conformance]"
    " [Serial]"
)
def test_a_daemon_rolls_to_a_new_template(live: Api, space: str) -> None:
    sets, pods = live.of("apps/v1", "daemonsets", space), live.of("v1", "pods", space)
    revisions = live.of("apps/v1", "controllerrevisions", space)
    sets.create(daemonset(updateStrategy={"type": "RollingUpdate"}))
    runs_on(pods, nodes(live))
    [first] = revisions.items()
    assert first["revision"] == 1
    set_image(sets, OTHER_IMAGE)
    observed(sets, "agent", lambda status: status.get("updatedNumberScheduled") == status.get("numberAvailable") == 3)
    runs_on(pods, nodes(live))
    assert {image_of(each) for each in pods.items()} == {OTHER_IMAGE}
    [second] = [each for each in revisions.items() if each["revision"] == 2]
    mark = second["metadata"]["labels"][REVISION]
    assert {each["metadata"]["labels"][REVISION] for each in pods.items()} == {mark}
    assert mark != first["metadata"]["labels"][REVISION]
    assert len(revisions.items()) == 2


@conformance("[sig-apps] Daemon set should rollback without unnecessary restarts [Conformance] [Serial]")
def test_a_roll_back_leaves_what_was_not_replaced(live: Api, space: str) -> None:
    sets, pods = live.of("apps/v1", "daemonsets", space), live.of("v1", "pods", space)
    sets.create(daemonset(updateStrategy={"type": "RollingUpdate"}))
    before = ready_pods(pods, 3)
    set_image(sets, "registry.example.com/pause:non-existent")
    settles(lambda: any(image_of(each) != IMAGE for each in pods.items()))
    untouched = {name_of(each) for each in pods.items()} & {name_of(each) for each in before}
    assert len(untouched) == 2, "more than one node at a time"
    set_image(sets, IMAGE)
    settles(lambda: {image_of(each) for each in pods.items()} == {IMAGE})
    assert {name_of(each) for each in ready_pods(pods, 3)} >= untouched
