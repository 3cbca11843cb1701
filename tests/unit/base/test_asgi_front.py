"""The slots of connections. The connections themselves are in ``tests/contract/test_http_fronts.py``."""

from __future__ import annotations

from shoal.base.asgi_front import Front, refusal
from shoal.base.clock import FakeClock
from shoal.base.front_limits import FrontLimits


async def test_no_connection_is_accepted_while_there_is_no_room_and_again_when_one_has_left() -> None:
    front = Front(FrontLimits(connections=3), FakeClock())
    slots = [front.take("10.0.0.1") for _ in range(3)]
    assert [slot.refused for slot in slots] == [0, 0, 0]
    over = []
    while front.room.is_set():  # a few more are accepted, to be told
        over.append(front.take("10.0.0.1"))
    assert 0 < len(over) < 1000 and {slot.refused for slot in over} == {503}
    front.give_back(slots[0])
    assert front.room.is_set()


async def test_a_slot_is_given_back_once_and_an_address_without_connections_is_forgotten() -> None:
    front = Front(FrontLimits(connections_per_address=1), FakeClock())
    first, second, other = front.take("10.0.0.1"), front.take("10.0.0.1"), front.take("10.0.0.2")
    assert (first.refused, second.refused, other.refused) == (0, 429, 0)
    for slot in (first, first, second, other):
        front.give_back(slot)
    assert front.addresses == {} and front.take("10.0.0.1").refused == 0


def test_a_refusal_is_a_whole_answer_that_says_when_to_come_back() -> None:
    head, _, body = refusal(503).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in head and b"connection: close" in head
    assert b"content-length: %d" % len(body) in head and b"retry-after" not in refusal(413)
