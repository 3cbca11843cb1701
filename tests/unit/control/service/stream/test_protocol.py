"""One stream as a machine: what is sent, in which order, and what the cursor promises."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.database.position import Position
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.model import Failure, Loaded
from shoal.control.service.stream.protocol import (
    FullSync,
    Load,
    Resume,
    Send,
    SessionConfig,
    Wait,
    WatchSession,
    WentBack,
    decide,
)
from shoal.sync.digest import BUCKETS, bucket_of
from shoal.sync.keys import Place, StreamKind
from shoal.sync.versions import Cursor, decode_cursor

PLACE = Place("c1", "s1")
KEYS = {"main": b"key", "other": b"other"}


def an_index() -> DesiredIndex:
    index = DesiredIndex(KEYS)
    index.moved("main", Position(1, 0, 0))
    return index


def put(index: DesiredIndex, key: str, number: int, action: str = "apply", *, by_user: bool = False) -> None:
    index.put(PLACE, StreamKind.DEPLOYMENTS, key, DesiredEntry("main", number, action, by_user))
    index.moved("main", Position(1, number, index.positions["main"].oldest))


def a_session(index: DesiredIndex, **options: object) -> WatchSession:
    place_index = index.of(PLACE, StreamKind.DEPLOYMENTS)
    return WatchSession(index, place_index, SessionConfig(**options), wake=lambda: None, random=lambda: 0.5)  # type: ignore[arg-type]


def load(
    index: DesiredIndex, command: Load, failing: frozenset[str] = frozenset()
) -> dict[str, Loaded | Failure | None]:
    entries = index.of(PLACE, StreamKind.DEPLOYMENTS).entries
    return {
        key: Failure.LATER if key in failing else Loaded(entries[key].number, key.encode()) if key in entries else None
        for key in command.keys
    }


def drain(index: DesiredIndex, session: WatchSession, now: float = 0.0) -> list[str]:
    """Everything said until it waits: names of events, and keys of objects."""
    said: list[str] = []
    while True:
        match session.next(now):
            case Send(events):
                said += [event.event.field for event in events if event.event is not None]
            case Load() as command:
                said += [key for key, _ in session.loaded(load(index, command), now)]
            case _:
                return said


def test_how_a_stream_begins_depends_on_what_the_cursor_has_seen() -> None:
    at = {"main": Position(2, 100, 40)}
    assert isinstance(decide(Cursor({}), at), FullSync)
    assert decide(Cursor({"main": (2, 100)}), at) == Resume(Cursor({"main": (2, 100)}))
    assert isinstance(decide(Cursor({"main": (2, 40)}), at), Resume)
    too_old, before = decide(Cursor({"main": (2, 39)}), at), decide(Cursor({"main": (1, 99)}), at)
    assert isinstance(too_old, FullSync) and not too_old.observe_only
    assert isinstance(before, FullSync) and before.observe_only
    assert decide(Cursor({"main": (2, 101)}), at) == WentBack("main", 2)
    assert decide(Cursor({"main": (3, 1)}), at) == WentBack("main", 3)
    two = at | {"other": Position(1, 5, 0)}
    new = decide(Cursor({"main": (2, 100)}), two)
    assert isinstance(new, FullSync) and not new.observe_only
    worst = decide(Cursor({"main": (2, 1), "other": (1, 6)}), two)
    assert worst == WentBack("other", 1), "a database that went back matters more than a cursor that is too old"


def test_a_full_sync_is_begin_items_keys_end_with_what_users_changed_first() -> None:
    index = an_index()
    put(index, "deployment/a", 1)
    put(index, "deployment/b", 2, by_user=True)
    put(index, "deployment/c", 3)
    put(index, "deployment/gone", 4, "delete")
    session = a_session(index)
    session.begin(FullSync("new"), 0.0)
    assert drain(index, session) == [
        "welcome", "sync_begin", "deployment/b", "deployment/gone", "deployment/c", "deployment/a", "sync_keys", "sync_end",
    ]  # fmt: skip


def test_a_users_change_overtakes_a_sync_under_way() -> None:
    index = an_index()
    for n in range(1, 300):
        put(index, f"deployment/{n}", n)
    session = a_session(index, batch=10)
    session.begin(FullSync("new"), 0.0)
    session.next(0.0)
    command = session.next(0.0)
    assert isinstance(command, Load) and not command.urgent
    session.loaded(load(index, command), 0.0)
    put(index, "deployment/urgent", 500, by_user=True)
    assert session.next(0.0) == Load(("deployment/urgent",), urgent=True)


def test_changes_of_one_key_are_one_object_and_the_newest() -> None:
    index = an_index()
    session = a_session(index)
    session.begin(Resume(index.now()), 0.0)
    drain(index, session)
    for number in range(1, 50):
        put(index, "deployment/a", number)
    assert drain(index, session) == ["deployment/a"]


def test_a_change_while_a_key_is_being_loaded_is_sent_too() -> None:
    index = an_index()
    session = a_session(index)
    session.begin(Resume(index.now()), 0.0)
    drain(index, session)
    put(index, "deployment/a", 1)
    command = session.next(0.0)
    assert isinstance(command, Load)
    found = load(index, command)
    put(index, "deployment/a", 2)
    assert [loaded.number for _, loaded in session.loaded(found, 0.0)] == [1]
    assert drain(index, session) == ["deployment/a"]


def test_the_cursor_stays_before_a_key_that_cannot_be_loaded_and_others_pass() -> None:
    index = an_index()
    session = a_session(index, progress_every_s=0.0)
    session.begin(Resume(index.now()), 0.0)
    drain(index, session)
    put(index, "deployment/bad", 1)
    put(index, "deployment/good", 2)
    command = session.next(0.0)
    assert isinstance(command, Load)
    sent = session.loaded(load(index, command, frozenset({"deployment/bad"})), 0.0)
    assert [key for key, _ in sent] == ["deployment/good"]
    assert session.cursor.positions == {"main": (1, 0)}
    waiting = session.next(0.0)
    assert isinstance(waiting, Wait) and 0 < waiting.until <= 0.2
    assert drain(index, session, 1.0) == ["deployment/bad", "progress"]
    assert session.cursor.positions == {"main": (1, 2)}


def test_a_row_that_can_never_be_shown_is_skipped_until_it_changes() -> None:
    index = an_index()
    session = a_session(index)
    session.begin(Resume(index.now()), 0.0)
    drain(index, session)
    put(index, "deployment/broken", 1)
    command = session.next(0.0)
    assert isinstance(command, Load)
    assert session.loaded({"deployment/broken": Failure.BROKEN}, 0.0) == []
    assert session.cursor == index.now()
    put(index, "deployment/broken", 2)
    assert drain(index, session) == ["deployment/broken"]


def test_a_digest_comes_only_when_everything_before_its_cursor_was_sent() -> None:
    index = an_index()
    session = a_session(index, digest_every_s=10.0)
    session.begin(Resume(index.now()), 0.0)
    assert drain(index, session) == ["welcome"]
    put(index, "deployment/a", 1)
    assert drain(index, session, 5.0) == ["deployment/a", "digest"]
    assert drain(index, session, 14.9) == []
    assert drain(index, session, 15.1) == ["digest"]


def test_asking_for_buckets_again_and_again_is_one_sync_at_a_time() -> None:
    index = an_index()
    for n in range(1, 100):
        put(index, f"deployment/{n}", n)
    session = a_session(index)
    session.begin(Resume(index.now()), 0.0)
    drain(index, session)
    for _ in range(1000):
        session.ask(range(BUCKETS))
    session.ask([-1, 256, 10**6])
    said = drain(index, session)
    assert said.count("sync_begin") == 1 and said.count("deployment/5") == 1


def test_keys_of_a_sync_come_in_parts_of_at_most_5000() -> None:
    index = an_index()
    for n in range(1, 12_002):
        put(index, f"deployment/{n}", n)
    session = a_session(index, once=True, batch=5000)
    session.begin(FullSync("asked"), 0.0)
    said = drain(index, session)
    assert said.count("sync_keys") == 3 and said[-1] == "sync_end" and "welcome" not in said


class Receiver:
    """An agent that remembers versions and its cursor, which moves only when it is told."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.cursor = ""
        self.seen: dict[str, int] = {}
        self.named: set[str] = set()
        self.buckets: set[int] = set()

    def take(self, index: DesiredIndex, event: object) -> None:
        said = event.event  # type: ignore[attr-defined]
        if said.field == "sync_begin":
            self.named, self.buckets = set(), set(said.value.buckets)
        elif said.field == "sync_keys":
            self.named |= set(said.value.keys)
        elif said.field in ("progress", "digest"):
            self.cursor = said.value.cursor
        elif said.field == "sync_end":
            if not self.buckets:
                self.cursor = said.value.cursor
            at = decode_cursor(said.value.cursor, KEYS).positions["main"][1]
            for key, number in list(self.held.items()):
                if key not in self.named and number <= at and (not self.buckets or bucket_of(key) in self.buckets):
                    del self.held[key]

    def item(self, key: str, number: int, action: str) -> None:
        if number < self.seen.get(key, 0):
            return
        self.seen[key] = number
        if action == "apply":
            self.held[key] = number
        else:
            self.held.pop(key, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 12), st.sampled_from(["apply", "apply", "delete"]), st.booleans()),
        st.tuples(st.just("step"), st.integers(0, 6)),
        st.tuples(st.just("fail"), st.integers(0, 12)),
        st.tuples(st.just("cut")),
        st.tuples(st.just("ask"), st.integers(0, 255)),
        st.tuples(st.just("later")),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 2**16))
