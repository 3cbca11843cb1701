"""Counts of pods per topology domain, updated as pods are added and removed; spreading and pod affinity use them.

A counter belongs to a query ("pods of namespace a with app=web, by zone, on nodes that such pods may use") and is
shared by all shapes with this query. For each node it holds the number of matching pods and the node's domain, or
None; a domain's count is the sum over its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodShape

SMALL_DOMAIN = 4  # average nodes per domain; smaller domains are distinguished by count, not by name


class DomainCounter:
    """``delta`` returns by how much one pod of a shape changes the count, ``domain_of`` the domain of a node."""

    __slots__ = (
        "counts", "delta", "domain_of", "domains", "histogram", "ignores_terminating", "key", "members", "namespaces",
        "per_node", "topology_key", "total", "users", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        key: Hashable,
        topology_key: str,
        delta: Callable[[PodShape], int],
        domain_of: Callable[[NodeInfo], str | None],
        *,
        namespaces: frozenset[str] | None = None,
        ignores_terminating: bool = False,
    ) -> None:
        self.key = key
        self.topology_key = topology_key
        self.delta = delta
        self.domain_of = domain_of
        self.namespaces = namespaces  # namespace of the counted pods; None: any
        self.ignores_terminating = ignores_terminating
        self.per_node: dict[int, int] = {}  # slot -> count, if not 0
        self.domains: dict[int, str] = {}  # slot -> domain, for nodes that count
        self.members: dict[str, set[int]] = {}  # domain -> slots
        self.counts: dict[str, int] = {}  # domain -> count, for every domain with a node
        self.histogram: dict[int, int] = {}  # count -> domains with this count
        self.total = 0  # over all domains
        self.users = 0  # tables
        self.watchers: list[set[int]] = []  # sets of slots, of tables that distinguish this counter's domains by count

    @property
    def small_domains(self) -> bool:
        return len(self.domains) <= SMALL_DOMAIN * len(self.counts)

    def unwatch(self, slots: set[int]) -> None:
        self.watchers = [each for each in self.watchers if each is not slots]  # compared by identity

    def lowest(self) -> int:
        """The lowest count of any domain; 0 without domains."""
        return min(self.histogram, default=0)

    def lowest_but(self, domain: str, instead: int) -> int:
        """The lowest count of any domain if that of ``domain`` were ``instead``."""
        mine = self.counts.get(domain)
        others = (count for count, domains in self.histogram.items() if count != mine or domains > 1)
        return min(others, default=instead) if mine is None else min(instead, min(others, default=instead))

    def node_changed(self, node: NodeInfo) -> None:
        """The node was added or removed, or its labels or taints changed."""
        slot = node.slot
        domain = self.domain_of(node) if node.obj is not None else None
        before = self.domains.get(slot)
        if domain == before:
            return
        count = self.per_node.get(slot, 0)
        if before is not None:
            del self.domains[slot]
            members = self.members[before]
            members.discard(slot)
            if members:
                self._change(before, -count)
            else:
                del self.members[before]
                self._uncount(self.counts.pop(before))
                self.total -= count
        if domain is not None:
            self.domains[slot] = domain
            members = self.members.setdefault(domain, set())
            members.add(slot)
            if domain in self.counts:
                self._change(domain, count)
            else:
                self.counts[domain] = count
                self.histogram[count] = self.histogram.get(count, 0) + 1
                self.total += count
        for watcher in self.watchers:
            watcher.add(slot)
            for each in (before, domain):
                watcher.update(self.members.get(each or "", ()))

    def add(self, slot: int, amount: int) -> None:
        """Change the node's count by ``amount``."""
        count = self.per_node.get(slot, 0) + amount
        if count:
            self.per_node[slot] = count
        else:
            self.per_node.pop(slot, None)
        domain = self.domains.get(slot)
        if domain is None:
            return
        self._change(domain, amount)
        for watcher in self.watchers:
            watcher.update(self.members[domain])

    def _change(self, domain: str, amount: int) -> None:
        if not amount:
            return
        before = self.counts[domain]
        self._uncount(before)
        after = self.counts[domain] = before + amount
        self.histogram[after] = self.histogram.get(after, 0) + 1
        self.total += amount

    def _uncount(self, count: int) -> None:
        left = self.histogram[count] - 1
        if left:
            self.histogram[count] = left
        else:
            del self.histogram[count]
