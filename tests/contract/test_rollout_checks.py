"""Checks and notifications of rollouts over each database: asked once by any number of control planes, repeated after
one that ended, and sent only where the workspace may send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from shoal.app.ports import any_free
from shoal.base.asgi import serving
from shoal.base.clock import FakeClock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.outbound import OutboundCaller
from shoal.control.checks.asking import CheckAsker
from shoal.control.checks.calls import WorkspaceCalls
from shoal.control.checks.delivery import KEEP_MS, NotificationSender
from shoal.control.checks.jobs import CheckJobs
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.checks.navigator import NavigatorAccess, NavigatorQueries
from shoal.control.checks.outbox import ROLLBACK, notify
from shoal.control.checks.plan import LEASE_MS
from shoal.control.checks.rows import facts_of
from shoal.control.checks.runner import CheckRunner
from shoal.control.database import tables
from shoal.control.database.engine import Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Actor
from shoal.control.rollout.progress import Progress
from shoal.control.rollout.progress_json import progress_as_json
from shoal.control.rollout.strategy import CANARY, CheckSpec, NotificationSpec, StepSpec, Strategy
from shoal.control.rollout.strategy_json import strategy_as_json
from shoal.control.secrets.masters import FileKeys
from shoal.control.secrets.rotation import rotate_secrets
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import ConfigError
from shoal.testing.databases import shared_postgres
from shoal.testing.seeded import seeded_bytes
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"
ADMIN = Actor("default", "ann", "admin")
PLACE = {"project": "shop", "environment": "prod"}
TOKEN = "Bearer 0123456789abcdef"


class Hooks:
    """A server that answers as it is told, and can be made to wait."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.status, self.body = 200, b""
        self.open = asyncio.Event()
        self.open.set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, answer = self.status, self.body
        self.requests.append((scope["path"], headers, orjson.loads(body) if body.startswith(b"{") else body))
        await self.open.wait()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer})


class NoNavigator:
    async def of(self, workspace_id: str) -> NavigatorAccess:
        raise ConfigError("there is no navigator")


class ControlPlane:
    """What one process has of checks and notifications."""

    def __init__(self, databases: Databases, sealer: EnvelopeSealer, clock: FakeClock) -> None:
        self.databases = databases
        self.fleet = Fleet(databases, Ids(seeded_bytes(1)), sealer)
        self.answered: list[str] = []
        self.metrics = Metrics()
        counts = CheckMetrics(self.metrics)
        caller = OutboundCaller(clock=RealClock(), agent="shoal-control")
        calls = WorkspaceCalls(databases, sealer, caller)
        asker = CheckAsker(calls, NavigatorQueries(NoNavigator(), caller), CheckJobs(databases, Ids()))
        self.runner = CheckRunner(databases, asker, self._after_check, clock=clock, metrics=counts)
        self.sender = NotificationSender(databases, calls, clock=clock, metrics=counts)

    async def _after_check(self, rollout_id: str) -> None:
        self.answered.append(rollout_id)

    def count(self, text: str) -> float:
        shown = self.metrics.render().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in shown if line.startswith(text)), 0.0)


class World:
    def __init__(self, hooks: Hooks, clock: FakeClock, sealer: EnvelopeSealer, planes: list[ControlPlane]) -> None:
        self.hooks, self.clock, self.sealer, self.planes = hooks, clock, sealer, planes
        self.first, self.second = planes
        self.database = self.first.databases.fleet

    async def prepare(self) -> None:
        fleet = self.first.fleet
        await fleet.ensure_workspace("default")
        for kind, name, spec, place in (
            ("Region", "eu", {}, {}), ("Cluster", "eu1", {"region": "eu"}, {}), ("Project", "shop", {}, {}),
            ("Environment", "prod", {}, {"project": "shop"}),
            ("Credential", "hooks", {"values": {"Authorization": TOKEN}}, PLACE),
            ("App", "web", {"image": "shop/web:1", "topology": [{"region": "eu"}]}, PLACE),
        ):  # fmt: skip
            doc = {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **place}, "spec": spec}
            await fleet.apply(ADMIN, doc)
        await self.allow(f"{HOST}:{self.hooks.port}")

    async def allow(self, *outbound: str) -> None:
        async with self.database.transaction() as tx:
            row = await tx.session.get_one(tables.Workspace, "default")
            row.policy = {"outbound": list(outbound)}

    async def rollout(self, strategy: Strategy, id_: str = "rol_1", **fields: Any) -> Progress:
        async with self.database.transaction() as tx:
            app = (await tx.session.scalars(select(tables.App))).one()
            region = (await tx.session.scalars(select(tables.Region.id))).one()
            progress = Progress(waves=((region,),), specs=(-1,), step=1, settled_ms=tx.now)
            tx.session.add(
                tables.Rollout(
                    id=id_, workspace_id="default", app_id=app.id, number=len(id_), deployment_id="dep_2", revision=2,
                    stable_id="dep_1", stable_revision=1, strategy=strategy_as_json(strategy), phase="running",
                    progress=progress_as_json(progress), version=1, due_at=0, created_at=tx.now, updated_at=tx.now,
                    **fields,
                )
            )  # fmt: skip
        return progress

    async def rows(self, table: Any) -> list[Any]:
        async with self.database.reading() as session:
            return list(await session.scalars(select(table)))

    async def notify(self, text: str = "went back") -> None:
        (rollout,) = await self.rows(tables.Rollout)
        strategy = a_strategy(notify=(NotificationSpec(url=f"{self.hooks.url}/n", secret="hooks"),))
        async with self.database.transaction() as tx:
            await notify(tx, rollout, strategy, ROLLBACK, text, {"requests": 412})


