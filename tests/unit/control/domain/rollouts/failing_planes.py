"""A canary that is played while its database fails over, and what it has to decide all the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from fleet_world import ADMIN, World
from rollout_world import APP, Action, decided, play, rollout
from sqlalchemy import func, select

from shoal.base.ids import Ids
from shoal.control.database import tables
from shoal.control.database.engine import Database, Databases
from shoal.control.database.failures import Unsure
from shoal.control.database.transaction import Tx
from shoal.errors import Conflict, ServiceUnavailable
from shoal.testing.failover import ReplicatedPostgres

WHOLE = [
    ("start", 0), ("step", 1), ("step", 2), ("step", 3), ("approve", 3), ("step", 4), ("promote", 4), ("end", 4),
]  # fmt: skip
"""Every decision of the canary that the tests play, with the step that it leads to."""


class ControlPlanes:
    """Two control planes on one database. The one in use is killed when a request to it fails, the other goes on, and
    another one begins."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self._url = url
        self._begun = 0
        self._other: World | None = None

    async def begin(self) -> None:
        self._begun += 1
        databases = await Databases.open({"main": self._url}, clock=self.world.clock, ids=Ids())
        self._other = World(databases, self.world.clock, seed=10 + self._begun)

    async def until_done(self, action: Action) -> None:
        while True:
            try:
                return await action()
            except ServiceUnavailable:
                await self._switch()

    async def _switch(self) -> None:
        assert self._other is not None
        killed, other = self.world.databases, self._other
        self.world.databases, self.world.fleet = other.databases, other.fleet
        await killed.close()
        await self.begin()

    async def close(self) -> None:
        assert self._other is not None
        await self._other.databases.close()
        await self.world.databases.close()


class FailingCommits:
    """Each transaction that writes a decision fails once: the database fails over before its commit, or afterwards so
    that its answer is lost."""

    def __init__(self, postgres: ReplicatedPostgres, moment: str) -> None:
        self.failed: list[int] = []  # how many decisions there were with those of the transaction
        self._postgres = postgres
        self._moment = moment
        self._finish, self._commit = Tx.finish, Database._commit

    def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failing = self

        async def finish(tx: Tx) -> None:
            await failing._finish(tx)
            if failing._moment == "before" and await failing._is_next(tx):
                await failing._postgres.fail_over()

        async def commit(database: Database, tx: Tx) -> None:
            is_next = failing._moment == "after" and await failing._is_next(tx)
            await failing._commit(database, tx)
            if is_next:
                await failing._postgres.fail_over()
                raise Unsure(database.name, "the connection broke")

        monkeypatch.setattr(Tx, "finish", finish)
        monkeypatch.setattr(Database, "_commit", commit)

    async def _is_next(self, tx: Tx) -> bool:
        count = await tx.session.scalar(select(func.count()).select_from(tables.RolloutDecision)) or 0
        if count <= max(self.failed, default=0):
            return False
        self.failed.append(count)
        return True


async def to_its_end(world: World, how: Callable[[Action], Awaitable[None]]) -> None:
    """Play the canary: a pause, an approval, and the time for which the old revision is kept."""
    for passes_s in (61, 0, 1801):
        await play(world, how=how)
        if (await rollout(world))["hold"] == "waits for approval":
            await how(partial(approve, world))
            await play(world, how=how)
        await world.clock.advance(passes_s)
    await play(world, how=how)


async def approve(world: World) -> None:
    try:
        await world.fleet.command_rollout(ADMIN, APP, "resume")
    except Conflict:
        assert "approve" in await decided(world), "the answer to the first attempt was lost"


async def taken(world: World) -> list[tuple[str, int]]:
    return [(each["action"], each["step"]) for each in (await rollout(world))["decisions"]]
