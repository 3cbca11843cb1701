"""Decides on a node for a pod, or on the reasons why none fits. Pure; randomness is an argument.

The planner caches one table per shape, the most recently used ones. Constraints of a single pod that its shape does not
have (claims, named nodes, room reserved for other pods) are applied on top of its shape's table.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.scheduler import messages
from shoal.scheduler.config import Profile, SchedulerConfig
from shoal.scheduler.model import NOT_NAMED, Explanation, NodeExplanation, NodeRefusal
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.preemption import Candidate, Preemption
from shoal.scheduler.shapes import PodInfo, PodShape
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.table import NodeChoice, Table
from shoal.scheduler.volumes import Needs, VolumeState, VolumeStep

Random = Callable[[], float]
_NOTHING: Mapping[int, NodeRefusal] = {}


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod is placed on ``node``; ``steps`` must be done for its volumes before the binding."""

    node: str
    feasible: int
    looked_at: int
    ties: int
    scores: Mapping[str, int]
    steps: tuple[VolumeStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node fits. ``plugins`` are those that refused; ``candidate`` is the node for preemption."""

    message: str
    plugins: frozenset[str]
    candidate: Candidate | None = None
    forget_nomination: bool = False
    refusals: Mapping[NodeRefusal, int] = field(default_factory=dict)


class Planner:
    """Decides for one scheduler process."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig) -> None:
        self.snapshot = snapshot
        self.volumes = VolumeState()
        self.preemption = Preemption(snapshot)
        self._profiles: dict[str, Profile] = {profile.name: profile for profile in config.profiles}
        self._limit = config.tables
        self._tables: OrderedDict[PodShape, Table] = OrderedDict()  # least recently used first
        self._start = 0  # start of the next search, so that tables do not all start at the same nodes
        snapshot.on_new_terms = self._new_terms

    def profile(self, scheduler: str) -> Profile | None:
        return self._profiles.get(scheduler)

    # tables

    def table(self, shape: PodShape) -> Table:
        """The shape's table, up to date."""
        table = self._tables.get(shape)
        if table is not None and self._outdated(table):
            self._drop(shape)
            table = None
        if table is None:
            table = Table(shape, self._profiles[shape.scheduler], self.snapshot, start=self._start)
            self._tables[shape] = table
            while len(self._tables) > self._limit:
                self._drop(next(iter(self._tables)))
        else:
            self._tables.move_to_end(shape)
        table.refresh()
        return table

    def _outdated(self, table: Table) -> bool:
        generation = self.snapshot.selectors_generation.get(table.shape.namespace, 0)
        if generation != table.selectors_generation:
            if table.topology.stale:
                return True
            table.selectors_generation = generation
        return table.misfit

    def _drop(self, shape: PodShape) -> None:
        self._tables.pop(shape).close()

    def forget_tables(self) -> None:
        """Drop all tables after a change that they do not track."""
        for shape in tuple(self._tables):
            self._drop(shape)

    def _new_terms(self, other: PodShape) -> None:
        for shape, table in tuple(self._tables.items()):
            if table.topology.misses(other):
                self._drop(shape)

    # deciding

    def place(self, pod: PodInfo, random: Random) -> Placed | Unplaced:
        snapshot = self.snapshot
        if not snapshot.present:
            return Unplaced(messages.NO_NODES, frozenset())
        table = self.table(pod.shape)
        needs = self._needs(pod, table)
        if needs is not None and needs.fault is not None:
            return self._faulty(pod, needs.fault, table, random)
        choice = self._on_nominated(pod, table, needs, random)
        if choice is None:
            slots = self._named(pod, table)
            choice, excluded = (
                self._among(pod, table, needs, slots, random)
                if slots is not None
                else self._anywhere(pod, table, needs, random)
            )
            if choice is None:
                return self._unplaced(pod, table, needs, excluded, slots, random)
        node = snapshot.nodes[choice.slot]
        steps = (needs.steps(node) if needs is not None else None) or ()
        return Placed(
            node.name, choice.feasible, table.looked_at, choice.ties, table.scores_of(choice), tuple(steps)
        )  # fmt: skip

    def _needs(self, pod: PodInfo, table: Table) -> Needs | None:
        if not pod.claims or not table.profile.filters("VolumeBinding"):
            return None
        return self.volumes.needs(pod, self.snapshot.claims_in_use)

    def _named(self, pod: PodInfo, table: Table) -> list[int] | None:
        """The existing nodes among those that the pod's affinity names; None if it names none."""
        if pod.pinned is None or not table.profile.filters("NodeAffinity"):
            return None
        nodes = (self.snapshot.by_name.get(name) for name in sorted(pod.pinned))
        slots = [node.slot for node in nodes if node is not None and node.obj is not None]
        for slot in slots:
            table.ask(slot)
        return slots

    def _on_nominated(self, pod: PodInfo, table: Table, needs: Needs | None, random: Random) -> NodeChoice | None:
        """The nominated node of the pod, if the pod fits there now."""
        nominated = self.snapshot.nomination(pod)
        node = self.snapshot.by_name.get(nominated) if nominated else None
        if node is None or node.obj is None or (pod.pinned is not None and node.name not in pod.pinned):
            return None
        table.ask(node.slot)
        return self._among(pod, table, needs, [node.slot], random)[0]

    def _among(
        self, pod: PodInfo, table: Table, needs: Needs | None, slots: list[int], random: Random
    ) -> tuple[NodeChoice | None, Mapping[int, NodeRefusal]]:
        excluded = self._excluded(pod, table, needs, slots)
        return table.choose_among([slot for slot in slots if slot not in excluded], random), excluded

    def _anywhere(
        self, pod: PodInfo, table: Table, needs: Needs | None, random: Random
    ) -> tuple[NodeChoice | None, Mapping[int, NodeRefusal]]:
        enough = table.profile.feasible_wanted(self.snapshot.present)
        table.widen(enough)
        self._start = table.next_start
        if needs is not None and not needs.anywhere:
            table.widen(len(self.snapshot.nodes))
            return self._among(pod, table, needs, self._present(), random)
        excluded = self._excluded(pod, table, None, None) if self.snapshot.nominated else _NOTHING
        choice = table.choose(random, excluded)
        while not table.complete and (choice is None or choice.feasible < enough):
            table.widen(table.fitting + enough)
            excluded = self._excluded(pod, table, None, None) if self.snapshot.nominated else _NOTHING
            choice = table.choose(random, excluded)
        return choice, excluded

    def _present(self) -> list[int]:
        return [node.slot for node in self.snapshot.nodes if node.obj is not None]

    def _excluded(
        self, pod: PodInfo, table: Table, needs: Needs | None, slots: list[int] | None
    ) -> dict[int, NodeRefusal]:
        """Nodes that fit the shape but not this pod."""
        nodes, found = self.snapshot.nodes, {}
        if needs is not None and slots is not None:
            for slot in slots:
                refusal = needs.refuse(nodes[slot])
                if refusal is not None:
                    found[slot] = refusal
        for name, waiting in self.snapshot.nominated.items():
            node = self.snapshot.by_name.get(name)
            if node is None or node.obj is None or node.slot in found or table.refuses(node.slot):
                continue
            others = [each for each in waiting.values() if each.uid != pod.uid and each.priority >= pod.priority]
            refusal = self._with_others(table, node, others) if others else None
            if refusal is not None:
                found[node.slot] = refusal
        return found

    @staticmethod
    def _with_others(table: Table, node: NodeInfo, others: list[PodInfo]) -> NodeRefusal | None:
        """Whether the shape still fits together with the pods nominated to the node."""
        trial = node.trial()
        shapes: Counter[PodShape] = Counter()
        for each in others:
            if each.uid not in trial.pods:
                trial.add(each)
                shapes[each.shape] += 1
        return table.trial(node, trial, table.adjusted(shapes.items()))

    # nothing fits

    def _faulty(self, pod: PodInfo, fault: NodeRefusal, table: Table, random: Random) -> Unplaced:
        """The pod itself cannot be scheduled yet; no node was evaluated."""
        nodes = self.snapshot.present
        after = ""
        if pod.shape.preempts:
            after = f"preemption: {messages.histogram(nodes, {messages.NOT_HELPFUL: nodes})}"
        message = messages.unfit(nodes, {}, before=fault.reasons[0], after=after)
        return Unplaced(message, frozenset((fault.plugin,)), refusals={fault: nodes})

    def _unplaced(
        self,
        pod: PodInfo,
        table: Table,
        needs: Needs | None,
        excluded: Mapping[int, NodeRefusal],
        slots: list[int] | None,
        random: Random,
    ) -> Unplaced:
        if slots is None:
            refusals: Counter[NodeRefusal] = table.refusals(excluded)
        else:
            refusals = Counter(refusal for _, refusal in table.refusing(slots, excluded))
            others = self.snapshot.present - len(slots)
            if others:
                refusals[NOT_NAMED] += others
        potential = table.resolvable(slots, excluded)
        if needs is not None:
            potential = [slot for slot in potential if needs.refuse(self.snapshot.nodes[slot]) is None]
        room = self.preemption.find(pod, table, random, potential)
        message = messages.unfit(self.snapshot.present, refusals, after=f"preemption: {room.message}")
        plugins = frozenset(refusal.plugin for refusal in refusals)
        return Unplaced(message, plugins, room.candidate, room.forget_nomination, refusals)

    # explaining

    def explain(self, pod: PodInfo) -> Explanation:
        """Evaluate every node for the pod; the best first, then those that refuse. Decides nothing."""
        if pod.shape.scheduler not in self._profiles:
            return Explanation(str(pod.key), (), f"spec.schedulerName is {pod.shape.scheduler}: not one of ours")
        table = self.table(pod.shape)
        table.widen(len(self.snapshot.nodes))
        needs = self._needs(pod, table)
        if needs is not None and needs.fault is not None:
            nodes = tuple(NodeExplanation(node.name, needs.fault) for node in self.snapshot.nodes if node.obj)
            return Explanation(str(pod.key), nodes, needs.fault.reasons[0])
        excluded = self._excluded(pod, table, needs, self._present())
        named = self._named(pod, table)
        if named is not None:
            excluded |= {slot: NOT_NAMED for slot in self._present() if slot not in named}
        rows = table.explain(excluded)
        rows.sort(key=lambda row: (row.refusal is not None, -row.total, row.node))
        refusals = Counter(row.refusal for row in rows if row.refusal is not None)
        message = messages.unfit(len(rows), refusals) if rows and rows[0].refusal is not None else ""
        return Explanation(str(pod.key), tuple(rows), message or ("" if rows else messages.NO_NODES))
