"""The checkers find bugs that are planted on purpose in real parts: a checker that finds nothing proves nothing."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.store import Attrs, Event, Fence, Key, LogStore, Put, RequirementFailed, open_store
from shoal.store.sqlite import SqliteJournal
from shoal.testing.databases import shared_postgres
from shoal.testing.recorder import Recorder, State
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually

HEAD = b'{"metadata":{"resourceVersion":"'
LEASE = Key("leases", "default", "leader")


def attrs_of(_key: Key, value: bytes) -> Attrs:
    return Attrs(fence=json.loads(value).get("fence", ""))


def put(name: str, token: str, *, resource: str = "configmaps", fence: str = "") -> Put:
    value = HEAD + b'"},' + json.dumps({"token": token, "fence": fence}).encode()[1:]
    return Put(Key(resource, "default", name), value, len(HEAD), Attrs(fence=fence))


def token_of(value: bytes) -> str:
    return str(json.loads(value)["token"])


def listed(store: LogStore) -> dict[str, State]:
    return {each.key.name: (each.revision, token_of(each.value)) for each in store.range("configmaps").entries}


@pytest.fixture(autouse=True)
def planted_violations_do_not_count() -> Iterator[None]:
    before = TALLY.violations
    yield
    TALLY.violations = before


@asynccontextmanager
async def running(url: str) -> AsyncIterator[LogStore]:
    store = open_store(url, attrs_of=attrs_of)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def write(store: LogStore, recorder: Recorder, name: str, token: str) -> int:
    begun_s = time.monotonic()
    known = store.get(Key("configmaps", "default", name))
    (entry,) = await store.commit([put(name, token)])
    recorder.swapped(name, known.revision if known else 0, entry.revision, token, begun_s, time.monotonic())
    return entry.revision


async def test_an_answer_before_the_write_is_durable_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted journal says that a batch is written and keeps it in memory; the process dies before it is on disk."""
    kept: list[Sequence[Event]] = []

    async def append(_journal: SqliteJournal, events: Sequence[Event]) -> None:
        kept.append(events)

    recorder, url = Recorder(), f"sqlite:///{tmp_path}/store.db"
    async with running(url) as store:
        await write(store, recorder, "a", "a1")
        monkeypatch.setattr(SqliteJournal, "append", append)
        await write(store, recorder, "a", "a2")
        await write(store, recorder, "b", "b1")
        monkeypatch.undo()
        assert recorder.problems({"server": listed(store)}) == [], "nobody notices while the server lives"
    assert kept
    async with running(url) as store:
        problems = recorder.problems({"server": listed(store)})
    assert [problem.partition(" ends")[0] for problem in problems] == ["server: a", "server: b"]


async def test_a_watch_that_skips_an_event_is_found(tmp_path: Path) -> None:
    recorder = Recorder()
    async with running(f"sqlite:///{tmp_path}/store.db") as store:
        session = recorder.session("watcher", store.revision, {})
        watch = store.watch("configmaps", store.revision)
        for number in range(10):
            await write(store, recorder, "a", f"a{number}")
        events = watch.take()
        for number, event in enumerate(events):
            if number != 4:  # the planted bug
                session.event(event.type.name, event.entry.key.name, event.entry.revision, token_of(event.entry.value))
        problems = recorder.problems()
    assert any("nothing came for a" in problem for problem in problems), problems


async def test_a_cursor_that_moves_before_its_event_was_handled_is_found(tmp_path: Path) -> None:
    """A client saves the revision of an event and then handles the event; it dies in between and resumes after it."""
    recorder = Recorder()
    async with running(f"sqlite:///{tmp_path}/store.db") as store:
        session = recorder.session("client", store.revision, {})
        for number in range(6):
            await write(store, recorder, "a", f"a{number}")
        handled = 0
        for event in store.watch("configmaps", session.start).take():
            session.progress(event.entry.revision)  # planted: it belongs after the next line
            if handled == 3:
                break  # dies
            session.event(event.type.name, event.entry.key.name, event.entry.revision, token_of(event.entry.value))
            handled += 1
        for event in store.watch("configmaps", session.last).take():
            session.event(event.type.name, event.entry.key.name, event.entry.revision, token_of(event.entry.value))
    assert any("nothing came for a" in problem for problem in recorder.problems())


async def test_a_stale_read_of_another_server_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers on one database; the planted one answers from memory without asking for the newest revision."""
    recorder, url = Recorder(), shared_postgres().create_database()
    async with running(url) as first, running(url) as second:

        async def read(store: LogStore, *, planted: bool) -> None:
            floor = recorder.newest
            revision = store.revision if planted else await store.fresh()
            recorder.read("second", floor, revision)

        for number in range(50):
            await write(first, recorder, "a", f"a{number}")
            await read(second, planted=False)
        assert recorder.problems() == []
        for number in range(50):
            await write(first, recorder, "b", f"b{number}")
            await read(second, planted=True)
        await eventually(lambda: second.revision >= first.revision)
    assert any("a read shows revision" in problem for problem in recorder.problems())


@pytest.mark.parametrize("planted", [False, True])
async def test_a_lock_that_does_not_fence_is_found(tmp_path: Path, planted: bool) -> None:
    """A leader pauses, another takes over, and the first one wakes up and writes on. The planted one leaves its fence out."""
    recorder = Recorder()
    async with running(f"sqlite:///{tmp_path}/store.db") as store:

        async def lead(holder: str, name: str, token: str, expected: int) -> int:
            begun_s = time.monotonic()
            requires: list[Any] = [] if planted else [Fence(LEASE, holder)]
            (entry,) = await store.commit([put(name, token)], requires)
            recorder.swapped(name, expected, entry.revision, token, begun_s, time.monotonic())
            return entry.revision

        await store.commit([put("leader", "", resource="leases", fence="one/1")])
        first = await lead("one/1", "a", "from one", 0)
        await store.commit([put("leader", "", resource="leases", fence="two/2")])
        await lead("two/2", "a", "from two", first)
        if planted:
            await lead("one/1", "a", "late", first)
        else:
            with pytest.raises(RequirementFailed):
                await lead("one/1", "a", "late", first)
    found = recorder.problems()
    assert bool(found) == planted, found
    if planted:
        assert "came between" in found[0]
