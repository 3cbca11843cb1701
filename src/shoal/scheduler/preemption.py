"""Preemption: which pods of lower priority to delete so that a pod fits, and on which node this does the least harm.

Pure: candidates are computed on copies of nodes. Pods of a shape share the work: the result for a node is cached until
the node changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.kube.labels import Selector
from shoal.scheduler import messages
from shoal.scheduler.model import NodeRefusal
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodInfo, PodShape
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.table import Table

_MIN_CANDIDATES = 100
_CANDIDATE_PERCENTAGE = 10
_LIFT = 2**31  # added to priorities so that all are positive


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str]  # names of pods whose disruption is already counted


Harm = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, its victims with the most important first, and the number of violated budgets."""

    slot: int
    victims: tuple[PodInfo, ...]
    violations: int
    harm: Harm  # violations, highest priority, sum of priorities, victims: compared in this order
    started_at: str  # start time of the first of the most important victims; later is better


def _candidate(slot: int, victims: Sequence[PodInfo], violations: int) -> Candidate:
    highest = victims[0].priority
    total = sum(victim.priority + _LIFT for victim in victims)
    started_at = min(victim.started_at for victim in victims if victim.priority == highest)
    return Candidate(slot, tuple(victims), violations, (violations, highest, total, len(victims)), started_at)


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The result of preemption: a candidate, or why there is none."""

    candidate: Candidate | None
    message: str
    forget_nomination: bool = False


class Preemption:
    """Finds victims. ``budgets`` are those of the whole cluster; ``budgets_generation`` increases when they change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.budgets: tuple[DisruptionBudget, ...] = ()
        self.budgets_generation = 0
        # for one shape at a time: the inputs of a node's result, and the result
        self._remembered: dict[int, tuple[tuple[int, int, tuple[str, ...]], Candidate | NodeRefusal]] = {}
        self._shape: PodShape | None = None
        self._offset = 0

    def find(
        self, pod: PodInfo, table: Table, random: Callable[[], float], potential: Sequence[int]
    ) -> PreemptionResult:
        """The best candidate among ``potential`` nodes, that is nodes whose refusal may be caused by other pods."""
        why_not = self._ineligible(pod, table)
        if why_not:
            return PreemptionResult(None, why_not)
        wanted = max(len(potential) * _CANDIDATE_PERCENTAGE // 100, _MIN_CANDIDATES)
        if self._shape is not pod.shape:
            self._shape, self._remembered, self._offset = pod.shape, {}, int(random() * max(len(potential), 1))
        start = self._offset % max(len(potential), 1)
        found: list[Candidate] = []
        refusals: Counter[str] = Counter()
        for slot in (*potential[start:], *potential[:start]):
            result = self._on_node(pod, table, self._snapshot.nodes[slot])
            if isinstance(result, Candidate):
                found.append(result)
                if len(found) >= wanted:
                    break
            else:
                refusals.update(result.reasons)
        if found:
            best = _least_harm(found)
            name = self._snapshot.nodes[best.slot].name
            text = f"found a potential placement for pod on node {name}, preempting {len(best.victims)} victims"
            return PreemptionResult(best, text)
        nodes = self._snapshot.present
        others = nodes - len(potential)
        if others:
            refusals[messages.NOT_HELPFUL] += others
        return PreemptionResult(None, messages.histogram(nodes, refusals), forget_nomination=True)

    def _ineligible(self, pod: PodInfo, table: Table) -> str:
        if not pod.shape.preempts:
            return "not eligible due to preemptionPolicy=Never."
        node = self._snapshot.by_name.get(self._snapshot.nomination(pod))
        if node is None or node.obj is None:
            return ""
        refusal = table.refusal_of(node.slot)
        if refusal is not None and not refusal.resolvable:
            return ""
        if any(each.terminating and each.priority < pod.priority and _preempted(each) for each in node.pods.values()):
            return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _on_node(self, pod: PodInfo, table: Table, node: NodeInfo) -> Candidate | NodeRefusal:
        nominated = self._snapshot.nominated.get(node.name)
        if table.topology.filtering or (nominated is not None and pod.uid in nominated):
            return self._work_out(pod, table, node)
        state = (node.generation, self.budgets_generation, tuple(nominated) if nominated is not None else ())
        known = self._remembered.get(node.slot)
        if known is not None and known[0] == state:
            return known[1]
        result = self._work_out(pod, table, node)
        self._remembered[node.slot] = (state, result)
        return result

    def _work_out(self, pod: PodInfo, table: Table, node: NodeInfo) -> Candidate | NodeRefusal:
        """Remove all pods of lower priority, then restore as many as fit, the most important first."""
        possible = [each for each in node.pods.values() if each.priority < pod.priority]
        if not possible:
            return _NO_VICTIMS
        trial = node.trial()
        nominated = [
            each for each in self._snapshot.nominated.get(node.name, {}).values()
            if each.uid != pod.uid and each.priority >= pod.priority and each.uid not in node.pods
        ]  # fmt: skip
        changes: Counter[PodShape] = Counter()
        for each in nominated:
            trial.add(each)
            changes[each.shape] += 1
        for each in possible:
            trial.remove(each)
            changes[each.shape] -= 1
        refusal = table.trial(node, trial, table.adjusted(changes.items()))
        if refusal is not None:
            return refusal
        possible.sort(key=_importance)
        violating, others = self._split(possible)
        victims: list[PodInfo] = []
        violations = 0
        for each, violates in (*((each, True) for each in violating), *((each, False) for each in others)):
            trial.add(each)
            changes[each.shape] += 1
            if table.trial(node, trial, table.adjusted(changes.items())) is not None:
                trial.remove(each)
                changes[each.shape] -= 1
                victims.append(each)
                violations += violates
        victims.sort(key=_importance)
        return _candidate(node.slot, victims, violations) if victims else _NO_VICTIMS

    def _split(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """The pods whose deletion would violate a budget, and the rest."""
        if not self.budgets:
            return [], list(pods)
        left = [budget.allowed for budget in self.budgets]
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (violating if self._violates(pod, left) else others).append(pod)
        return violating, others

    def _violates(self, pod: PodInfo, left: list[int]) -> bool:
        labels = pod.shape.labels
        if not labels:
            return False
        for at, budget in enumerate(self.budgets):
            if budget.namespace != pod.key.namespace or budget.selector.everything:
                continue
            if not budget.selector.matches(labels) or pod.key.name in budget.disrupted:
                continue
            left[at] -= 1
            if left[at] < 0:
                return True
        return False


_NO_VICTIMS = NodeRefusal("DefaultPreemption", (messages.NO_VICTIMS,))


def _importance(pod: PodInfo) -> tuple[int, str]:
    return -pod.priority, pod.started_at


def _preempted(pod: PodInfo) -> bool:
    conditions = (pod.obj.get("status") or {}).get("conditions") or ()
    return any(
        each.get("type") == "DisruptionTarget" and each.get("reason") == "PreemptionByScheduler" for each in conditions
    )


def _least_harm(candidates: Sequence[Candidate]) -> Candidate:
    least = min(candidate.harm for candidate in candidates)
    equal = [candidate for candidate in candidates if candidate.harm == least]
    return max(equal, key=lambda candidate: candidate.started_at)  # the first of equal candidates
