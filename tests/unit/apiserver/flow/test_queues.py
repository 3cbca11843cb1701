"""Fair queues: hands of queues, fair shares, nothing lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.flow.queues import FairQueues, deal


@dataclass
class Item:
    flow: str
    over: bool = False


@settings(max_examples=200, deadline=None)
@given(st.text(), st.integers(1, 128), st.integers(1, 8))
def test_a_hand_is_distinct_queues_and_always_the_same(flow: str, deck: int, hand: int) -> None:
    hand = min(hand, deck)
    cards = deal(flow, deck, hand)
    assert len(set(cards)) == hand and all(0 <= card < deck for card in cards)
    assert deal(flow, deck, hand) == cards


def test_hands_are_spread_over_all_queues() -> None:
    counts = Counter(card for number in range(2000) for card in deal(f"flow-{number}", 64, 6))
    assert set(counts) == set(range(64))
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_flow_that_fills_its_hand_leaves_others_a_free_queue() -> None:
    elephant = set(deal("elephant", 128, 6))
    blocked = [number for number in range(1000) if set(deal(f"mouse-{number}", 128, 6)) <= elephant]
    assert not blocked


def served(queues: FairQueues[Item], count: int, cost: float = 1.0) -> list[str]:
    flows = []
    for _ in range(count):
        found = queues.pop()
        assert found is not None
        flows.append(found[1].flow)
        queues.done(found[0], cost)
    return flows


def push(queues: FairQueues[Item], number: int, flow: str, count: int) -> None:
    for _ in range(count):
        queues.push(queues.queues[number], Item(flow))


def test_a_late_and_small_flow_does_not_wait_behind_a_large_one() -> None:
    queues: FairQueues[Item] = FairQueues(4, 1, 100)
    push(queues, 0, "large", 50)
    served(queues, 20)
    push(queues, 1, "small", 2)
    assert "small" in served(queues, 2)


def test_queues_that_are_always_full_get_equal_time_not_equal_numbers() -> None:
    queues: FairQueues[Item] = FairQueues(2, 1, 1000)
    push(queues, 0, "lists", 300)
    push(queues, 1, "gets", 300)
    spent: Counter[str] = Counter()
    for _ in range(220):
        found = queues.pop()
        assert found is not None
        cost = 10.0 if found[1].flow == "lists" else 1.0
        spent[found[1].flow] += int(cost)
        queues.done(found[0], cost)
    assert abs(spent["lists"] - spent["gets"]) <= 20


def test_idle_time_gives_no_credit() -> None:
    queues: FairQueues[Item] = FairQueues(2, 1, 1000)
    push(queues, 0, "busy", 200)
    served(queues, 100)
    push(queues, 1, "late", 100)
    first = served(queues, 20)
    assert 8 <= first.count("late") <= 12


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=80))
def test_every_item_that_still_waits_comes_out_once_and_in_order(steps: list[tuple[int, bool]]) -> None:
    queues: FairQueues[Item] = FairQueues(6, 1, 100)
    expected: dict[int, list[str]] = {}
    for order, (number, over) in enumerate(steps):
        queues.push(queues.queues[number], Item(f"{number}/{order}", over))
        if not over:
            expected.setdefault(number, []).append(f"{number}/{order}")
    found: dict[int, list[str]] = {}
    while (item := queues.pop()) is not None:
        found.setdefault(int(item[1].flow[0]), []).append(item[1].flow)
        queues.done(item[0], 1.0)
    assert found == expected


def test_the_shortest_queue_of_the_hand_is_joined_and_full_ones_are_not() -> None:
    queues: FairQueues[Item] = FairQueues(3, 2, 2)
    push(queues, 0, "a", 2)
    push(queues, 1, "a", 1)
    assert queues.shortest((0, 1)) is queues.queues[1]
    push(queues, 1, "a", 1)
    assert queues.shortest((0, 1)) is None
