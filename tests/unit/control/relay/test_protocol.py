"""The mirror of a relay and the sessions over it: machines without a network, a whole conversation in a few lines."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from protobuf import Oneof

from shoal.control.relay.protocol import Ask, Complete, Mirror, Passing, RelaySession, Restarted, decide_alone
from shoal.control.service.stream.protocol import FullSync, Load, Resume, Send, SessionConfig, Wait
from shoal.sync.digest import Digest
from shoal.sync.keys import Place
from shoal.sync.versions import Cursor, Version, encode_cursor, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

KEYS = {"main": b"k" * 32}


def cursor(number: int, incarnation: int = 1) -> str:
    return encode_cursor(Cursor({"main": (incarnation, number)}), KEYS)


def event(field: str, value: Any) -> bytes:
    return pb.WatchEvent(event=cast(Any, Oneof(field, value))).to_binary()


def item(key: str, number: int, *, gone: bool = False, incarnation: int = 1, correlation: str = "") -> bytes:
    version = pb.Version(database="main", incarnation=incarnation, number=number)
    state: Any = Oneof("delete", pb.Delete()) if gone else Oneof("deployment", pb.DeploymentState(deployment=key))
    return event("item", pb.Item(key=key, version=version, action=state, correlation=correlation))


def synced(mirror: Mirror, items: dict[str, int], at: int, *, incarnation: int = 1, sync: int = 1) -> list[Any]:
    version = pb.Version(database="main", incarnation=incarnation, number=at)
    commands = mirror.receive(event("sync_begin", pb.SyncBegin(sync=sync, cursor=cursor(at), versions=[version])))
    for key, number in items.items():
        commands += mirror.receive(item(key, number, incarnation=incarnation))
    commands += mirror.receive(event("sync_keys", pb.SyncKeys(sync=sync, keys=list(items))))
    return commands + mirror.receive(event("sync_end", pb.SyncEnd(sync=sync, cursor=cursor(at, incarnation))))


def a_mirror(items: dict[str, int], at: int) -> Mirror:
    mirror = Mirror(Place("c1", "default"), "deployments")
    mirror.receive(event("welcome", pb.Welcome(reason="the agent has no cursor")))
    assert Complete() in synced(mirror, items, at)
    return mirror


def session(mirror: Mirror, hello: str = "") -> RelaySession:
    return RelaySession(mirror, hello, SessionConfig(), wake=lambda: None, random=lambda: 0.5)


def said(of: RelaySession, mirror: Mirror, now: float = 0.0) -> list[tuple[str, Any]]:
    """Everything that the session has to say at this moment."""
    found: list[tuple[str, Any]] = []
    while True:
        match of.next(now):
            case Send(events):
                found += [(one.event.field, one.event.value) for one in events if one.event is not None]
            case Load(keys):
                there = mirror.request(of.place, keys, lambda _: None, urgent=False)
                for _, loaded in of.loaded(there, now):
                    one = pb.WatchEvent.from_binary(loaded.data).event
                    assert one is not None
                    found.append((one.field, one.value))
            case Wait():
                return found
            case other:
                raise AssertionError(other)


def test_an_agent_gets_a_full_sync_from_the_mirror_at_the_mirrors_cursor() -> None:
    mirror = a_mirror({"deployment/a": 3, "deployment/b": 5}, 7)
    of = session(mirror)
    of.begin(FullSync("no cursor"), 0.0)
    events = said(of, mirror)
    assert [field for field, _ in events] == ["welcome", "sync_begin", "item", "item", "sync_keys", "sync_end"]
    assert events[-1][1].cursor == cursor(7)


def test_a_cursor_is_only_passed_on_once_everything_before_it_was_sent() -> None:
    mirror = a_mirror({"deployment/a": 3}, 7)
    of = session(mirror, cursor(7))
    of.begin(Resume(read_cursor(cursor(7))), 0.0)
    assert [field for field, _ in said(of, mirror)] == ["welcome"]
    mirror.receive(item("deployment/a", 9))
    mirror.receive(event("progress", pb.Progress(cursor=cursor(9))))
    assert of.cursor == read_cursor(cursor(7)), "the change was not sent yet"
    events = said(of, mirror, 1.0)
    assert [field for field, _ in events] == ["item", "progress"]
    assert events[-1][1].cursor == cursor(9), "as the control plane signed it"


def test_an_older_or_repeated_state_changes_nothing_and_a_tombstone_is_kept() -> None:
    mirror = a_mirror({"deployment/a": 3}, 7)
    mirror.receive(item("deployment/a", 9, gone=True))
    mirror.receive(item("deployment/a", 8))
    mirror.receive(item("deployment/a", 9))
    assert list(mirror.index.wanted()) == []
    late = session(mirror, cursor(7))
    late.begin(Resume(read_cursor(cursor(7))), 0.0)
    assert said(late, mirror)[1][1].action.field == "delete", "who comes back hears of it"


def test_a_digest_that_differs_is_asked_for_and_one_that_is_equal_moves_the_cursor() -> None:
    mirror = a_mirror({"deployment/a": 3}, 7)
    theirs = Digest()
    theirs.put("deployment/a", "main:1:4")
    commands = mirror.receive(event("digest", pb.Digest(cursor=cursor(8), buckets=theirs.buckets)))
    assert [type(command) for command in commands] == [Ask] and mirror.cursor == cursor(7)
    mirror.receive(item("deployment/a", 4))
    assert mirror.receive(event("digest", pb.Digest(cursor=cursor(8), buckets=theirs.buckets))) == []
    assert mirror.cursor == cursor(8)


def test_another_history_empties_the_mirror_and_says_so() -> None:
    mirror = a_mirror({"deployment/a": 3, "deployment/old": 6}, 7)
    commands = mirror.receive(event("welcome", pb.Welcome(reason="a new incarnation", observe_only=True)))
    assert commands == [Restarted("a new incarnation")] and not mirror.complete
    assert Complete() in synced(mirror, {"deployment/a": 2}, 4, incarnation=2)
    assert list(mirror.index.wanted()) == ["deployment/a"] and mirror.cursor == cursor(4, 2)


def test_a_sync_that_does_not_name_a_key_drops_it_unless_it_is_newer() -> None:
    mirror = a_mirror({"deployment/a": 3, "deployment/b": 5}, 7)
    assert mirror.receive(event("welcome", pb.Welcome(reason="the cursor is too old"))) == [], "not before the sync"
    mirror.receive(item("deployment/new", 20))
    assert synced(mirror, {"deployment/a": 3}, 15, sync=2) == [Complete()]
    assert sorted(mirror.index.wanted()) == ["deployment/a", "deployment/new"]


def test_alone_a_relay_decides_only_what_it_knows() -> None:
    mirror = a_mirror({"deployment/a": 3}, 7)
    assert isinstance(decide_alone("", mirror), FullSync)
    assert isinstance(decide_alone(cursor(7), mirror), Resume)
    assert isinstance(decide_alone(cursor(6), mirror), FullSync), "tombstones from before the mirror are not known"
    assert decide_alone(cursor(8), mirror) is None, "ahead of the mirror: perhaps the database went back"
    assert decide_alone(cursor(7, 2), mirror) is None, "another history"
    other = decide_alone("other.1.5.00000000000000000000", mirror)
    assert isinstance(other, FullSync) and not other.observe_only


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans(), st.booleans()), max_size=30))
def test_an_agent_that_listens_now_and_then_has_in_the_end_what_the_mirror_has(
    changes: list[tuple[str, bool, bool]],
) -> None:
    mirror = a_mirror({}, 0)
    of = session(mirror)
    of.begin(FullSync("no cursor"), 0.0)
    has: dict[str, int] = {}
    named = ""

    def listen(now: float) -> None:
        nonlocal named
        for field, value in said(of, mirror, now):
            if field == "item" and value.action.field == "delete":
                has.pop(value.key, None)
            elif field == "item":
                has[value.key] = value.version.number
            elif getattr(value, "cursor", ""):
                named = value.cursor
                assert all(number <= read_cursor(named).positions["main"][1] for number in has.values())

    listen(0.0)
    for number, (key, gone, hears) in enumerate(changes, 1):
        mirror.receive(item(f"deployment/{key}", number, gone=gone))
        mirror.receive(event("progress", pb.Progress(cursor=cursor(number))))
        if hears:
            listen(float(number))
    listen(1000.0)
    assert has == {key: mirror.index.entries[key].number for key in mirror.index.wanted()}
    assert named == cursor(len(changes))


def test_a_change_that_a_request_led_to_is_told_with_its_id_and_passed_on_with_it() -> None:
    mirror = a_mirror({"deployment/a": 1}, at=1)
    change = item("deployment/a", 2, correlation="deploy-7")
    assert mirror.receive(change) == [Passing("deployment/a", Version("main", 1, 2), "deploy-7")]
    assert mirror.receive(change) == [] and mirror.receive(item("deployment/a", 3)) == []
    mirror.receive(change := item("deployment/b", 4, correlation="deploy-8"))
    found = mirror.request(Place("c1", "default"), ("deployment/b",), lambda _: None, urgent=False)["deployment/b"]
    assert found is not None and found.data == change
