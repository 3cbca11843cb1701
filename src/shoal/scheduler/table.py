"""The table of a shape: the nodes it fits and their scores, updated only for changed nodes.

Feasible nodes are in *groups*: nodes of a group have the same components of every score that is normalised over nodes
(taints, node affinity, spread, pod affinity), so these are computed once per group. Inside a group, nodes are in
*cells* by the sum of their node-local scores. The best node is in the best cell of the best group; nodes of a cell are
equal, and one is drawn at random.

As in Kubernetes, the search stops when enough nodes fit. Each further pod of the shape widens the search until all
nodes are evaluated.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shoal.scheduler.config import Profile
from shoal.scheduler.counters import DomainCounter
from shoal.scheduler.local import NodeLocalPlugins
from shoal.scheduler.model import MAX_SCORE, NodeExplanation, NodeRefusal
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodShape
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.topology import Adjustment, Components, ShapeTopology

_WIDEN = 64  # additional nodes per pod, until all are evaluated
_MANY_DIRTY = 64


class NodeGroup:
    """Nodes that differ only in their node-local score."""

    __slots__ = ("affinity", "best", "cells", "components", "disliked", "size")

    def __init__(self, disliked: int, affinity: int, components: Components) -> None:
        self.disliked = disliked
        self.affinity = affinity
        self.components = components
        self.cells: dict[int, list[int]] = {}  # score -> slots
        self.best = -1
        self.size = 0


GroupKey = tuple[int, int, Components]


Share = tuple[int, int, int, int]  # weighted parts of the score: taints, node affinity, spread, pod affinity
Verdict = tuple[NodeGroup, Share]


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The chosen node, the number of equally good nodes, and the number of feasible nodes."""

    slot: int
    ties: int
    feasible: int
    share: Share


