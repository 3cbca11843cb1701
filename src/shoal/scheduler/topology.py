"""Topology spread and pod (anti-)affinity, computed from counts per domain.

``ShapeTopology`` holds the *terms* of one shape, each a query with its counter. For a node, a term has a *component*:
the node's domain, or only its count if there are about as many domains as nodes. Nodes with equal components get the
same result, so a table groups them and computes it once per group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import floor, log
from typing import Any

from shoal.kube.labels import Selector, from_set
from shoal.scheduler.config import Profile
from shoal.scheduler.counters import DomainCounter
from shoal.scheduler.model import (
    HOSTNAME,
    MAX_SCORE,
    OTHERS_ANTI_AFFINITY,
    POD_AFFINITY,
    POD_ANTI_AFFINITY,
    SPREAD,
    SPREAD_LABEL,
    NodeRefusal,
)
from shoal.scheduler.nodematch import untolerated
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodShape, PodTerm, SpreadConstraint, merged
from shoal.scheduler.snapshot import Snapshot

Component = str | int | None  # None: the node lacks the label
Components = tuple[Component, ...]
Adjustment = Mapping[DomainCounter, int]  # changes to the counts of the node's domains
_UNCHANGED: Adjustment = {}


class TermRole(Enum):
    """The kinds of terms, in filter order."""

    SPREAD = 0
    AFFINITY = 1
    ANTI_AFFINITY = 2
    OTHERS_ANTI_AFFINITY = 3
    LIKES = 4
    SOFT_SPREAD = 5


class By(Enum):
    """How a term distinguishes nodes."""

    DOMAIN = 0
    COUNT = 1  # of the domain
    NODE = 2  # the count on the node alone


class Term:
    """One query: the number of matching pods in a node's domain."""

    __slots__ = ("by", "counter", "key", "max_skew", "min_domains", "role", "self_match")

    def __init__(
        self, role: TermRole, key: str, counter: DomainCounter, by: By, constraint: SpreadConstraint | None = None
    ) -> None:
        self.role = role
        self.key = key
        self.counter = counter
        self.by = by
        self.max_skew = constraint.max_skew if constraint else 0
        self.min_domains = constraint.min_domains if constraint else 1
        self.self_match = 0

    def component(self, node: NodeInfo) -> Component:
        domain = node.labels.get(self.key)
        if domain is None:
            return None
        if self.by is By.DOMAIN:
            return domain
        counter = self.counter
        if self.by is By.NODE:
            return counter.per_node.get(node.slot, 0)
        # a node that does not count is not notified of changes in its domain
        return counter.counts[domain] if node.slot in counter.domains else domain

    def count(self, component: str | int) -> int:
        return component if isinstance(component, int) else self.counter.counts.get(str(component), 0)


def default_selector(shape: PodShape, snapshot: Snapshot) -> Selector:
    """The selector of pods that are spread together with the shape's, from its services and its owner."""
    found = [from_set(each) for each in snapshot.services_of(shape)]
    owner = snapshot.owner_selector(shape)
    if owner is not None:
        found.append(owner)
    return merged(*found)


def _constraints(shape: PodShape, profile: Profile, selector: Selector) -> tuple[SpreadConstraint, ...]:
    if shape.spread:
        return shape.spread
    if selector.everything:
        return ()
    return tuple(
        SpreadConstraint(each.topology_key, each.max_skew, each.when_unsatisfiable == "DoNotSchedule", selector)
        for each in profile.spread_defaults
    )


