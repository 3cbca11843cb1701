"""Which URL of a join file is called next."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.krane.addresses import Addresses

URLS = ("https://a", "https://b", "https://c")
A, B, C = URLS


async def test_one_that_does_not_answer_is_left_for_the_next_and_a_whole_round_ends() -> None:
    addresses = Addresses(FakeClock())
    tried: set[str] = set()
    seen = []
    for _ in range(2):
        more = True
        while more:
            url = addresses.choose(URLS)
            seen.append(url)
            more = addresses.silent(url, tried)
    assert seen == [A, B, C, A, B, C] and tried == set()


async def test_the_only_one_is_never_left() -> None:
    addresses = Addresses(FakeClock())
    assert addresses.choose((A,)) == A
    assert not addresses.silent(A, set()) and addresses.choose((A,)) == A
    assert addresses.to_return_to(0.0) == ""


async def test_calls_that_fail_together_leave_it_once() -> None:
    addresses = Addresses(FakeClock())
    addresses.choose(URLS)
    assert all(addresses.silent(A, set()) for _ in range(5))
    assert addresses.choose(URLS) == B


async def test_one_that_says_it_is_unavailable_is_left_when_that_lasts() -> None:
    clock = FakeClock()
    addresses = Addresses(clock)
    addresses.choose(URLS)
    assert not addresses.refused(A, set())
    await clock.advance(9)
    assert not addresses.refused(A, set())
    addresses.answered(A)
    await clock.advance(9)
    assert not addresses.refused(A, set())  # counted anew
    await clock.advance(10)
    assert addresses.refused(A, set()) and addresses.choose(URLS) == B


async def test_the_first_is_tried_again_from_time_to_time() -> None:
    clock = FakeClock()
    addresses = Addresses(clock)
    addresses.choose(URLS)
    assert addresses.to_return_to(300.0) == ""
    addresses.silent(A, set())
    assert addresses.to_return_to(300.0) == ""
    await clock.advance(300)
    assert addresses.to_return_to(300.0) == A and addresses.to_return_to(300.0) == ""
    await clock.advance(300)
    assert addresses.to_return_to(300.0) == A
    addresses.returned()
    assert addresses.choose(URLS) == A and addresses.to_return_to(0.0) == ""


async def test_another_join_file_keeps_what_is_in_use_if_it_names_it() -> None:
    addresses = Addresses(FakeClock())
    addresses.choose(URLS)
    addresses.silent(A, set())
    assert addresses.choose((C, B)) == B
    assert addresses.choose((C,)) == C