def a_strategy(*checks: CheckSpec, notify: tuple[NotificationSpec, ...] = ()) -> Strategy:
    steps = (StepSpec(kind="weight", percent=5), StepSpec(kind="analysis", seconds=300.0))
    return Strategy(kind=CANARY, is_configured=True, steps=steps, checks=checks, notify=notify)


def a_webhook(world: World, name: str = "smoke", **fields: Any) -> CheckSpec:
    return CheckSpec(name=name, kind="webhook", settings={"url": f"{world.hooks.url}/w", "secret": "hooks"}, **fields)


@asynccontextmanager
async def a_world(url: str, folder: Path) -> AsyncIterator[World]:
    clock, hooks = FakeClock(), Hooks(any_free(HOST))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        await stack.enter_async_context(serving(hooks, host=HOST, port=hooks.port, clock=RealClock()))
        planes: list[ControlPlane] = []
        sealer = EnvelopeSealer(FileKeys(folder / "master.key", create=True), clock=clock)
        await sealer.masters.check()
        stack.push_async_callback(sealer.close)
        for _ in range(2):
            databases = await Databases.open({"main": url}, clock=clock, ids=Ids())
            stack.push_async_callback(databases.close)
            planes.append(ControlPlane(databases, sealer, clock))
        world = World(hooks, clock, sealer, planes)
        await world.prepare()
        yield world
        hooks.open.set()


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    is_file = request.param == "sqlite"
    async with a_world(
        f"sqlite:///{tmp_path}/f.db" if is_file else shared_postgres().create_database(), tmp_path
    ) as made:
        yield made


# -- checks


async def test_two_control_planes_ask_each_due_check_once(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world), a_webhook(world, "other")))
    for asked in range(1, 4):
        await asyncio.gather(*(plane.runner.ask_due() for plane in world.planes for _ in range(3)))
        assert len(world.hooks.requests) == 2 * asked
        assert sum(len(plane.answered) for plane in world.planes) == 2 * asked
        await world.clock.advance(30)


