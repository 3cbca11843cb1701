"""Agents that are not heard: which of them count as lost."""

from __future__ import annotations

from shoal.control.service.agents.presence import Heard, judge
from shoal.sync.keys import Place


def heard(count: int, at_ms: int, lost: bool = False) -> list[Heard]:
    return [Heard(Place("c", f"{at_ms}-{n}"), at_ms, lost) for n in range(count)]


def judged(agents: list[Heard], recently_lost: int = 0):  # type: ignore[no-untyped-def]
    return judge(agents, 100_000, lost_after_ms=32_000, recently_lost=recently_lost, fraction=0.3)


def test_who_was_not_heard_for_too_long_is_lost() -> None:
    found = judged(heard(10, 99_000) + heard(2, 60_000) + heard(1, 50_000, lost=True))
    assert {agent.at_ms for agent in found.lost} == {60_000} and len(found.lost) == 2 and not found.frozen


def test_when_more_than_a_third_vanish_together_the_control_plane_blames_itself() -> None:
    found = judged(heard(6, 99_000) + heard(3, 60_000))
    assert found.frozen and found.lost == () and found.vanished == 3
    assert not judged(heard(7, 99_000) + heard(3, 60_000)).frozen, "exactly 30 % is still believed"
    assert judged(heard(7, 99_000) + heard(1, 60_000), recently_lost=3).frozen, "bit by bit counts too"


def test_one_of_two_agents_can_be_lost() -> None:
    assert len(judged(heard(1, 99_000) + heard(1, 60_000)).lost) == 1


def test_agents_that_were_lost_long_ago_do_not_freeze_the_rest() -> None:
    assert len(judged(heard(5, 99_000) + heard(20, 1_000, lost=True) + heard(1, 60_000)).lost) == 1
