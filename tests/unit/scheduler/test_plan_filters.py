"""The rule of each filter: which nodes fit a pod, and the reasons of those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_builders import HOSTNAME, ZONE, a_constraint, a_node, a_pod, a_term

from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.config import Profile, SchedulerConfig
from shoal.scheduler.plan import Placed, Planner, Unplaced
from shoal.scheduler.snapshot import Snapshot


def a_planner(*nodes: Obj, pods: tuple[Obj, ...] = (), profile: Profile | None = None) -> Planner:
    snapshot = Snapshot()
    planner = Planner(snapshot, SchedulerConfig(profiles=(profile or Profile(),)))
    for node in nodes:
        snapshot.set_node(node)
    for pod in pods:
        put(planner, pod)
    return planner


def put(planner: Planner, pod: Obj) -> None:
    info = planner.snapshot.pod_info(pod)
    planner.snapshot.hold(info.shape)
    planner.snapshot.add_pod(info, pod["spec"]["nodeName"])


def place(planner: Planner, pod: Obj) -> Placed | Unplaced:
    return planner.place(planner.snapshot.pod_info(pod), lambda: 0.0)


def why(planner: Planner, pod: Obj) -> str:
    decided = place(planner, pod)
    return decided.message.partition(" preemption:")[0] if isinstance(decided, Unplaced) else f"on {decided.node}"


TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pod", "node", "reason"),
    [
        (a_pod("p", cpu="4"), a_node("n"), ""),
        (a_pod("p", cpu="5"), a_node("n"), "Insufficient cpu"),
        (a_pod("p", memory="9Gi"), a_node("n"), "Insufficient memory"),
        (a_pod("p", cpu="5", memory="9Gi"), a_node("n"), "Insufficient cpu, 1 Insufficient memory"),
        (a_pod("p"), a_node("n", pods="0"), "Too many pods"),
        (a_pod("p", others={"example.com/gpu": "1"}), a_node("n"), "Insufficient example.com/gpu"),
        (a_pod("p", others={"example.com/gpu": "1"}), a_node("n", others={"example.com/gpu": "1"}), ""),
        (a_pod("p", others={"ephemeral-storage": "1Gi"}), a_node("n"), "Insufficient ephemeral-storage"),
        (a_pod("p"), a_node("n", unschedulable=True), "node(s) were unschedulable"),
        (a_pod("p", tolerations=[{"operator": "Exists"}]), a_node("n", unschedulable=True), ""),
        (a_pod("p"), a_node("n", taints=[TAINT]), "node(s) had untolerated taint(s)"),
        (a_pod("p", tolerations=[{"key": "dedicated", "value": "a"}]), a_node("n", taints=[TAINT]), ""),
        (a_pod("p", tolerations=[{"key": "dedicated", "value": "b"}]), a_node("n", taints=[TAINT]), "node(s) had untolerated taint(s)"),
        (a_pod("p", tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]), a_node("n", taints=[TAINT]), "node(s) had untolerated taint(s)"),
        (a_pod("p"), a_node("n", taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
        (a_pod("p", nodeSelector={"disk": "ssd"}), a_node("n", labels={"disk": "ssd"}), ""),
        (a_pod("p", nodeSelector={"disk": "ssd"}), a_node("n"), "node(s) didn't match Pod's node affinity/selector"),
        (a_pod("p", topologySpreadConstraints=[a_constraint(ZONE, app="a")]), a_node("n"), "node(s) didn't match pod topology spread constraints (missing required label)"),
        (a_pod("p", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(ZONE, app="a")]}}), a_node("n", zone="z"), "node(s) didn't match pod affinity rules"),
        (a_pod("p", labels={"app": "a"}, affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(ZONE, app="a")]}}), a_node("n", zone="z"), ""),
    ],
)  # fmt: skip
def test_one_node(pod: Obj, node: Obj, reason: str) -> None:
    expected = f"0/1 nodes are available: 1 {reason}." if reason else "on n"
    assert why(a_planner(node), pod) == expected


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["5"], True), ("In", ["6"], False), ("NotIn", ["5"], False), ("NotIn", ["6"], True), ("Exists", [], True),
        ("DoesNotExist", [], False), ("Gt", ["4"], True), ("Gt", ["5"], False), ("Lt", ["6"], True), ("Lt", ["5"], False),
    ],
)  # fmt: skip
def test_operators_of_node_affinity(operator: str, values: list[str], fits: bool) -> None:
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod = a_pod("p", affinity={"nodeAffinity": required})
    assert isinstance(place(a_planner(a_node("n", labels={"size": "5"})), pod), Placed) is fits


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        (("0.0.0.0", "TCP", 80), ("127.0.0.1", "TCP", 80), False),
        (("127.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), False),
        (("127.0.0.1", "TCP", 80), ("127.0.0.2", "TCP", 80), True),
        (("127.0.0.1", "TCP", 80), ("127.0.0.1", "TCP", 80), False),
        (("0.0.0.0", "UDP", 80), ("0.0.0.0", "TCP", 80), True),
        (("0.0.0.0", "TCP", 81), ("0.0.0.0", "TCP", 80), True),
    ],
)
def test_host_ports_conflict_by_address_protocol_and_number(mine: Any, theirs: Any, fits: bool) -> None:
    def ports(which: Any) -> list[Obj]:
        return [{"containerPort": 1, "hostIP": which[0], "protocol": which[1], "hostPort": which[2]}]

    planner = a_planner(a_node("n"), pods=(a_pod("there", node="n", ports=ports(theirs)),))
    found = why(planner, a_pod("p", ports=ports(mine)))
    assert found == (
        "on n" if fits else "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )


def test_reasons_of_all_nodes_are_counted_and_sorted_as_text() -> None:
    planner = a_planner(
        a_node("a", cpu="1"), a_node("b", cpu="1"), a_node("c", taints=[TAINT]), a_node("d", unschedulable=True)
    )
    expected = (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
    )
    assert why(planner, a_pod("p", cpu="2")) == expected


def test_without_nodes_the_message_says_so() -> None:
    assert why(a_planner(), a_pod("p")) == "no nodes available to schedule pods"


def test_the_message_includes_why_preemption_failed() -> None:
    planner = a_planner(a_node("a", cpu="1"), a_node("b", taints=[TAINT]), pods=(a_pod("x", cpu="1", node="a"),))
    decided = place(planner, a_pod("p", cpu="1"))
    assert isinstance(decided, Unplaced)
    assert decided.message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are "
        "available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


def test_a_pod_that_names_its_node_goes_there_or_nowhere() -> None:
    def pinned(name: str) -> Obj:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return a_pod("p", cpu="1", affinity={"nodeAffinity": required})

    planner = a_planner(a_node("a"), a_node("b"), a_node("c", cpu="0"))
    assert why(planner, pinned("b")) == "on b"
    assert why(planner, pinned("x")) == "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    assert why(planner, pinned("c")) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_pods_of_a_daemonset_are_of_one_shape_though_each_names_its_node() -> None:
    snapshot = Snapshot()
    shapes = set()
    for name in "abc":
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        info = snapshot.pod_info(a_pod(name, affinity={"nodeAffinity": required}))
        assert info.pinned == {name}
        shapes.add(info.shape)
    assert len(shapes) == 1


def test_min_domains_makes_missing_domains_count_as_empty() -> None:
    constraint = a_constraint(ZONE, app="a")
    planner = a_planner(a_node("n", zone="z"), pods=(a_pod("x", node="n", labels={"app": "a"}),))
    one = a_pod("p", labels={"app": "a"}, topologySpreadConstraints=[constraint])
    two = a_pod("p", labels={"app": "a"}, topologySpreadConstraints=[constraint | {"minDomains": 2}])
    assert why(planner, one) == "on n"
    assert why(planner, two) == "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."


def test_required_anti_affinity_of_pods_that_are_there_counts() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(HOSTNAME, app="a")]}}
    planner = a_planner(a_node("n"), pods=(a_pod("x", node="n", affinity=apart),))
    assert why(planner, a_pod("p", labels={"app": "a"})) == (
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    assert why(planner, a_pod("p", labels={"app": "b"})) == "on n"


def test_a_disk_is_shared_only_by_readers() -> None:
    def disk(read_only: bool) -> list[Obj]:
        return [{"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}}]

    planner = a_planner(a_node("n"), pods=(a_pod("x", node="n", volumes=disk(True)),))
    assert why(planner, a_pod("p", volumes=disk(True))) == "on n"
    assert why(planner, a_pod("p", volumes=disk(False))) == "0/1 nodes are available: 1 node(s) had no available disk."


def test_a_disabled_plugin_neither_filters_nor_scores() -> None:
    profile = Profile(disabled=frozenset({"TaintToleration", "NodeResourcesFit"}))
    planner = a_planner(a_node("n", cpu="0", taints=[TAINT]), profile=profile)
    decided = place(planner, a_pod("p", cpu="1"))
    assert isinstance(decided, Placed)
    assert not {"TaintToleration", "NodeResourcesFit"} & set(decided.scores)


def test_weights_of_a_profile_decide() -> None:
    likes = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
        ]
    }
    pod = a_pod("p", cpu="1", memory="1Gi", affinity={"nodeAffinity": likes})
    nodes = (a_node("busy", cpu="2", memory="2Gi", labels={"disk": "ssd"}), a_node("idle", cpu="64", memory="64Gi"))
    for weight, expected in ((0, "idle"), (10, "busy")):
        planner = a_planner(*nodes, profile=Profile(weights={"NodeAffinity": weight, "NodeResourcesFit": 1}))
        decided = place(planner, pod)
        assert isinstance(decided, Placed) and decided.node == expected


def test_system_defaults_spread_pods_of_an_owner_over_hosts_and_zones() -> None:
    planner = a_planner(*(a_node(f"n{at}", zone=f"z{at % 3}") for at in range(6)))
    planner.snapshot.set_owner("ReplicaSet", ObjectKey("default", "r"), from_object({"matchLabels": {"app": "a"}}))
    zones = {}
    for at in range(6):
        pod = a_pod(f"p{at}", cpu="10m", labels={"app": "a"}, owner="r")
        decided = place(planner, pod)
        assert isinstance(decided, Placed)
        zones[decided.node] = zones.get(decided.node, 0) + 1
        put(planner, {**pod, "spec": {**pod["spec"], "nodeName": decided.node}})
    assert zones == {f"n{at}": 1 for at in range(6)}


def test_a_search_of_a_large_cluster_stops_when_enough_nodes_fit_and_widens_with_each_pod() -> None:
    planner = a_planner(*(a_node(f"n{at:03}") for at in range(400)))
    looked = []
    for at in range(8):
        decided = place(planner, a_pod(f"p{at}", cpu="1m"))
        assert isinstance(decided, Placed)
        looked.append(decided.looked_at)
    assert looked[0] == 400 * (50 - 400 // 125) // 100 == 188
    assert looked == sorted(looked) and looked[-1] == 400


def test_searches_of_different_shapes_begin_at_different_nodes() -> None:
    planner = a_planner(*(a_node(f"n{at:03}") for at in range(400)))
    chosen = set()
    for at in range(4):
        decided = place(planner, a_pod(f"p{at}", cpu=f"{at + 1}m"))
        assert isinstance(decided, Placed)
        chosen.add(decided.node)
    assert len(chosen) == 4


def test_a_node_that_fits_is_found_however_few_there_are() -> None:
    nodes = [a_node(f"n{at:03}", cpu="1") for at in range(400)]
    nodes[357] = a_node("n357", cpu="8")
    assert why(a_planner(*nodes), a_pod("p", cpu="2")) == "on n357"


def test_ties_are_broken_at_random() -> None:
    planner = a_planner(*(a_node(f"n{at}") for at in range(10)))
    pod = planner.snapshot.pod_info(a_pod("p"))
    chosen = set()
    for at in range(10):
        decided = planner.place(pod, lambda at=at: at / 10)  # type: ignore[misc]
        assert isinstance(decided, Placed) and decided.ties == 10
        chosen.add(decided.node)
    assert len(chosen) == 10