async def test_a_check_that_is_being_asked_is_not_asked_by_another(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    world.hooks.open.clear()
    asking = asyncio.create_task(world.first.runner.ask_due())
    await eventually(lambda: len(world.hooks.requests) == 1)
    assert await world.second.runner.ask_due() == 0
    world.hooks.open.set()
    assert await asking == 1 and len(world.hooks.requests) == 1


async def test_a_control_plane_that_ends_while_it_asks_is_replaced_after_its_lease(world: World) -> None:
    progress = await world.rollout(a_strategy(a_webhook(world)))
    world.hooks.open.clear()
    asking = asyncio.create_task(world.first.runner.ask_due())
    await eventually(lambda: len(world.hooks.requests) == 1)
    asking.cancel()
    await asyncio.wait([asking])
    world.hooks.open.set()
    assert await world.second.runner.ask_due() == 0
    await world.clock.advance(LEASE_MS / 1000 + 0.001)
    assert await world.second.runner.ask_due() == 1
    (row,) = await world.rows(tables.RolloutCheck)
    assert row.passed is True and row.settled_at == progress.settled_ms


async def test_an_answer_that_comes_after_the_lease_is_dropped(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    world.hooks.open.clear()
    asking = asyncio.create_task(world.first.runner.ask_due())
    await eventually(lambda: len(world.hooks.requests) == 1)
    await world.clock.advance(LEASE_MS / 1000 + 0.001)
    world.hooks.status = 409
    other = asyncio.create_task(world.second.runner.ask_due())
    await eventually(lambda: len(world.hooks.requests) == 2)
    world.hooks.open.set()
    await asyncio.gather(asking, other)
    (row,) = await world.rows(tables.RolloutCheck)
    assert (row.passed, row.failures_in_a_row) == (False, 1)
    assert world.first.answered == [] and world.second.answered == ["rol_1"]
    assert world.first.count('shoal_control_rollout_checks_total{kind="webhook",result="late"}') == 1


async def test_an_answer_makes_the_rollout_due_although_the_engine_writes_at_the_same_time(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    world.hooks.open.clear()
    asking = asyncio.create_task(world.first.runner.ask_due())
    await eventually(lambda: len(world.hooks.requests) == 1)
    async with world.second.databases.fleet.transaction() as tx:
        row = await tx.session.get_one(tables.Rollout, "rol_1")
        world.hooks.open.set()
        await asyncio.wait([asking], timeout=0.5)  # it would be done by now if it did not wait for this transaction
        row.due_at = tx.now + 3_600_000
    await asking
    (rollout,) = await world.rows(tables.Rollout)
    assert rollout.due_at == world.database.time.now_ms()


async def test_a_webhook_gets_what_is_rolled_out_with_the_credential(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    await world.first.runner.ask_due()
    ((path, headers, body),) = world.hooks.requests
    assert (path, headers["authorization"], headers["content-type"]) == ("/w", TOKEN, "application/json")
    (rollout,) = await world.rows(tables.Rollout)
    assert body == {
        "check": "smoke", "app": "web", "project": "shop", "environment": "prod", "revision": 2, "stableRevision": 1,
        "step": 1, "wave": 0, "regions": ["eu"], "weight": 5, "startedAt": body["startedAt"],
    }  # fmt: skip
    assert rollout.due_at == world.database.time.now_ms()  # the engine looks at once


async def test_the_facts_for_the_engine_follow_the_answers(world: World) -> None:
    strategy = a_strategy(a_webhook(world, failures=2))
    progress = await world.rollout(strategy)
    seen: list[tuple[str, str]] = []
    for status, body in ((200, b""), (409, b'{"reason": "4 of 9 fail"}'), (503, b"busy"), (409, b"")):
        world.hooks.status, world.hooks.body = status, body
        assert await world.first.runner.ask_due() == 1
        async with world.database.reading() as session:
            facts = await facts_of(session, "rol_1", strategy, progress)
        seen.append((facts.failed, facts.waits_for))
        await world.clock.advance(30)
    assert seen == [
        ("", ""), ("", "check smoke has not passed: 4 of 9 fail"), ("", "check smoke is inconclusive: answered 503: busy"),
        ("check smoke failed 2 times in a row: answered 409", "check smoke has not passed: answered 409"),
    ]  # fmt: skip


async def test_a_host_that_is_not_allowed_any_more_is_not_called(world: World) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    await world.allow("hooks.example.com")
    await world.first.runner.ask_due()
    (row,) = await world.rows(tables.RolloutCheck)
    assert world.hooks.requests == [] and row.passed is None
    assert "may not call 127.0.0.1" in row.reason and "allowed: hooks.example.com" in row.reason


async def test_a_credential_is_opened_after_the_master_key_was_replaced_and_never_after_it_was_deleted(
    world: World,
) -> None:
    await world.rollout(a_strategy(a_webhook(world)))
    moved = await rotate_secrets(world.first.databases, world.sealer)
    assert not moved.unmoved and (await world.rows(tables.Credential))[0].master_key == moved.master_key
    await world.first.runner.ask_due()
    assert world.hooks.requests[0][1]["authorization"] == TOKEN
    async with world.database.transaction() as tx:
        await tx.session.delete((await tx.session.scalars(select(tables.Credential))).one())
    await world.clock.advance(30)
    await world.first.runner.ask_due()
    (row,) = await world.rows(tables.RolloutCheck)
    assert len(world.hooks.requests) == 1 and row.reason == "credential 'hooks' does not exist in the environment"


async def test_rollouts_that_wait_or_have_ended_are_not_asked_about(world: World) -> None:
    progress = await world.rollout(a_strategy(a_webhook(world)))
    assert await world.first.runner.ask_due() == 1
    await world.clock.advance(30)
    async with world.database.transaction() as tx:
        row = await tx.session.get_one(tables.Rollout, "rol_1")
        row.progress, row.version = {**progress_as_json(progress), "settled_ms": 0}, 2
    assert await world.first.runner.ask_due() == 0
    async with world.database.transaction() as tx:
        row = await tx.session.get_one(tables.Rollout, "rol_1")
        row.progress, row.version, row.phase = progress_as_json(progress), 3, "ended"
    assert await world.first.runner.ask_due() == 0


async def test_a_kind_of_a_newer_version_and_a_query_without_navigator_are_inconclusive(world: World) -> None:
    kinds = (CheckSpec(name="new", kind="oracle"), CheckSpec(name="q", kind="query", settings={"query": "pods"}))
    await world.rollout(a_strategy(*kinds))
    assert await world.first.runner.ask_due() == 2
    rows = {row.name: row for row in await world.rows(tables.RolloutCheck)}
    assert {row.passed for row in rows.values()} == {None}
    assert rows["new"].reason == "this version knows no checks of the kind oracle"
    assert rows["q"].reason == "the navigator cannot be asked: there is no navigator"


# -- notifications


async def test_a_notification_is_sent_once_when_its_transaction_is_committed(world: World) -> None:
    await world.rollout(a_strategy())
    (rollout,) = await world.rows(tables.Rollout)
    strategy = a_strategy(notify=(NotificationSpec(url=f"{world.hooks.url}/n", on=("rollback",)),))
    with pytest.raises(RuntimeError, match="undone"):
        async with world.database.transaction() as tx:
            await notify(tx, rollout, strategy, ROLLBACK, "went back")
            raise RuntimeError("undone")
    async with world.database.transaction() as tx:
        await notify(tx, rollout, strategy, "start", "begins")  # no notification asks for it
    assert await world.rows(tables.RolloutNotification) == []
    await world.notify()
    await asyncio.gather(*(plane.sender.send_due() for plane in world.planes for _ in range(2)))
    ((path, headers, body),) = world.hooks.requests
    assert (path, headers["authorization"]) == ("/n", TOKEN)
    assert {name: body[name] for name in ("event", "app", "revision", "text", "numbers")} == {
        "event": "rollback", "app": "web", "revision": 2, "text": "went back", "numbers": {"requests": 412},
    }  # fmt: skip
    assert await world.rows(tables.RolloutNotification) == []


async def test_a_delivery_that_fails_is_tried_again_and_told_once(world: World) -> None:
    await world.rollout(a_strategy())
    await world.notify()
    world.hooks.status, world.hooks.body = 500, b"later"
    assert await world.first.sender.send_due() == 0
    assert await world.first.sender.send_due() == 0 and len(world.hooks.requests) == 1  # it waits
    await world.clock.advance(5)
    assert await world.second.sender.send_due() == 0 and len(world.hooks.requests) == 2
    world.hooks.status = 204
    await world.clock.advance(15)
    assert await world.first.sender.send_due() == 1 and await world.rows(tables.RolloutNotification) == []
    events = [each for each in await world.rows(tables.Event) if each.reason == "NotificationFailed"]
    assert [(each.name, each.type) for each in events] == [("shop/prod/web", "Warning")]
    assert events[0].message == "the notification about rollback was not delivered: it answered 500: later"
    assert len({body["id"] for _, _, body in world.hooks.requests}) == 1  # a receiver can tell the repetition


async def test_a_delivery_is_given_up_after_an_hour(world: World) -> None:
    await world.rollout(a_strategy())
    await world.notify()
    world.hooks.status = 500
    began = world.clock.monotonic()
    while await world.rows(tables.RolloutNotification):
        await world.first.sender.send_due()
        await world.clock.advance(300)
    assert KEEP_MS / 1000 - 600 <= world.clock.monotonic() - began <= KEEP_MS / 1000 + 600
    assert 10 <= len(world.hooks.requests) <= 25
    told = [each.message for each in await world.rows(tables.Event) if each.reason == "NotificationFailed"]
    assert len(told) == 2 and told[1].endswith("it was given up after an hour")
    assert world.first.count('shoal_control_rollout_notifications_total{result="dropped"}') == 1


async def test_slack_gets_text_that_it_cannot_take_for_a_command(world: World) -> None:
    await world.rollout(a_strategy())
    (rollout,) = await world.rows(tables.Rollout)
    strategy = a_strategy(notify=(NotificationSpec(url=f"{world.hooks.url}/s", format="slack"),))
    async with world.database.transaction() as tx:
        await notify(tx, rollout, strategy, ROLLBACK, "0.2 is not < 0.01 <!channel>")
    await world.first.sender.send_due()
    assert world.hooks.requests[0][2] == {
        "text": "↩ *shop/prod/web* revision 2, rollback: 0.2 is not &lt; 0.01 &lt;!channel&gt;"
    }
