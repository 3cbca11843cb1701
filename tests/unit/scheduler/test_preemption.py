"""Preemption: which pods are deleted, on which node, and which never are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_builders import HOSTNAME, ZONE, a_constraint, a_node, a_pod, a_term

from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.plan import Placed, Planner, Unplaced
from shoal.scheduler.preemption import DisruptionBudget
from shoal.scheduler.snapshot import Snapshot


def a_planner(nodes: list[Obj], pods: list[Obj]) -> Planner:
    planner = Planner(Snapshot(), SchedulerConfig())
    for node in nodes:
        planner.snapshot.set_node(node)
    for pod in pods:
        info = planner.snapshot.pod_info(pod)
        planner.snapshot.hold(info.shape)
        planner.snapshot.add_pod(info, pod["spec"]["nodeName"])
    return planner


def room(planner: Planner, pod: Obj) -> tuple[str, set[str]]:
    """The node where room is made and who goes."""
    decided = planner.place(planner.snapshot.pod_info(pod), lambda: 0.0)
    assert isinstance(decided, Unplaced)
    if decided.candidate is None:
        return "", set()
    node = planner.snapshot.nodes[decided.candidate.slot].name
    return node, {victim.key.name for victim in decided.candidate.victims}


def test_as_few_pods_as_possible_are_preempted_and_the_least_important_first() -> None:
    pods = [a_pod(f"p{priority}", cpu="1", node="n", priority=priority) for priority in (1, 2, 3, 4)]
    assert room(a_planner([a_node("n", cpu="4")], pods), a_pod("x", cpu="2", priority=10)) == ("n", {"p1", "p2"})


def test_pods_of_the_same_priority_stay() -> None:
    planner = a_planner([a_node("n", cpu="1")], [a_pod("p", cpu="1", node="n", priority=5)])
    assert room(planner, a_pod("x", cpu="1", priority=5)) == ("", set())


def test_a_pod_may_not_want_to_preempt() -> None:
    planner = a_planner([a_node("n", cpu="1")], [a_pod("p", cpu="1", node="n")])
    pod = a_pod("x", cpu="1", priority=5, preemptionPolicy="Never")
    assert room(planner, pod) == ("", set())
    decided = planner.place(planner.snapshot.pod_info(pod), lambda: 0.0)
    assert isinstance(decided, Unplaced)
    assert decided.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_the_node_whose_best_victim_matters_least_is_chosen() -> None:
    nodes = [a_node(name, cpu="1") for name in "abc"]
    pods = [
        a_pod(f"p{name}", cpu="1", node=name, priority=priority) for name, priority in (("a", 3), ("b", 1), ("c", 2))
    ]
    assert room(a_planner(nodes, pods), a_pod("x", cpu="1", priority=10)) == ("b", {"pb"})


def test_fewer_victims_win_when_their_priorities_add_up_alike() -> None:
    nodes = [a_node("a", cpu="2"), a_node("b", cpu="2")]
    pods = [a_pod("a1", cpu="1", node="a"), a_pod("a2", cpu="1", node="a"), a_pod("b1", cpu="2", node="b")]
    assert room(a_planner(nodes, pods), a_pod("x", cpu="2", priority=10)) == ("b", {"b1"})


def test_the_victim_that_started_last_goes() -> None:
    nodes = [a_node(name, cpu="1") for name in "abc"]
    pods = [
        a_pod(f"p{name}", cpu="1", node=name, start=f"2024-01-0{day}T00:00:00Z")
        for name, day in zip("abc", (1, 3, 2), strict=True)
    ]
    assert room(a_planner(nodes, pods), a_pod("x", cpu="1", priority=10)) == ("b", {"pb"})


def test_a_node_whose_victims_break_no_budget_is_preferred() -> None:
    nodes = [a_node("a", cpu="1"), a_node("b", cpu="1")]
    pods = [a_pod("pa", cpu="1", node="a", labels={"app": "a"}), a_pod("pb", cpu="1", node="b", priority=5)]
    planner = a_planner(nodes, pods)
    planner.preemption.budgets = (
        DisruptionBudget("default", from_object({"matchLabels": {"app": "a"}}), 0, frozenset()),
    )
    assert room(planner, a_pod("x", cpu="1", priority=10)) == ("b", {"pb"})


def test_within_a_node_pods_under_an_exhausted_budget_are_spared_first() -> None:
    pods = [
        a_pod("guarded", cpu="1", node="n", labels={"app": "a"}, priority=0),
        a_pod("free", cpu="1", node="n", priority=1),
    ]
    planner = a_planner([a_node("n", cpu="2")], pods)
    assert room(planner, a_pod("x", cpu="1", priority=10)) == ("n", {"guarded"})
    planner.preemption.budgets = (
        DisruptionBudget("default", from_object({"matchLabels": {"app": "a"}}), 0, frozenset()),
    )
    planner.preemption.budgets_generation += 1
    assert room(planner, a_pod("x", cpu="1", priority=10)) == ("n", {"free"})


def test_nodes_that_would_not_fit_even_when_empty_are_no_candidates() -> None:
    planner = a_planner([a_node("n", cpu="2")], [a_pod("p", cpu="1", node="n")])
    decided = planner.place(planner.snapshot.pod_info(a_pod("x", cpu="3", priority=10)), lambda: 0.0)
    assert isinstance(decided, Unplaced) and decided.candidate is None
    assert decided.message.endswith("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


def test_a_victim_goes_to_satisfy_anti_affinity() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term(HOSTNAME, app="a")]}}
    pods = [a_pod("p", node="n", labels={"app": "a"}), a_pod("other", node="n")]
    assert room(a_planner([a_node("n")], pods), a_pod("x", priority=10, affinity=apart)) == ("n", {"p"})


def test_spread_is_judged_as_it_would_be_without_the_victims() -> None:
    pods = [a_pod(name, cpu="1", node="n1", labels={"app": "a"}) for name in ("a1", "a2")]
    pods.append(a_pod("b", cpu="2", node="n2", priority=100))
    planner = a_planner([a_node("n1", cpu="2", zone="z1"), a_node("n2", cpu="2", zone="z2")], pods)
    for skew, victims in ((1, {"a1", "a2"}), (2, {"a2"})):
        constraints = [a_constraint(ZONE, skew, app="a")]
        pod = a_pod("x", cpu="1", priority=10, labels={"app": "a"}, topologySpreadConstraints=constraints)
        node, found = room(planner, pod)
        assert (node, len(found)) == ("n1", len(victims))


def test_room_that_is_kept_for_a_pod_is_not_taken_by_one_that_matters_less() -> None:
    planner = a_planner([a_node("n", cpu="2")], [])
    important = planner.snapshot.pod_info(a_pod("important", cpu="2", priority=10))
    planner.snapshot.nominate(important, "n")
    small = planner.snapshot.pod_info(a_pod("small", cpu="1"))
    refused = planner.place(small, lambda: 0.0)
    assert isinstance(refused, Unplaced) and refused.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert isinstance(planner.place(important, lambda: 0.0), Placed)
    planner.snapshot.withdraw(important.uid)
    assert isinstance(planner.place(small, lambda: 0.0), Placed)


def test_no_further_pod_is_preempted_while_victims_end() -> None:
    victim = a_pod("p", cpu="1", node="n")
    victim["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    victim["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    planner = a_planner([a_node("n", cpu="1"), a_node("m", cpu="1")], [victim, a_pod("q", cpu="1", node="m")])
    pod = planner.snapshot.pod_info(a_pod("x", cpu="1", priority=10, nominated="n"))
    decided = planner.place(pod, lambda: 0.0)
    assert isinstance(decided, Unplaced) and decided.candidate is None
    assert decided.message.endswith("preemption: not eligible due to a terminating pod on the nominated node.")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=5), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(0, 5),
)
def test_the_pod_fits_once_the_victims_are_gone_and_every_victim_is_needed(
    nodes: list[list[tuple[int, int]]], cpu: int, priority: int
) -> None:
    pods = [
        a_pod(f"p{at}-{n}", cpu=str(size), node=f"n{at}", priority=importance)
        for at, on_node in enumerate(nodes)
        for n, (size, importance) in enumerate(on_node)
    ]
    planner = a_planner([a_node(f"n{at}", cpu="8") for at in range(len(nodes))], pods)
    incoming = planner.snapshot.pod_info(a_pod("x", cpu=str(cpu), priority=priority))
    decided = planner.place(incoming, lambda: 0.0)
    if isinstance(decided, Placed):
        return
    free = {
        at: 8 - sum(size for size, importance in on_node if importance >= priority) for at, on_node in enumerate(nodes)
    }
    if decided.candidate is None:
        assert all(room < cpu for room in free.values())
        return
    victims = decided.candidate.victims
    assert all(victim.priority < priority for victim in victims)
    node = planner.snapshot.nodes[decided.candidate.slot]
    left = node.cpu - node.used_cpu + sum(victim.shape.requests.cpu for victim in victims)
    assert left >= cpu * 1000
    assert all(left - victim.shape.requests.cpu < cpu * 1000 for victim in victims)