class ShapeTopology:
    """The terms of one shape under one profile. ``dirty`` collects slots whose components have changed."""

    def __init__(self, shape: PodShape, profile: Profile, snapshot: Snapshot) -> None:
        self.shape = shape
        self._profile = profile
        self._snapshot = snapshot
        self.selector = default_selector(shape, snapshot)
        self.dirty: set[int] = set()
        # whether a node that lacks a key of a soft constraint is left out of spreading altogether
        self.all_keys = bool(shape.spread) or not profile.system_spread
        self._affine_to_itself = False
        self.terms: list[Term] = []
        self._spread_terms()
        self._affinity_terms()
        self.filtering = [(at, term) for at, term in enumerate(self.terms) if term.role.value <= 3]
        self.soft = [(at, term) for at, term in enumerate(self.terms) if term.role is TermRole.SOFT_SPREAD]
        self.likes = [(at, term) for at, term in enumerate(self.terms) if term.role is TermRole.LIKES]

    def close(self) -> None:
        """Release the counters; the object must not be used afterwards."""
        for term in self.terms:
            term.counter.unwatch(self.dirty)
            self._snapshot.release(term.counter)
        self.terms = []

    @property
    def stale(self) -> bool:
        """Whether services or owners changed, so that the default selector may differ."""
        return not self.shape.spread and default_selector(self.shape, self._snapshot) != self.selector

    @property
    def misfit(self) -> bool:
        """Whether domains distinguished by count have become large, so that each change is expensive."""
        return any(term.by is By.COUNT and not term.counter.small_domains for term in self.terms)

    def misses(self, other: PodShape) -> bool:
        """Whether terms of another shape's pods apply to this shape through a topology that is not counted yet."""
        known = {(term.role, term.key) for term in self.terms}
        return any((role, key) not in known for role, key in self._concerns(other))

    # which terms there are

    def _spread_terms(self) -> None:
        shape, profile = self.shape, self._profile
        constraints = _constraints(shape, profile, self.selector)
        hard = tuple(each for each in constraints if each.hard) if profile.filters("PodTopologySpread") else ()
        soft = tuple(each for each in constraints if not each.hard) if profile.weight("PodTopologySpread") else ()
        for group, role in ((hard, TermRole.SPREAD), (soft, TermRole.SOFT_SPREAD)):
            keys = tuple(each.topology_key for each in group) if role is TermRole.SPREAD or self.all_keys else ()
            for constraint in group:
                counter = self._spread_counter(constraint, keys)
                if role is TermRole.SOFT_SPREAD:
                    by = By.NODE if constraint.topology_key == HOSTNAME else By.DOMAIN
                else:
                    by = By.COUNT if counter.small_domains else By.DOMAIN
                term = self._add(role, constraint.topology_key, counter, by, constraint)
                term.self_match = int(constraint.selector.matches(shape.labels))

    def _spread_counter(self, constraint: SpreadConstraint, keys: tuple[str, ...]) -> DomainCounter:
        shape, key, selector = self.shape, constraint.topology_key, constraint.selector
        namespace, matches = shape.namespace, selector.matches
        match = shape.node_match if constraint.honor_affinity else None
        tolerations = shape.tolerations if constraint.honor_taints else None
        which = shape.node_signature if match is not None or tolerations is not None else b""
        name = ("spread", namespace, selector, key, keys, match is not None, tolerations is not None, which)

        def delta(other: PodShape) -> int:
            # a selector that selects everything counts nothing, as in Kubernetes
            return int(not selector.everything and other.namespace == namespace and matches(other.labels))

        def domain_of(node: NodeInfo) -> str | None:
            labels = node.labels
            if any(each not in labels for each in keys):
                return None
            if match is not None and not match(labels, node.name):
                return None
            if tolerations is not None and untolerated(node.taints, tolerations):
                return None
            return labels.get(key)

        return self._snapshot.counter(
            name, lambda: DomainCounter(
                name, key, delta, domain_of, namespaces=frozenset((namespace,)), ignores_terminating=True
            ),
        )  # fmt: skip

    def _affinity_terms(self) -> None:
        shape, terms = self.shape, self.shape.terms
        filters, likes = self._profile.filters("InterPodAffinity"), bool(self._profile.weight("InterPodAffinity"))
        wanted: dict[tuple[TermRole, str], None] = {}
        if filters:
            wanted |= {(TermRole.AFFINITY, each.topology_key): None for each in terms.affinity}
            wanted |= {(TermRole.ANTI_AFFINITY, each.topology_key): None for each in terms.anti_affinity}
        if likes:
            wanted |= {(TermRole.LIKES, each.topology_key): None for each in terms.likes}
        for other in self._snapshot.shapes_with_terms:
            wanted |= dict.fromkeys(self._concerns(other))
        for role, key in sorted(wanted, key=lambda each: (each[0].value, each[1])):
            counter = self._affinity_counter(role, key)
            self._add(role, key, counter, By.COUNT if counter.small_domains else By.DOMAIN)
        self._affine_to_itself = bool(terms.affinity) and all(
            self._snapshot.term_matches(each, shape) for each in terms.affinity
        )

    def _concerns(self, other: PodShape) -> Iterable[tuple[TermRole, str]]:
        """The topologies through which terms of another shape's pods apply to this shape."""
        matches, shape, terms = self._snapshot.term_matches, self.shape, other.terms
        if self._profile.filters("InterPodAffinity"):
            for each in terms.anti_affinity:
                if matches(each, shape):
                    yield TermRole.OTHERS_ANTI_AFFINITY, each.topology_key
        if self._profile.weight("InterPodAffinity"):
            hard = terms.affinity if self._profile.hard_pod_affinity_weight else ()
            for each in (*terms.likes, *hard):
                if matches(each, shape):
                    yield TermRole.LIKES, each.topology_key

    def _affinity_counter(self, role: TermRole, key: str) -> DomainCounter:
        shape, terms = self.shape, self.shape.terms
        matches = self._snapshot.term_matches
        own: tuple[PodTerm, ...] = ()
        about: Any = None  # fields of the shape that other pods' terms match
        weight = self._profile.hard_pod_affinity_weight

        def by_others(other: PodShape) -> int:
            return sum(each.topology_key == key and matches(each, shape) for each in other.terms.anti_affinity)

        def by_likes(other: PodShape) -> int:
            total = sum(each.weight for each in own if matches(each, other))
            if other.terms:
                theirs = other.terms.likes
                total += sum(e.weight for e in theirs if e.topology_key == key and matches(e, shape))
                total += weight * sum(e.topology_key == key and matches(e, shape) for e in other.terms.affinity)
            return total

        if role is TermRole.AFFINITY:
            own = terms.affinity

            def delta(other: PodShape) -> int:
                return int(all(matches(each, other) for each in own))
        elif role is TermRole.ANTI_AFFINITY:
            own = tuple(each for each in terms.anti_affinity if each.topology_key == key)

            def delta(other: PodShape) -> int:
                return sum(matches(each, other) for each in own)
        else:
            about = (shape.namespace, tuple(sorted(shape.labels.items())))
            if role is TermRole.LIKES:
                own = tuple(each for each in terms.likes if each.topology_key == key)
            delta = by_likes if role is TermRole.LIKES else by_others
        name = (role, key, own, about, weight if role is TermRole.LIKES else 0)
        return self._snapshot.counter(name, lambda: DomainCounter(name, key, delta, lambda node: node.labels.get(key)))

    def _add(
        self, role: TermRole, key: str, counter: DomainCounter, by: By, constraint: SpreadConstraint | None = None
    ) -> Term:
        term = Term(role, key, counter, by, constraint)
        if by is By.COUNT:
            counter.watchers.append(self.dirty)
        self.terms.append(term)
        return term

    # filtering and scoring

    def components(self, node: NodeInfo) -> Components:
        return tuple([term.component(node) for term in self.terms])

    def refuse(self, components: Components, adjust: Adjustment = _UNCHANGED) -> NodeRefusal | None:
        """The refusal of nodes with these components, or None. ``adjust`` accounts for pods that would be removed or
        added."""
        near, everywhere = True, 0
        for at, term in self.filtering:
            component, counter = components[at], term.counter
            if component is None:
                if term.role is TermRole.SPREAD:
                    return SPREAD_LABEL
                if term.role is TermRole.AFFINITY:
                    return POD_AFFINITY
                continue
            more = adjust.get(counter, 0) if adjust else 0
            count = term.count(component) + more
            if term.role is TermRole.SPREAD:
                if count + term.self_match - self._lowest(term, component, count, more) > term.max_skew:
                    return SPREAD
            elif term.role is TermRole.AFFINITY:
                near = near and count > 0
                everywhere += counter.total + more
            elif near is False and not (everywhere == 0 and self._affine_to_itself):
                return POD_AFFINITY
            elif count > 0:
                return POD_ANTI_AFFINITY if term.role is TermRole.ANTI_AFFINITY else OTHERS_ANTI_AFFINITY
        if not near and not (everywhere == 0 and self._affine_to_itself):
            return POD_AFFINITY
        return None

    @staticmethod
    def _lowest(term: Term, component: str | int, count: int, more: int) -> int:
        counter = term.counter
        if len(counter.counts) < term.min_domains:
            return 0
        if not more:
            return counter.lowest()
        if isinstance(component, str):
            return counter.lowest_but(component, count)
        others = (each for each, domains in counter.histogram.items() if each != component or domains > 1)
        return min((count, *others))

    def likings(self, components: Components) -> int:
        """The raw score of preferred pod affinity."""
        return sum(term.count(each) for at, term in self.likes if (each := components[at]) is not None)

    def spread_scores(self, groups: Sequence[tuple[Components, int]]) -> list[int]:
        """The normalised spread score of each group of feasible nodes, given with its size."""
        soft = self.soft
        if not soft:
            return [0] * len(groups)
        ignored = [self.all_keys and any(components[at] is None for at, _ in soft) for components, _ in groups]
        weights = self._spread_weights(groups, ignored)
        raw: list[int] = []
        for components, _ in groups:
            total = 0.0
            for (at, term), weight in zip(soft, weights, strict=True):
                component = components[at]
                if component is not None:
                    total += term.count(component) * weight + (term.max_skew - 1)
            raw.append(floor(total + 0.5))
        counted = [value for value, left_out in zip(raw, ignored, strict=True) if not left_out]
        most, least = max(counted, default=0), min(counted, default=0)
        if most == 0:
            return [0 if left_out else MAX_SCORE for left_out in ignored]
        return [
            0 if left_out else MAX_SCORE * (most + least - value) // most
            for value, left_out in zip(raw, ignored, strict=True)
        ]

    def _spread_weights(self, groups: Sequence[tuple[Components, int]], ignored: Sequence[bool]) -> list[float]:
        """Weights per topology: with more domains each has fewer pods, so each pod weighs more."""
        found = []
        for at, term in self.soft:
            if term.by is By.NODE:
                size = sum(count for (_, count), left_out in zip(groups, ignored, strict=True) if not left_out)
            else:
                size = len({comps[at] for (comps, _), left_out in zip(groups, ignored, strict=True) if not left_out})
            found.append(log(size + 2))
        return found
