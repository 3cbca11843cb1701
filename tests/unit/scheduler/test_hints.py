"""Which events move a refused pod back to the queue, by the plugin that refused it."""

from __future__ import annotations

import pytest
from scheduler_builders import HOSTNAME, ZONE, a_constraint, a_node, a_pod, a_term

from shoal.kube.objects import Obj
from shoal.scheduler.hints import HINTS, ClusterEvent, ClusterEventKind, may_help, node_facts
from shoal.scheduler.model import FILTERS
from shoal.scheduler.snapshot import Snapshot

TAINT = {"key": "dedicated", "effect": "NoSchedule"}
NEAR = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(ZONE, app="a")]}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(HOSTNAME, app="a")]}}
SPREAD = [a_constraint(ZONE, app="a")]
PORT = [{"containerPort": 80, "hostPort": 80}]


def test_every_filter_has_a_hint() -> None:
    assert set(HINTS) == set(FILTERS)


@pytest.mark.parametrize(
    ("plugin", "pod", "before", "after", "helps"),
    [
        ("NodeResourcesFit", a_pod("p", cpu="2"), None, a_node("n", cpu="2"), True),
        ("NodeResourcesFit", a_pod("p", cpu="2"), None, a_node("n", cpu="1"), False),
        ("NodeResourcesFit", a_pod("p", cpu="2"), a_node("n", cpu="1"), a_node("n", cpu="4"), True),
        ("NodeResourcesFit", a_pod("p", cpu="2"), a_node("n", cpu="4"), a_node("n", cpu="4"), False),
        ("NodeResourcesFit", a_pod("p", cpu="2"), a_node("n"), a_node("n", labels={"a": "b"}), False),
        ("TaintToleration", a_pod("p"), a_node("n", taints=[TAINT]), a_node("n"), True),
        ("TaintToleration", a_pod("p"), a_node("n"), a_node("n", taints=[TAINT]), False),
        ("TaintToleration", a_pod("p"), None, a_node("n"), True),
        ("TaintToleration", a_pod("p"), None, a_node("n", taints=[TAINT]), False),
        ("NodeUnschedulable", a_pod("p"), a_node("n", unschedulable=True), a_node("n"), True),
        ("NodeUnschedulable", a_pod("p"), a_node("n"), a_node("n", cpu="9"), False),
        ("NodeAffinity", a_pod("p", nodeSelector={"a": "b"}), a_node("n"), a_node("n", labels={"a": "b"}), True),
        ("NodeAffinity", a_pod("p", nodeSelector={"a": "b"}), a_node("n"), a_node("n", labels={"a": "c"}), False),
        ("NodeAffinity", a_pod("p", nodeSelector={"a": "b"}), None, a_node("n", labels={"a": "b"}), True),
        ("NodePorts", a_pod("p", ports=PORT), None, a_node("n"), True),
        ("NodePorts", a_pod("p", ports=PORT), a_node("n"), a_node("n", cpu="9"), False),
        ("PodTopologySpread", a_pod("p", topologySpreadConstraints=SPREAD), a_node("n"), a_node("n", zone="z"), True),
        ("PodTopologySpread", a_pod("p", topologySpreadConstraints=SPREAD), a_node("n"), a_node("n", cpu="9"), False),
        ("InterPodAffinity", a_pod("p", affinity=NEAR), a_node("n"), a_node("n", zone="z"), True),
        ("InterPodAffinity", a_pod("p", affinity=NEAR), a_node("n"), a_node("n", cpu="9"), False),
        ("VolumeBinding", a_pod("p"), a_node("n"), a_node("n", zone="z"), True),
    ],
)  # fmt: skip
def test_nodes(plugin: str, pod: Obj, before: Obj | None, after: Obj, helps: bool) -> None:
    snapshot = Snapshot()
    happening = ClusterEventKind.NODE_ADDED if before is None else ClusterEventKind.NODE_CHANGED
    event = ClusterEvent(happening, node=node_facts(after), before=node_facts(before) if before else None)
    assert may_help(event, snapshot.pod_info(pod), frozenset({plugin}), snapshot) is helps


@pytest.mark.parametrize(
    ("plugin", "pod", "happening", "other", "helps"),
    [
        ("NodeResourcesFit", a_pod("p"), ClusterEventKind.POD_GONE, a_pod("o"), True),
        ("NodeResourcesFit", a_pod("p"), ClusterEventKind.POD_PLACED, a_pod("o"), False),
        ("TaintToleration", a_pod("p"), ClusterEventKind.POD_GONE, a_pod("o"), False),
        ("NodePorts", a_pod("p", ports=PORT), ClusterEventKind.POD_GONE, a_pod("o", ports=PORT), True),
        ("NodePorts", a_pod("p", ports=PORT), ClusterEventKind.POD_GONE, a_pod("o"), False),
        ("InterPodAffinity", a_pod("p", affinity=NEAR), ClusterEventKind.POD_PLACED, a_pod("o", labels={"app": "a"}), True),
        ("InterPodAffinity", a_pod("p", affinity=NEAR), ClusterEventKind.POD_PLACED, a_pod("o", labels={"app": "b"}), False),
        ("InterPodAffinity", a_pod("p", affinity=APART), ClusterEventKind.POD_GONE, a_pod("o", labels={"app": "a"}), True),
        ("InterPodAffinity", a_pod("p", affinity=APART), ClusterEventKind.POD_PLACED, a_pod("o", labels={"app": "a"}), False),
        ("InterPodAffinity", a_pod("p", labels={"app": "a"}), ClusterEventKind.POD_GONE, a_pod("o", affinity=APART), True),
        ("PodTopologySpread", a_pod("p", topologySpreadConstraints=SPREAD), ClusterEventKind.POD_GONE, a_pod("o", labels={"app": "a"}), True),
        ("PodTopologySpread", a_pod("p", topologySpreadConstraints=SPREAD), ClusterEventKind.POD_GONE, a_pod("o", labels={"app": "b"}), False),
        ("PodTopologySpread", a_pod("p", topologySpreadConstraints=SPREAD), ClusterEventKind.POD_GONE, a_pod("o", namespace="x", labels={"app": "a"}), False),
    ],
)  # fmt: skip
def test_pods(plugin: str, pod: Obj, happening: ClusterEventKind, other: Obj, helps: bool) -> None:
    snapshot = Snapshot()
    event = ClusterEvent(happening, pod=snapshot.pod_info(other))
    assert may_help(event, snapshot.pod_info(pod), frozenset({plugin}), snapshot) is helps


def test_every_event_may_help_a_pod_that_no_plugin_refused() -> None:
    snapshot = Snapshot()
    assert may_help(ClusterEvent(ClusterEventKind.STORAGE), snapshot.pod_info(a_pod("p")), frozenset(), snapshot)
