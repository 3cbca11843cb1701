"""The table of a shape: which nodes it fits and how well, brought up to date by looking only at what changed.

Nodes that fit are in *groups*: nodes of a group have the same components of every score that is normalised over nodes
(taints, node affinity, spread, pod affinity), so these are worked out once per group. Inside a group nodes lie in
*cells* by the sum of the scores that are theirs alone. The best node is in the best cell of the best group; nodes of a
cell are equals, and one is drawn.

The search is limited as Kubernetes limits it: enough nodes that fit are enough. Each further pod of the shape widens
the search until all nodes are known.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shoal.scheduler.config import Profile
from shoal.scheduler.counters import Counter
from shoal.scheduler.local import Local
from shoal.scheduler.model import MAX_SCORE, NodeExplanation, Refusal
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import Shape
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.topology import Adjustment, Components, Topology

_WIDEN = 64  # nodes more with each pod, until all are known
_MANY_DIRTY = 64


class Group:
    """Nodes that differ only in their own score."""

    __slots__ = ("affinity", "best", "cells", "components", "disliked", "size")

    def __init__(self, disliked: int, affinity: int, components: Components) -> None:
        self.disliked = disliked
        self.affinity = affinity
        self.components = components
        self.cells: dict[int, list[int]] = {}  # score -> slots
        self.best = -1
        self.size = 0


GroupKey = tuple[int, int, Components]


Share = tuple[int, int, int, int]  # of the score: taints, node affinity, spread, pod affinity; weighted
Verdict = tuple[Group, Share]


@dataclass(frozen=True, slots=True)
class Choice:
    """The node that was chosen, how many were as good, and how many fit."""

    slot: int
    ties: int
    feasible: int
    share: Share


class Table:
    """All nodes as one shape sees them. ``refresh`` before asking."""

    def __init__(self, shape: Shape, profile: Profile, snapshot: Snapshot, *, start: int = 0) -> None:
        self.shape = shape
        self.profile = profile
        self._snapshot = snapshot
        self._local = Local(shape, profile)
        self.topology = Topology(shape, profile, snapshot)
        self.selectors_generation = snapshot.selectors_generation.get(shape.namespace, 0)
        self._seen = snapshot.generation
        self._images_seen = snapshot.images_generation
        size = len(snapshot.nodes)
        self._refusal: list[Refusal | None] = [None] * size
        self._group: list[Group | None] = [None] * size
        self._score = [0] * size
        self._position = [0] * size
        self._known = [False] * size  # asked, or not there
        # what only changes with the node itself: (its generation, refusal, disliked taints, affinity)
        self._fixed: list[tuple[int, Refusal | None, int, int] | None] = [None] * size
        self._todo = deque(range(start % size, size) if size else ())
        self._todo.extend(range(start % size if size else 0))
        self._groups: dict[GroupKey, Group] = {}
        self._tally: Tally[Refusal] = Tally()
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
        """Whether every node has been asked."""
        return not self._todo

    @property
    def next_start(self) -> int:
        """Where the search would go on: where the next table begins."""
        return self._todo[0] if self._todo else 0

    # keeping up

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
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
        """Ask more nodes until ``enough`` of them fit or all are asked, and a few more in any case."""
        todo, known = self._todo, self._known
        extra = _WIDEN if self.looked_at else 0
        while todo and (self.fitting < enough or extra > 0):
            slot = todo.popleft()
            if not known[slot]:
                known[slot] = True
                self._evaluate(slot)
                extra -= 1

    def ask(self, slot: int) -> None:
        """Make sure that one node is known."""
        if slot >= len(self._known):
            self._look_again(slot)
        if not self._known[slot]:
            self._known[slot] = True
            self._evaluate(slot)

    def _evaluate(self, slot: int) -> None:
        """Ask one node, and put it where it belongs."""
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
            group = self._groups[key] = Group(*key)
        self._put(slot, group)

    def _own_score(self, node: NodeInfo) -> int:
        score = self._local.score(node)
        if node.images:
            score += self._local.image_score(node, self._snapshot.images, self._snapshot.present)
        return score

    def _put(self, slot: int, group: Group) -> None:
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
        """Out of its group, or of those that refuse."""
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

    def choose(self, random: Callable[[], float], excluded: Mapping[int, Refusal]) -> Choice | None:
        """One of the best nodes, drawn by ``random``; None when none fits. ``excluded`` nodes do not."""
        out: list[tuple[int, Group]] = []
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

    def choose_among(self, slots: Iterable[int], random: Callable[[], float]) -> Choice | None:
        """The same over these nodes alone, which have been asked."""
        return _draw(self._verdicts(self._regrouped(slots)), random)

    def _regrouped(self, slots: Iterable[int]) -> Iterable[Group]:
        groups: dict[int, Group] = {}
        for slot in slots:
            origin = self._group[slot]
            if origin is None:
                continue
            group = groups.get(id(origin))
            if group is None:
                group = groups[id(origin)] = Group(origin.disliked, origin.affinity, origin.components)
            score = self._score[slot]
            group.cells.setdefault(score, []).append(slot)
            group.best = max(group.best, score)
            group.size += 1
        return groups.values()

    def _verdicts(self, groups: Iterable[Group]) -> list[Verdict]:
        """The groups that fit, with their normalised scores."""
        topology = self.topology
        fit = list(groups)
        if topology.filtering:
            refuse = topology.refuse
            fit = [group for group in fit if refuse(group.components) is None]
        return list(zip(fit, self._shares(fit), strict=True)) if fit else []

    def _shares(self, fit: list[Group]) -> list[Share]:
        """Taints, node affinity, spread and pod affinity: the weighted scores of groups that fit."""
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

    def refusals(self, excluded: Mapping[int, Refusal]) -> Tally[Refusal]:
        """How many nodes refuse for which reason."""
        found = Tally(self._tally)
        for group in self._groups.values():
            refusal = self.topology.refuse(group.components)
            if refusal is not None:
                found[refusal] += group.size
        for slot, refusal in excluded.items():
            excluded_from = self._group[slot] if slot < len(self._group) else None
            if excluded_from is not None:  # a node that refuses by itself is asked no further
                by_topology = self.topology.refuse(excluded_from.components)
                if by_topology is not None:
                    found[by_topology] -= 1
                found[refusal] += 1
        return +found

    def refusal_of(self, slot: int) -> Refusal | None:
        """Why a node that was asked does not fit; None when it does."""
        refusal = self._refusal[slot]
        if refusal is None:
            group = self._group[slot]
            if group is not None:
                refusal = self.topology.refuse(group.components)
        return refusal

    def refuses(self, slot: int) -> bool:
        """Whether a node that was asked refuses, by itself or by its topology."""
        return slot < len(self._known) and self.refusal_of(slot) is not None

    def refusing(self, slots: Iterable[int] | None, excluded: Mapping[int, Refusal]) -> Iterable[tuple[int, Refusal]]:
        """Nodes that refuse, of these or of all that were asked, with why."""
        nodes = self._snapshot.nodes
        for slot in range(len(self._known)) if slots is None else slots:
            if self._known[slot] and nodes[slot].obj is not None:
                refusal = self._refusal[slot] or excluded.get(slot) or self.refusal_of(slot)
                if refusal is not None:
                    yield slot, refusal

    def resolvable(self, slots: Iterable[int] | None, excluded: Mapping[int, Refusal]) -> list[int]:
        """Nodes whose refusal other pods may be the cause of."""
        if slots is None and not excluded and not self.topology.filtering:
            return [slot for slot, refusal in enumerate(self._refusal) if refusal is not None and refusal.resolvable]
        return [slot for slot, refusal in self.refusing(slots, excluded) if refusal.resolvable]

    def explain(self, excluded: Mapping[int, Refusal]) -> list[NodeExplanation]:
        """Every node that was asked, with its refusal or its weighted scores."""
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

    def scores_of(self, choice: Choice) -> dict[str, int]:
        """The weighted scores of a node that was just chosen, by plugin."""
        return self._named(choice.slot, choice.share)

    def _named(self, slot: int, share: Share) -> dict[str, int]:
        node = self._snapshot.nodes[slot]
        named = dict(zip(_SHARES, share, strict=True)) | self._local.scores(node)
        if node.images:
            named["ImageLocality"] = self._local.image_score(node, self._snapshot.images, self._snapshot.present)
        return {plugin: score for plugin, score in named.items() if score}

    def trial(self, node: NodeInfo, pods: NodeInfo, adjust: Adjustment) -> Refusal | None:
        """Whether the shape would fit if the node had the pods of its copy ``pods`` and counts differed so."""
        return (
            self._local.refuse_node(node)
            or self._local.refuse_pods(pods)
            or self.topology.refuse(self.topology.components(node), adjust)
        )

    def adjusted(self, shapes: Iterable[tuple[Shape, int]]) -> dict[Counter, int]:
        """How counts that matter here would differ with so many pods more of each shape."""
        mine = {term.counter for term in self.topology.terms}
        found: dict[Counter, int] = {}
        for shape, pods in shapes:
            for counter, amount in shape.subscriptions:
                if counter in mine:
                    found[counter] = found.get(counter, 0) + pods * amount
        return found


_SHARES = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")


def _draw(verdicts: list[Verdict], random: Callable[[], float]) -> Choice | None:
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
            return Choice(cell[at], ties, sum(each.size for each, _ in verdicts), share)
        at -= len(cell)
    raise AssertionError("the draw is within the number of ties")
