"""Priority levels: their seats, lending and borrowing, and their waiting requests."""

from __future__ import annotations

import math
from collections.abc import Iterable

from shoal.apiserver.flow.queues import FairQueues, Queue, deal
from shoal.apiserver.flow.ticket import Ticket
from shoal.kube.objects import Obj


class Level:
    """One PriorityLevelConfiguration. It outlives changes of its settings: its seats are taken by running requests."""

    __slots__ = (
        "_hands", "_queues", "borrowing_percent", "exempt", "lendable_percent", "metered", "name", "nominal", "queued",
        "reject", "served", "shares", "uid", "used", "waiting",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.uid = ""
        self.exempt = False
        self.metered = True  # whether token buckets count here
        self.reject = False  # no queues: a request without a free seat is rejected
        self.shares = 0
        self.lendable_percent = 0
        self.borrowing_percent: int | None = None
        self.nominal = 0  # seats of its own
        self.used = 0
        self.waiting = 0
        self.served = 0.0  # virtual time: server time received, divided by its shares
        self.queued: dict[str, int] = {}  # waiting requests by schema
        self._hands: dict[str, tuple[int, ...]] = {}
        self._queues: FairQueues[Ticket] = FairQueues(1, 1, 1)

    def configure(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.uid = obj["metadata"].get("uid") or ""
        self.exempt = spec.get("type") == "Exempt"
        part = spec.get("exempt" if self.exempt else "limited") or {}
        default = 0 if self.exempt else 30
        shares = part.get("nominalConcurrencyShares")
        self.shares = default if shares is None else shares
        self.lendable_percent = part.get("lendablePercent") or 0
        self.borrowing_percent = part.get("borrowingLimitPercent")
        response = part.get("limitResponse") or {}
        self.reject = response.get("type") == "Reject"
        queuing = response.get("queuing") or {}
        queues, hand = queuing.get("queues") or 64, queuing.get("handSize") or 8
        if self.exempt or self.reject:
            # there is still one queue: a request with a free seat may have to wait for the event loop
            queues = hand = 1
        length = queuing.get("queueLengthLimit") or 50
        self._rebuild(queues, min(hand, queues), length)

    def _rebuild(self, queues: int, hand: int, length: int) -> None:
        old = self._queues
        if (len(old.queues), old.hand, old.length_limit) == (queues, hand, length):
            return
        self._hands = {}
        self._queues = FairQueues(queues, hand, length)
        for queue in old.queues:
            for ticket in queue.items:  # waiting requests stay, even over the new limit
                hand_of = self._hand(ticket.flow)
                self._queues.push(self._queues.queues[hand_of[0]], ticket)
            queue.items.clear()

    # -- seats -----------------------------------------------------------------------------------------------------

    @property
    def lendable(self) -> int:
        """Seats of its own that it does not need now and may lend."""
        return max(0, min(self.nominal * self.lendable_percent // 100, self.nominal - self.used))

    @property
    def borrowed(self) -> int:
        return max(0, self.used - self.nominal)

    def may_borrow(self) -> bool:
        percent = self.borrowing_percent
        return percent is None or self.borrowed < self.nominal * percent // 100

    # -- waiting ---------------------------------------------------------------------------------------------------

    def add(self, ticket: Ticket) -> bool:
        """Queue a request; False when the queues are full."""
        if self.reject and self.used + self.waiting >= self.nominal:
            return False
        queues = self._queues
        hand = self._hand(ticket.flow)
        queue = queues.queues[0] if self.reject else queues.shortest(hand)
        if queue is None:
            return False
        queues.push(queue, ticket)
        self.waiting += 1
        self.queued[ticket.schema] = self.queued.get(ticket.schema, 0) + 1
        return True

    def next(self) -> tuple[Queue[Ticket], Ticket] | None:
        """Take the next request out of the queues."""
        found = self._queues.pop()
        if found is not None:
            self.left(found[1])
        return found

    def left(self, ticket: Ticket) -> None:
        """A request left the queues: served or cancelled."""
        self.waiting -= 1
        self.queued[ticket.schema] -= 1

    def charge(self, queue: Queue[Ticket], cost: float) -> None:
        """Charge ``cost`` seconds to a request from ``queue``."""
        self.served += cost / max(1, self.shares)
        self._queues.done(queue, cost)

    def tickets(self) -> Iterable[Ticket]:
        return [ticket for queue in self._queues.queues for ticket in queue.items if not ticket.over]

    def _hand(self, flow: str) -> tuple[int, ...]:
        hand = self._hands.get(flow)
        if hand is None:
            if len(self._hands) >= 10_000:
                self._hands.clear()
            hand = self._hands[flow] = deal(flow, len(self._queues.queues), self._queues.hand)
        return hand


def divide(levels: Iterable[Level], seats: int) -> None:
    """Distribute the seats over the levels in proportion to their shares, rounded up."""
    levels = list(levels)
    total = sum(level.shares for level in levels)
    for level in levels:
        level.nominal = math.ceil(seats * level.shares / total) if total else 0
