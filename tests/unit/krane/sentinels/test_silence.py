"""Sentinel pods that have not reached their API server for a while are found."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.krane.sentinels.silence import LOOK_S, STALE_S, Silence
from shoal.reconcile import Change
from shoal.reconcile.cache import ChangeType
from shoal.reconcile.keys import ObjectKey


class Watching:
    """Counters of pods as an agent sees them, and what it is told of."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.connected = True
        self.told: list[str] = []
        self.data: dict[str, str] = {}
        self.silence = Silence(clock=self.clock, watching=lambda: self.connected, changed=self.told.append)

    def write(self, **entries: str) -> None:
        """The ConfigMap of counters has these entries now."""
        old, self.data = self.data, entries
        self.silence.saw(
            Change(
                type=ChangeType.UPDATED, key=ObjectKey("sentinel", "stats-x"), old={"data": old}, new={"data": entries}
            )
        )

    async def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            await self.clock.advance(LOOK_S)
            self.silence.look()


async def test_a_pod_whose_counters_stand_still_is_stale_until_it_writes_again() -> None:
    seen = Watching()
    seen.write(a="1", b="1")
    await seen.wait(STALE_S)
    assert seen.silence.stale({"a", "b"}) == []
    seen.write(a="2", b="1")
    await seen.wait(LOOK_S)
    assert seen.silence.stale({"a", "b"}) == ["b"] and seen.told == ["b"]
    seen.write(a="2", b="2")
    await seen.wait(LOOK_S)
    assert seen.silence.stale({"a", "b"}) == [] and seen.told == ["b", "b"]


async def test_while_the_agent_itself_does_not_see_the_counters_no_pod_is_stale() -> None:
    seen = Watching()
    seen.write(a="1")
    seen.connected = False
    await seen.wait(STALE_S * 2)
    assert seen.silence.stale({"a"}) == []
    seen.connected = True
    await seen.wait(STALE_S)
    assert seen.silence.stale({"a"}) == [], "it gets its whole time after the connection is back"
    await seen.wait(LOOK_S)
    assert seen.silence.stale({"a"}) == ["a"]


async def test_a_deleted_pod_is_forgotten() -> None:
    seen = Watching()
    seen.write(a="1")
    seen.write()
    await seen.wait(STALE_S * 2)
    assert seen.silence.stale({"a"}) == [] and seen.told == []


async def test_a_pod_is_heard_only_when_it_is_seen_to_write() -> None:
    seen = Watching()
    seen.write(a="1")
    assert not seen.silence.is_heard("a"), "it may have written long ago"
    seen.write(a="2")
    assert seen.silence.is_heard("a")
    await seen.wait(STALE_S + LOOK_S)
    assert not seen.silence.is_heard("a")
    seen.write(a="3")
    assert seen.silence.is_heard("a")
    seen.write()
    assert not seen.silence.is_heard("a")
