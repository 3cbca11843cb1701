"""The fair queues of one priority level: shuffle sharding puts flows into queues, virtual time takes them out.

Each flow is dealt a *hand* of queues by its hash and joins the shortest of them, so that a flow which fills its queues
leaves most others a queue of their own. The queue that received the least server time is next.
"""

from __future__ import annotations

import hashlib
from collections import deque
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar


class QueuedRequest(Protocol):
    """An item of a queue."""

    @property
    def over(self) -> bool:
        """Whether the request no longer waits."""


T = TypeVar("T", bound=QueuedRequest)


def deal(flow: str, deck: int, hand: int) -> tuple[int, ...]:
    """The queues of a flow: ``hand`` distinct numbers below ``deck``, the same for the same flow."""
    value = int.from_bytes(hashlib.sha256(flow.encode(errors="replace")).digest()[:8], "big")
    cards: list[int] = []
    for dealt in range(hand):
        value, card = divmod(value, deck - dealt)
        for earlier in sorted(cards):  # the card's place among those that are still in the deck
            if card >= earlier:
                card += 1
        cards.append(card)
    return tuple(cards)


class Queue(Generic[T]):
    """First in, first out."""

    __slots__ = ("items", "listed", "served")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.served = 0.0  # virtual time: service received
        self.listed = False  # whether it is in the heap, or its item is being run


class FairQueues(Generic[T]):
    """Queues and the order in which they are served."""

    __slots__ = ("_heap", "_order", "_virtual", "hand", "length_limit", "queues")

    def __init__(self, count: int, hand: int, length_limit: int) -> None:
        self.queues: list[Queue[T]] = [Queue() for _ in range(count)]
        self.hand = hand
        self.length_limit = length_limit
        self._heap: list[tuple[float, int, Queue[T]]] = []
        self._order = 0
        self._virtual = 0.0

    def shortest(self, hand: tuple[int, ...]) -> Queue[T] | None:
        """The queue that the next item of a flow joins; None when all of the flow's are full."""
        best = min((self.queues[number] for number in hand), key=_length)
        return best if len(best.items) < self.length_limit else None

    def push(self, queue: Queue[T], item: T) -> None:
        queue.items.append(item)
        if not queue.listed:
            queue.listed = True
            queue.served = max(queue.served, self._virtual)  # idle time gives no credit
            self._list(queue)

    def pop(self) -> tuple[Queue[T], T] | None:
        """The next item that still waits, with its queue; the queue is out until ``done``."""
        while self._heap:
            served, _, queue = heappop(self._heap)
            while queue.items:
                item = queue.items.popleft()
                if not item.over:
                    self._virtual = max(self._virtual, served)
                    return queue, item
            queue.listed = False
        return None

    def done(self, queue: Queue[T], cost: float) -> None:
        """Charge ``cost`` to ``queue`` for the item taken from it."""
        queue.served += cost
        if queue.items:
            self._list(queue)
        else:
            queue.listed = False

    def _list(self, queue: Queue[T]) -> None:
        self._order += 1
        heappush(self._heap, (queue.served, self._order, queue))


def _length(queue: Queue[Any]) -> int:
    return len(queue.items)
