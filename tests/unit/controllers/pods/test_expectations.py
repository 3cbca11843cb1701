"""Expectations end when the cache shows the writes, and expire in any case."""

from __future__ import annotations

from typing import Any

from shoal.base.clock import FakeClock
from shoal.controllers.pods.expectations import TTL_S, Expectations
from shoal.reconcile import Cache
from shoal.testing.workloads import pod


def at(version: str, **options: Any) -> dict[str, Any]:
    made = pod("one", uid="u1", **options)
    made["metadata"]["resourceVersion"] = version
    return made


def test_a_write_is_seen_at_its_revision(clock: FakeClock) -> None:
    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "5")
    expectations.wrote("owner", cache, at("7"))
    assert not expectations.satisfied("owner")
    assert expectations.satisfied("someone else")
    cache.upsert(at("7"))
    cache.observe("7")
    assert expectations.satisfied("owner")


def test_a_pod_that_came_and_went_unseen_is_not_waited_for(clock: FakeClock) -> None:
    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "5")
    expectations.wrote("owner", cache, at("7"))
    cache.replace([], "9")  # listed again after the watch was lost
    assert expectations.satisfied("owner")


def test_the_newest_of_many_writes_counts(clock: FakeClock) -> None:
    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "5")
    for version in ("9", "7", "8"):
        expectations.wrote("owner", cache, at(version))
    cache.observe("8")
    assert not expectations.satisfied("owner")
    cache.observe("9")
    assert expectations.satisfied("owner")


def test_every_cache_has_to_catch_up(clock: FakeClock) -> None:
    pods, sets, expectations = Cache(), Cache(), Expectations(clock)
    pods.replace([], "5")
    sets.replace([], "5")
    expectations.wrote("owner", pods, at("7"))
    expectations.wrote("owner", sets, at("6"))
    pods.observe("7")
    assert not expectations.satisfied("owner")
    sets.observe("8")
    assert expectations.satisfied("owner")


def test_a_deletion_is_seen_when_the_pod_is_marked_gone_or_replaced(clock: FakeClock) -> None:
    for later in (at("6", deleting=True), None, {**at("6"), "metadata": {**at("6")["metadata"], "uid": "u2"}}):
        cache, expectations = Cache(), Expectations(clock)
        cache.replace([at("5")], "5")
        expectations.deleted("owner", cache, at("5"))
        assert not expectations.satisfied("owner")
        cache.replace([later] if later is not None else [], "6")
        assert expectations.satisfied("owner")


def test_versions_that_are_no_numbers_are_seen_by_presence(clock: FakeClock) -> None:
    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "x1")
    expectations.wrote("owner", cache, at("x2"))
    assert not expectations.satisfied("owner")
    cache.upsert(at("x2"))
    assert expectations.satisfied("owner")


async def test_it_is_given_up_after_five_minutes(clock: FakeClock) -> None:

    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "5")
    expectations.wrote("owner", cache, at("7"))
    await clock.advance(TTL_S - 1)
    assert not expectations.satisfied("owner")
    await clock.advance(1)
    assert expectations.satisfied("owner")


def test_what_is_forgotten_is_not_waited_for(clock: FakeClock) -> None:
    cache, expectations = Cache(), Expectations(clock)
    cache.replace([], "5")
    expectations.wrote("owner", cache, at("7"))
    expectations.forget("owner")
    assert expectations.satisfied("owner")