class Table:
    """All nodes evaluated for one shape. Call ``refresh`` before reading."""

    def __init__(self, shape: PodShape, profile: Profile, snapshot: Snapshot, *, start: int = 0) -> None:
        self.shape = shape
        self.profile = profile
        self._snapshot = snapshot
        self._local = NodeLocalPlugins(shape, profile)
        self.topology = ShapeTopology(shape, profile, snapshot)
        self.selectors_generation = snapshot.selectors_generation.get(shape.namespace, 0)
        self._seen = snapshot.generation
        self._images_seen = snapshot.images_generation
        size = len(snapshot.nodes)
        self._refusal: list[NodeRefusal | None] = [None] * size
        self._group: list[NodeGroup | None] = [None] * size
        self._score = [0] * size
        self._position = [0] * size
        self._known = [False] * size  # evaluated, or not existing
        # results that depend only on the node itself: (its generation, refusal, untolerated taints, affinity)
        self._fixed: list[tuple[int, NodeRefusal | None, int, int] | None] = [None] * size
        self._todo = deque(range(start % size, size) if size else ())
        self._todo.extend(range(start % size if size else 0))
        self._groups: dict[GroupKey, NodeGroup] = {}
        self._tally: Tally[NodeRefusal] = Tally()
        self.fitting = 0  # nodes in groups
        self._weight_taints = profile.weight("TaintToleration")
        self._weight_affinity = profile.weight("NodeAffinity") if shape.preferred_nodes else 0
        self._weight_spread = profile.weight("PodTopologySpread") if self.topology.soft else 0
        self._weight_likes = profile.weight("InterPodAffinity") if self.topology.likes else 0

    def close(self) -> None:
        self.topology.close()

    @property
    def looked_at(self) -> int:
        return self.fitting + self._tally.total()

    @property
    def complete(self) -> bool:
        """Whether every node has been evaluated."""
        return not self._todo

    @property
    def next_start(self) -> int:
        """Where the search would continue; the next table starts there."""
        return self._todo[0] if self._todo else 0

    # updating

    def refresh(self) -> None:
        """Re-evaluate the nodes that changed."""
        snapshot = self._snapshot
        if self._seen != snapshot.generation:
            seen, changed = self._seen, snapshot.changed
            for slot in reversed(changed):
                if changed[slot] <= seen:
                    break
                self._look_again(slot)
            self._seen = snapshot.generation
        dirty = self.topology.dirty
        if dirty:
            for slot in dirty:
                if slot < len(self._known) and self._group[slot] is not None:
                    self._evaluate(slot)
            dirty.clear()
        if self._images_seen != snapshot.images_generation:
            self._images_seen = snapshot.images_generation
            if any(name in snapshot.images for name in self.shape.images):
                for slot, group in enumerate(self._group):
                    if group is not None:
                        self._evaluate(slot)

    @property
    def misfit(self) -> bool:
        return len(self.topology.dirty) > _MANY_DIRTY and self.topology.misfit

    def _look_again(self, slot: int) -> None:
        while slot >= len(self._known):
            self._todo.append(len(self._known))
            self._known.append(False)
            self._refusal.append(None)
            self._group.append(None)
            self._score.append(0)
            self._position.append(0)
            self._fixed.append(None)
        if self._known[slot]:
            self._evaluate(slot)

    def widen(self, enough: int) -> None:
        """Evaluate more nodes until ``enough`` fit or all are evaluated, and always a few more."""
        todo, known = self._todo, self._known
        extra = _WIDEN if self.looked_at else 0
        while todo and (self.fitting < enough or extra > 0):
            slot = todo.popleft()
            if not known[slot]:
                known[slot] = True
                self._evaluate(slot)
                extra -= 1

    def ask(self, slot: int) -> None:
        """Evaluate one node if it has not been."""
        if slot >= len(self._known):
            self._look_again(slot)
        if not self._known[slot]:
            self._known[slot] = True
            self._evaluate(slot)

    def _evaluate(self, slot: int) -> None:
        """Evaluate one node and put it into its group or the refusals."""
        self._take(slot)
        node = self._snapshot.nodes[slot]
        if node.obj is None:
            return
        fixed = self._fixed[slot]
        if fixed is None or fixed[0] != node.object_generation:
            local = self._local
            fixed = self._fixed[slot] = (
                node.object_generation, local.refuse_node(node), local.taints_disliked(node),
                local.affinity_weight(node),
            )  # fmt: skip
        refusal = fixed[1] or self._local.refuse_pods(node)
        if refusal is not None:
            self._refusal[slot] = refusal
            self._tally[refusal] += 1
            return
        self._score[slot] = self._own_score(node)
        key = (fixed[2], fixed[3], self.topology.components(node) if self.topology.terms else ())
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = NodeGroup(*key)
        self._put(slot, group)

    def _own_score(self, node: NodeInfo) -> int:
        score = self._local.score(node)
        if node.images:
            score += self._local.image_score(node, self._snapshot.images, self._snapshot.present)
        return score

    def _put(self, slot: int, group: NodeGroup) -> None:
        score = self._score[slot]
        cell = group.cells.get(score)
        if cell is None:
            cell = group.cells[score] = []
            if score > group.best:
                group.best = score
        self._position[slot] = len(cell)
        cell.append(slot)
        group.size += 1
        self._group[slot] = group
        self.fitting += 1

    def _take(self, slot: int) -> None:
        """Remove a node from its group or from the refusals."""
        refusal = self._refusal[slot]
        if refusal is not None:
            self._refusal[slot] = None
            left = self._tally[refusal] - 1
            if left:
                self._tally[refusal] = left
            else:
                del self._tally[refusal]
            return
        group = self._group[slot]
        if group is None:
            return
        self._group[slot] = None
        score, at = self._score[slot], self._position[slot]
        cell = group.cells[score]
        last = cell.pop()
        if last != slot:
            cell[at] = last
            self._position[last] = at
        group.size -= 1
        self.fitting -= 1
        if not cell:
            del group.cells[score]
            if score == group.best:
                group.best = max(group.cells, default=-1)
                if not group.size:
                    del self._groups[group.disliked, group.affinity, group.components]

    # choosing

    def choose(self, random: Callable[[], float], excluded: Mapping[int, NodeRefusal]) -> NodeChoice | None:
        """One of the best nodes, drawn with ``random``; None if none fits. ``excluded`` nodes are skipped."""
        out: list[tuple[int, NodeGroup]] = []
        for slot in excluded:
            group = self._group[slot] if slot < len(self._group) else None
            if group is not None:
                self._take(slot)
                out.append((slot, group))
        try:
            return _draw(self._verdicts(self._groups.values()), random)
        finally:
            for slot, group in out:
                self._groups[group.disliked, group.affinity, group.components] = group
                self._put(slot, group)

    def choose_among(self, slots: Iterable[int], random: Callable[[], float]) -> NodeChoice | None:
        """Like ``choose``, among the given nodes, which must have been evaluated."""
        return _draw(self._verdicts(self._regrouped(slots)), random)

    def _regrouped(self, slots: Iterable[int]) -> Iterable[NodeGroup]:
        groups: dict[int, NodeGroup] = {}
        for slot in slots:
            origin = self._group[slot]
            if origin is None:
                continue
            group = groups.get(id(origin))
            if group is None:
                group = groups[id(origin)] = NodeGroup(origin.disliked, origin.affinity, origin.components)
            score = self._score[slot]
            group.cells.setdefault(score, []).append(slot)
            group.best = max(group.best, score)
            group.size += 1
        return groups.values()

    def _verdicts(self, groups: Iterable[NodeGroup]) -> list[Verdict]:
        """The groups that fit, with their normalised scores."""
        topology = self.topology
        fit = list(groups)
        if topology.filtering:
            refuse = topology.refuse
            fit = [group for group in fit if refuse(group.components) is None]
        return list(zip(fit, self._shares(fit), strict=True)) if fit else []

    def _shares(self, fit: list[NodeGroup]) -> list[Share]:
        """The weighted scores of feasible groups: taints, node affinity, spread and pod affinity."""
        topology = self.topology
        most_disliked = max(group.disliked for group in fit)
        most_affinity = max(group.affinity for group in fit)
        spread = [0] * len(fit)
        if self._weight_spread:
            spread = topology.spread_scores([(group.components, group.size) for group in fit])
        likes = [0] * len(fit)
        if self._weight_likes:
            raw = [topology.likings(group.components) for group in fit]
            least, width = min(raw), max(raw) - min(raw)
            if width:
                likes = [int(MAX_SCORE * ((value - least) / width)) for value in raw]
        return [
            (
                self._weight_taints
                * (MAX_SCORE - (MAX_SCORE * group.disliked // most_disliked if most_disliked else 0)),
                self._weight_affinity * (MAX_SCORE * group.affinity // most_affinity if most_affinity else 0),
                self._weight_spread * by_spread,
                self._weight_likes * by_likes,
            )
            for group, by_spread, by_likes in zip(fit, spread, likes, strict=True)
        ]

    # why

    def refusals(self, excluded: Mapping[int, NodeRefusal]) -> Tally[NodeRefusal]:
        """The number of nodes per refusal."""
        found = Tally(self._tally)
        for group in self._groups.values():
            refusal = self.topology.refuse(group.components)
            if refusal is not None:
                found[refusal] += group.size
        for slot, refusal in excluded.items():
            excluded_from = self._group[slot] if slot < len(self._group) else None
            if excluded_from is not None:  # topology is not checked for a node that refuses by itself
                by_topology = self.topology.refuse(excluded_from.components)
                if by_topology is not None:
                    found[by_topology] -= 1
                found[refusal] += 1
        return +found

    def refusal_of(self, slot: int) -> NodeRefusal | None:
        """Why an evaluated node does not fit; None if it does."""
        refusal = self._refusal[slot]
        if refusal is None:
            group = self._group[slot]
            if group is not None:
                refusal = self.topology.refuse(group.components)
        return refusal

    def refuses(self, slot: int) -> bool:
        """Whether an evaluated node refuses, by itself or by its topology."""
        return slot < len(self._known) and self.refusal_of(slot) is not None

    def refusing(
        self, slots: Iterable[int] | None, excluded: Mapping[int, NodeRefusal]
    ) -> Iterable[tuple[int, NodeRefusal]]:
        """Refusing nodes with their refusals, among the given or all evaluated nodes."""
        nodes = self._snapshot.nodes
        for slot in range(len(self._known)) if slots is None else slots:
            if self._known[slot] and nodes[slot].obj is not None:
                refusal = self._refusal[slot] or excluded.get(slot) or self.refusal_of(slot)
                if refusal is not None:
                    yield slot, refusal

    def resolvable(self, slots: Iterable[int] | None, excluded: Mapping[int, NodeRefusal]) -> list[int]:
        """Nodes whose refusal may be caused by other pods."""
        if slots is None and not excluded and not self.topology.filtering:
            return [slot for slot, refusal in enumerate(self._refusal) if refusal is not None and refusal.resolvable]
        return [slot for slot, refusal in self.refusing(slots, excluded) if refusal.resolvable]

    def explain(self, excluded: Mapping[int, NodeRefusal]) -> list[NodeExplanation]:
        """Every evaluated node, with its refusal or its weighted scores."""
        found: list[NodeExplanation] = []
        fits: list[int] = []
        for slot, node in enumerate(self._snapshot.nodes):
            if slot >= len(self._known) or not self._known[slot] or node.obj is None:
                continue
            refusal = self._refusal[slot]
            if refusal is None:
                refusal = excluded.get(slot) or self.refusal_of(slot)
            if refusal is not None:
                found.append(NodeExplanation(node.name, refusal))
            else:
                fits.append(slot)
        groups = list(self._regrouped(fits))
        for group, share in zip(groups, self._shares(groups) if groups else (), strict=True):
            for slots in group.cells.values():
                found += (
                    NodeExplanation(self._snapshot.nodes[slot].name, None, self._named(slot, share)) for slot in slots
                )
        return found

    def scores_of(self, choice: NodeChoice) -> dict[str, int]:
        """The weighted scores of the node just chosen, by plugin."""
        return self._named(choice.slot, choice.share)

    def _named(self, slot: int, share: Share) -> dict[str, int]:
        node = self._snapshot.nodes[slot]
        named = dict(zip(_SHARES, share, strict=True)) | self._local.scores(node)
        if node.images:
            named["ImageLocality"] = self._local.image_score(node, self._snapshot.images, self._snapshot.present)
        return {plugin: score for plugin, score in named.items() if score}

    def trial(self, node: NodeInfo, pods: NodeInfo, adjust: Adjustment) -> NodeRefusal | None:
        """Whether the shape would fit with the pods of the trial copy ``pods`` and the adjusted counts."""
        return (
            self._local.refuse_node(node)
            or self._local.refuse_pods(pods)
            or self.topology.refuse(self.topology.components(node), adjust)
        )

    def adjusted(self, shapes: Iterable[tuple[PodShape, int]]) -> dict[DomainCounter, int]:
        """The changes of this table's counts if each shape had the given number of pods more."""
        mine = {term.counter for term in self.topology.terms}
        found: dict[DomainCounter, int] = {}
        for shape, pods in shapes:
            for counter, amount in shape.subscriptions:
                if counter in mine:
                    found[counter] = found.get(counter, 0) + pods * amount
        return found


_SHARES = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")


def _draw(verdicts: list[Verdict], random: Callable[[], float]) -> NodeChoice | None:
    if not verdicts:
        return None
    totals = [sum(share) + group.best for group, share in verdicts]
    best = max(totals)
    winners = [verdict for verdict, total in zip(verdicts, totals, strict=True) if total == best]
    ties = sum(len(group.cells[group.best]) for group, _ in winners)
    at = min(int(random() * ties), ties - 1)
    for group, share in winners:
        cell = group.cells[group.best]
        if at < len(cell):
            return NodeChoice(cell[at], ties, sum(each.size for each, _ in verdicts), share)
        at -= len(cell)
    raise AssertionError("the draw is within the number of ties")
