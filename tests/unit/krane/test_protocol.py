"""The machine of one stream: whatever is cut, repeated or out of order, the agent ends up with what is desired."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from krane_doubles import Desired, event, version
from krane_model import OBJECTS, ModelAgent, hello_of

from shoal.krane.protocol import FindAbsent, Save, Send, WatchMachine, version_of
from shoal.sync.versions import Version, read_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb


def _item(key: str, number: int, desired: Desired | None = None) -> pb.Item:
    made = (desired or Desired()).want(key)
    made.version = pb.Version(database="main", incarnation=1, number=number)
    return made


_change = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(OBJECTS)),
    st.tuples(st.just("unwant"), st.sampled_from(OBJECTS)),
    st.tuples(st.just("lose"), st.sampled_from(OBJECTS)),
)
_fault = st.sampled_from(["deliver"] * 6 + ["repeat", "swap", "cut", "restart", "digest"])


def _change_it(server: Desired, kind: str, key: str) -> list[pb.WatchEvent]:
    if kind == "want":
        return [event("item", server.want(key)), server.progress()]
    if key not in server.items:
        return []
    if kind == "unwant":
        return [event("item", server.unwant(key)), server.progress()]
    server.lose(key)
    return []


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(_change, max_size=12),
    during=st.lists(st.tuples(_change, st.lists(_fault, min_size=1, max_size=6)), max_size=15),
)
def test_cut_repeated_and_reordered_messages_still_lead_to_the_desired_state(
    before: list[tuple[str, str]], during: list[tuple[tuple[str, str], list[str]]]
) -> None:
    server = Desired()
    for kind, key in before:
        _change_it(server, kind, key)
    agent = ModelAgent(server)
    queue = agent.connect()
    for (kind, key), faults in during:
        queue += _change_it(server, kind, key)
        for fault in faults:
            if fault == "digest":
                queue.append(server.digest())
            if agent.asked:
                buckets, agent.asked = agent.asked, []
                queue += server.sync(buckets)
            if fault in ("cut", "restart"):
                if fault == "restart":
                    agent.restart()
                else:
                    agent.machine.disconnect()
                queue = agent.connect()
            if not queue:
                continue
            if fault == "swap" and len(queue) > 1:
                queue[0], queue[1] = queue[1], queue[0]
            message = queue.pop(0)
            agent.receive(message)
            if fault == "repeat":
                agent.receive(message)
    agent.converge()
    assert agent.cluster == {key: version_of(item) for key, item in server.wanted().items()}
    assert read_cursor(agent.disk_cursor).positions == {"main": (1, server.number)}


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(_change, min_size=1, max_size=20), at=st.integers(0, 40))
def test_a_full_sync_cut_at_any_message_is_made_up_for(changes: list[tuple[str, str]], at: int) -> None:
    server = Desired()
    agent = ModelAgent(server)
    for kind, key in changes:
        _change_it(server, kind, key)
    for message in agent.connect()[:at]:
        agent.receive(message)
    cut_cursor = agent.disk_cursor
    agent.restart()
    agent.converge()
    assert agent.cluster == {key: version_of(item) for key, item in server.wanted().items()}
    if at < len(server.items):
        assert cut_cursor == ""  # the middle of a full sync is no place to resume from


@settings(max_examples=60, deadline=None)
@given(
    early=st.lists(_change, min_size=1, max_size=10),
    late=st.lists(_change, max_size=10),
    after=st.lists(_change, max_size=5),
)
def test_a_restored_backup_wins_over_what_came_after_it(
    early: list[tuple[str, str]], late: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    server = Desired()
    agent = ModelAgent(server)
    for kind, key in early:
        _change_it(server, kind, key)
    agent.converge()
    backup, number = dict(server.items), server.number
    for kind, key in late:
        _change_it(server, kind, key)
    agent.converge()
    server.restore(backup, number)
    for kind, key in after:
        _change_it(server, kind, key)
    agent.converge()
    assert agent.machine.observe_only
    assert agent.cluster == {key: version_of(item) for key, item in server.wanted().items()}


def test_progress_inside_a_full_sync_does_not_move_the_cursor() -> None:
    server = Desired()
    server.want(OBJECTS[0])
    machine = WatchMachine()
    hello_of(machine)
    begin, *_ = server.sync(())
    for message in (event("welcome", pb.Welcome()), begin, server.progress()):
        assert not any(isinstance(command, Save) for command in machine.receive(message))


def test_the_cursor_is_acknowledged_only_after_it_is_saved() -> None:
    server = Desired()
    machine = WatchMachine()
    for message in server.hello(hello_of(machine)):
        commands = machine.receive(message)
    assert [type(command) for command in commands] == [FindAbsent, Save] and machine.cursor == ""
    (answer,) = machine.saved(server.cursor)
    assert isinstance(answer, Send) and machine.cursor == server.cursor


def test_an_equal_or_older_version_is_not_taken_again() -> None:
    machine = WatchMachine(items=[_item("deployment/a", 5)])
    assert machine.receive(event("item", _item("deployment/a", 5))) == []
    assert machine.receive(event("item", _item("deployment/a", 4))) == []
    assert len(machine.receive(event("item", _item("deployment/a", 6)))) == 1


def test_a_late_state_after_its_tombstone_is_not_taken() -> None:
    server = Desired()
    state = server.want("deployment/a")
    tombstone = server.unwant("deployment/a")
    machine = WatchMachine()
    assert len(machine.receive(event("item", tombstone))) == 1
    assert machine.receive(event("item", state)) == []


def test_only_versions_up_to_the_moment_of_the_sync_are_suspect() -> None:
    server = Desired()
    machine = WatchMachine(items=[_item("deployment/old", 1), _item("deployment/new", 50)])
    server.number = 10
    found: list[FindAbsent] = []
    for message in server.sync(()):
        found += [command for command in machine.receive(message) if isinstance(command, FindAbsent)]
    (command,) = found
    live = {"deployment/live": version(3), "deployment/unversioned": None, "deployment/elsewhere": Version("b", 1, 1)}
    assert machine.suspects(command.sync, live) == ["deployment/live", "deployment/old"]


def test_messages_of_another_sync_or_of_a_newer_release_are_counted_and_ignored() -> None:
    machine = WatchMachine()
    assert machine.receive(event("sync_keys", pb.SyncKeys(sync=9, keys=["x"]))) == []
    assert machine.receive(event("sync_end", pb.SyncEnd(sync=9, cursor="x"))) == []
    assert machine.receive(pb.WatchEvent()) == []
    assert machine.receive(event("item", pb.Item(key="deployment/a"))) == []
    assert machine.ignored == 4


def test_what_is_being_removed_is_not_suspected_again() -> None:
    server = Desired()
    server.want("deployment/a")
    machine = WatchMachine(items=[server.unwant("deployment/a", by_user=True)])
    live: dict[str, Version | None] = {"deployment/a": version(1)}
    del server.items["deployment/a"]
    found = [command for message in server.sync(()) for command in machine.receive(message)]
    (absent,) = [command for command in found if isinstance(command, FindAbsent)]
    assert machine.suspects(absent.sync, live) == []
