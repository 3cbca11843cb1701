"""A pass over all databases shares its calls, and goes on where it can."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.checks.passes import count_done, fair_share, of_databases
from shoal.control.database.engine import Database, Databases
from shoal.errors import ServiceUnavailable


async def test_a_database_that_is_away_does_not_hold_up_the_others(tmp_path: Path) -> None:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("main", "other")}
    databases = await Databases.open(urls, clock=FakeClock(), ids=Ids())

    async def read(database: Database) -> list[str]:
        if database.name == "main":
            raise ServiceUnavailable("it is away")
        return [database.name]

    try:
        assert await of_databases(databases, read, "checks") == ["other"]
    finally:
        await databases.close()


async def test_a_result_that_cannot_be_stored_is_no_failure_of_the_pass_and_any_other_error_is() -> None:
    async def gives(result: bool) -> bool:
        return result

    async def fails(error: Exception) -> bool:
        raise error

    assert await count_done(gives(True), fails(ServiceUnavailable("away")), gives(False), gives(True), name="t") == 2
    with pytest.raises(KeyError):
        await count_done(gives(True), fails(KeyError("a fault of ours")), name="t")


@given(st.lists(st.sampled_from("abcd")), st.integers(1, 12), st.integers(1, 5))
def test_no_owner_has_more_than_its_share_and_none_waits_while_another_has_two(
    owners: list[str], most: int, of_one: int
) -> None:
    items = list(enumerate(owners))
    chosen = Counter(owner for _, owner in fair_share(items, lambda each: each[1], most, of_one))
    waiting = Counter(owners)
    assert chosen.total() == min(most, sum(min(count, of_one) for count in waiting.values()))
    for owner, count in waiting.items():
        assert chosen[owner] <= of_one
        others = max((chosen[other] for other in waiting if other != owner), default=0)
        assert chosen[owner] == min(count, of_one) or chosen[owner] + 1 >= others