def test_whatever_breaks_on_the_way_the_agent_ends_with_what_is_desired(steps: list[tuple], seed: int) -> None:  # type: ignore[type-arg]
    index, agent, chance = an_index(), Receiver(), random.Random(seed)
    place_index = index.of(PLACE, StreamKind.DEPLOYMENTS)
    failing: set[str] = set()
    now, number = 0.0, 0

    def connect() -> WatchSession:
        config = SessionConfig(batch=2, digest_every_s=5.0, progress_every_s=chance.choice([0.0, 1.0]))
        session = WatchSession(index, place_index, config, wake=lambda: None, random=chance.random)
        how = decide(decode_cursor(agent.cursor, KEYS), index.positions)
        assert not isinstance(how, WentBack)
        session.begin(how, now)
        return session

    def step(session: WatchSession) -> bool:
        match session.next(now):
            case Send(events):
                for event in events:
                    agent.take(index, event)
            case Load() as command:
                found = load(index, command, frozenset(failing))
                actions = {key: place_index.entries[key].action for key in command.keys if key in place_index.entries}
                for key, loaded in session.loaded(found, now):
                    agent.item(key, loaded.number, actions[key])
            case _:
                return False
        return True

    session = connect()
    for kind, *rest in steps:
        if kind == "change":
            number += 1
            put(index, f"deployment/{rest[0]}", number, rest[1], by_user=rest[2])
        elif kind == "step":
            for _ in range(rest[0]):
                step(session)
        elif kind == "fail":
            failing ^= {f"deployment/{rest[0]}"}
        elif kind == "cut":
            session.close()
            session = connect()
        elif kind == "ask":
            session.ask([rest[0], bucket_of("deployment/1")])
        else:
            now += 3.0
        assert session.cursor.positions["main"][1] <= number
    failing.clear()
    session.close()
    session = connect()  # and once more: what the cursor left out must come
    for _ in range(1000):
        if not step(session):
            now += 7.0
            if not step(session):
                break
    assert agent.held == {key: entry.number for key, entry in place_index.entries.items() if entry.wanted}
    assert not place_index.listeners - {session}
