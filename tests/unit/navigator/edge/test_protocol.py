"""The edge's state machine: after any events and disconnects, edge and manager have the same rows."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.navigator.edge.config import ConnectionConfig, SyncConfig
from shoal.navigator.edge.protocol import WINDOW, Accept, Claim, EdgeMachine, Reject, Run, Stop
from shoal.navigator.edge.rows import TOO_LARGE
from shoal.testing.navigator import ManagerModel
from shoal.wire.navigator.v1 import navigator_pb as pb

KINDS = ("pods", "services")
CLAIM = Claim(edge="e1", cluster="east", metadata={"region": "eu"}, software="shoal/test")
SMALL = 16 * 1024


def make(*, sync: SyncConfig | None = None, **connection: Any) -> EdgeMachine:
    return EdgeMachine(KINDS, sync=sync or SyncConfig(), connection=ConnectionConfig(**connection))


def data(text: str, size: int = 0) -> bytes:
    body = "x" * size
    return f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{text}"}},"spec":"{body}"}}'.encode()


class World:
    """An edge's machine and a manager's model, with the messages between them."""

    def __init__(self, machine: EdgeMachine, model: ManagerModel | None = None) -> None:
        self.machine = machine
        self.model = model or ManagerModel()
        self.now_s = 100.0
        self.up: deque[pb.EdgeMessage] = deque()
        self.down: deque[pb.ManagerMessage] = deque()
        self.unacknowledged: deque[int] = deque()  # sequences of states and deltas
        self.commands: list[Any] = []

    def connect(self) -> None:
        self.unacknowledged.clear()
        first = self.machine.connect(CLAIM, self.now_s, self.now_ms)
        assert first.sequence == 0 and first.epoch == 0
        self.down.append(self.model.accept())

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def cut(self) -> None:
        self.unacknowledged.clear()
        self.up.clear()
        self.down.clear()
        self.machine.disconnect()

    def pull(self) -> bool:
        message = self.machine.next(self.now_s, self.now_ms)
        if message is not None:
            assert message.body is not None
            if message.body.field in ("state", "delta"):
                self.unacknowledged.append(message.sequence)
            self.up.append(pb.EdgeMessage.from_binary(message.to_binary()))
        return message is not None

    def deliver_up(self) -> None:
        if self.up:
            self.down.extend(self.model.receive(self.up.popleft()))

    def deliver_down(self) -> None:
        if self.down:
            message = self.down.popleft()
            if message.body is not None and message.body.field == "received":
                while self.unacknowledged and self.unacknowledged[0] <= message.body.value.sequence:
                    self.unacknowledged.popleft()
            self.commands += self.machine.receive(message, self.now_s)

    def settle(self, seconds: float = 0.2) -> list[str]:
        """Deliver all messages that are due; returns their names."""
        said: list[str] = []
        end_s = self.now_s + seconds
        while True:
            while self.pull() or self.up or self.down:
                said += [each.body.field for each in self.up if each.body is not None]
                while self.up:
                    self.deliver_up()
                while self.down:
                    self.deliver_down()
            due_s = self.machine.due_s(self.now_s)
            if due_s > end_s:
                self.now_s = end_s
                return said
            assert due_s >= self.now_s - 60, "it is due and nothing comes"
            self.now_s = max(self.now_s, due_s)

    def held(self, kind: str) -> dict[str, bytes]:
        return {key: row for key, (row, _) in self.machine.kind_rows[kind].rows.items()}

    def equal(self, kind: str) -> bool:
        return self.model.rows.get(kind, {}) == self.held(kind)


def ready(world: World, *kinds: str) -> None:
    for kind in kinds or KINDS:
        world.machine.ready(kind)
        world.machine.status(kind, "synced", "", world.now_ms)


# whatever happens

KEYS = st.sampled_from([f"default/o{n}" for n in range(12)])
SIZES = st.sampled_from([0, 10, 3000, 7000, 20_000])


class Conversation(RuleBasedStateMachine):
    """Rows come and go, messages arrive late, the line is cut, the manager loses rows, kinds are read at any time."""

    @initialize(
        queue=st.sampled_from([1, 3, 1000]),
        limit=st.sampled_from([SMALL, SMALL, 20_000, 4 << 20]),
        amidst=st.integers(0, 10),
    )
    def begin(self, queue: int, limit: int, amidst: int) -> None:
        """In the middle of a first sync, or before it."""
        sync = SyncConfig(interval_s=10, min_interval_s=1, max_interval_s=20, busy_changes=2)
        self.world = World(make(sync=sync, send_queue=queue), ManagerModel(max_message_bytes=limit))
        self.count = 0
        if amidst:
            self.fill("pods")
            ready(self.world, "pods")
            self.world.connect()
            self.world.deliver_down()
            self.pull(amidst)

    @property
    def connected(self) -> bool:
        return self.world.machine.phase != "idle"

    @rule(kind=st.sampled_from(KINDS), key=KEYS, size=SIZES)
    def put(self, kind: str, key: str, size: int) -> None:
        self.count += 1
        self.world.machine.put(kind, key, data(f"{key}-{self.count}", size))

    @rule(kind=st.sampled_from(KINDS))
    def fill(self, kind: str) -> None:
        """Enough for a message per row where messages are small."""
        for number in range(12):
            self.put(kind, f"default/o{number}", 7000)

    @rule(kind=st.sampled_from(KINDS), key=KEYS)
    def put_one_of_two(self, kind: str, key: str) -> None:
        self.world.machine.put(kind, key, data(key))

    @rule(kind=st.sampled_from(KINDS), key=KEYS)
    def remove(self, kind: str, key: str) -> None:
        self.world.machine.remove(kind, key)

    @rule(kind=st.sampled_from(KINDS))
    def read(self, kind: str) -> None:
        ready(self.world, kind)

    @rule(kind=st.sampled_from(KINDS), state=st.sampled_from(["failing", "synced", "forbidden"]))
    def status(self, kind: str, state: str) -> None:
        self.world.machine.status(kind, state, "why", self.world.now_ms)

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.world.connect()

    @rule()
    def cut(self) -> None:
        self.world.cut()

    @rule(count=st.sampled_from([1, 1, 2, 3, 20]))
    def pull(self, count: int) -> None:
        for _ in range(count):
            self.world.pull()

    @rule(count=st.integers(1, 20))
    def deliver_up(self, count: int) -> None:
        for _ in range(count):
            self.world.deliver_up()

    @rule(count=st.integers(1, 20))
    def deliver_down(self, count: int) -> None:
        for _ in range(count):
            self.world.deliver_down()

    @rule(seconds=st.sampled_from([0.01, 0.1, 3.0, 15.0]))
    def wait(self, seconds: float) -> None:
        self.world.now_s += seconds

    @rule(kind=st.sampled_from(KINDS))
    def the_manager_asks_for_all(self, kind: str) -> None:
        if self.world.machine.phase == "live":
            self.world.down.append(self.world.model.resync([kind]))

    @rule(kind=st.sampled_from(KINDS), key=KEYS)
    def the_manager_loses_a_row(self, kind: str, key: str) -> None:
        self.world.model.forget(kind, key)

    @invariant()
    def the_window_is_kept(self) -> None:
        if hasattr(self, "world"):
            assert len(self.world.unacknowledged) <= WINDOW

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        ready(world)
        if not self.connected:
            world.connect()
        world.settle()
        world.settle(60)  # a verification finds what the manager lost
        assert all(world.equal(kind) for kind in KINDS)
        assert world.machine.settled


Conversation.TestCase.settings = settings(max_examples=50, stateful_step_count=35, deadline=None)
TestConversation = Conversation.TestCase


# what is sent, and when


def test_equal_kinds_are_not_sent_again_after_a_reconnect() -> None:
    world = World(make())
    for number in range(100):
        world.machine.put("pods", f"default/p{number}", data(str(number)))
    world.machine.put("services", "default/s", data("s"))
    ready(world)
    world.connect()
    assert world.settle().count("state") == 2
    world.cut()
    world.machine.put("services", "default/s", data("other"))
    world.connect()
    said = world.settle()
    assert said.count("state") == 1 and world.equal("services") and world.equal("pods")


def test_a_cluster_larger_than_a_message_is_sent_in_chunks_below_the_limit() -> None:
    world = World(make(max_message_bytes=SMALL), ManagerModel(max_message_bytes=SMALL))
    for number in range(200):
        world.machine.put("pods", f"default/p{number}", data(str(number), 1000))
    ready(world)
    world.connect()
    said = world.settle()
    assert said.count("state") > 10
    assert world.equal("pods") and SMALL / 4 < world.model.largest_bytes <= SMALL


def test_an_object_larger_than_a_message_becomes_a_stub_and_holds_up_nothing() -> None:
    world = World(make(), ManagerModel(max_message_bytes=SMALL))
    world.machine.put("pods", "default/large", data("large", 50_000))
    world.machine.put("pods", "default/small", data("small"))
    ready(world)
    world.connect()
    world.settle()
    assert world.equal("pods")
    assert TOO_LARGE in world.model.object("pods", "default/large")["metadata"]["annotations"]
    world.machine.put("pods", "default/large", data("large", 10))
    world.settle()
    assert world.model.object("pods", "default/large")["spec"] == "x" * 10


def test_a_change_that_was_superseded_is_never_sent() -> None:
    world = World(make())
    ready(world)
    world.connect()
    world.settle()
    before = world.model.messages
    for number in range(50):
        world.machine.put("pods", "default/p", data(str(number)))
    world.settle()
    assert world.model.messages == before + 1 and world.equal("pods")


def test_a_change_that_was_taken_back_is_not_sent() -> None:
    world = World(make())
    world.machine.put("pods", "default/p", data("a"))
    ready(world)
    world.connect()
    world.settle()
    before = world.model.messages
    world.machine.put("pods", "default/p", data("b"))
    world.machine.put("pods", "default/p", data("a"))
    world.machine.put("pods", "default/q", data("q"))
    world.machine.remove("pods", "default/q")
    assert world.settle() == [] and world.model.messages == before


def test_more_changes_than_the_queue_holds_send_the_kind_whole() -> None:
    for limit, expected in ((5, "state"), (500, "delta")):
        world = World(make(send_queue=limit))
        ready(world)
        world.connect()
        world.settle()
        for number in range(50):
            world.machine.put("pods", f"default/p{number}", data(str(number)))
        assert set(world.settle()) == {expected}
        assert world.equal("pods") and world.machine.overflows == (expected == "state")


def test_nothing_is_sent_of_a_kind_that_has_not_been_read() -> None:
    world = World(make())
    world.model.rows["pods"] = {"default/old": data("old")}
    world.machine.put("services", "default/s", data("s"))
    ready(world, "services")
    world.connect()
    world.settle(100)
    assert world.model.keys("pods") == {"default/old"}, "the last known state was dropped for an unread one"
    assert world.model.state("pods") == "waiting"
    ready(world, "pods")
    world.settle()
    assert world.model.keys("pods") == set()


def test_not_more_than_the_window_is_sent_without_an_acknowledgement() -> None:
    world = World(make(max_message_bytes=SMALL), ManagerModel(max_message_bytes=SMALL))
    for number in range(500):
        world.machine.put("pods", f"default/p{number}", data(str(number), 1000))
    ready(world)
    world.connect()
    world.deliver_down()
    while world.pull():
        pass
    assert len(world.up) == WINDOW


def test_parts_of_answers_do_not_wait_behind_a_sync_nor_the_sync_behind_them() -> None:
    world = World(make(max_message_bytes=SMALL), ManagerModel(max_message_bytes=SMALL))
    for number in range(500):
        world.machine.put("pods", f"default/p{number}", data(str(number), 1000))
    ready(world)
    world.connect()
    world.deliver_down()
    for number in range(4):
        world.machine.reply(pb.Reply(id="r", part=str(number).encode()))
    for _ in range(8):
        world.pull()
    said = [each.body.field for each in world.up if each.body is not None]
    assert said.count("reply") == 4 and said.count("state") >= 3


# verification


def test_a_verification_finds_what_the_manager_lost() -> None:
    world = World(make())
    for number in range(5):
        world.machine.put("pods", f"default/p{number}", data(str(number)))
    ready(world)
    world.connect()
    world.settle()
    world.model.forget("pods", "default/p3")
    world.settle(100)
    assert world.equal("pods") and world.machine.resyncs == 1


def test_the_interval_of_verifications_follows_the_changes() -> None:
    sync = SyncConfig(interval_s=30, min_interval_s=4, max_interval_s=90, busy_changes=10)
    world = World(make(sync=sync))
    ready(world)
    world.connect()
    world.settle()
    assert world.model.verifications == 1
    world.settle(29)
    assert world.model.verifications == 1
    world.settle(2)
    assert world.model.verifications == 2
    world.settle(300)
    assert world.machine.interval_s == 90, "nothing changes: the interval grows to the maximum"
    for _ in range(6):
        for number in range(11):
            world.machine.put("pods", f"default/p{number}", data(f"{world.now_s}-{number}"))
        world.settle(4.1)
    assert world.machine.interval_s == 4, "much changes: it shrinks to the minimum"
    world.machine.put("pods", "default/p0", data("last"))
    world.settle(5)
    assert world.machine.interval_s == 30


def test_a_quiet_cluster_costs_less_than_a_kilobyte_per_interval() -> None:
    from shoal.navigator.model import KINDS as ALL

    sync = SyncConfig()
    world = World(EdgeMachine(ALL, sync=sync, connection=ConnectionConfig()))
    for kind in ALL:
        world.machine.put(kind, "default/one", data("one"))
        world.machine.ready(kind)
        world.machine.status(kind, "synced", "", world.now_ms)
    world.connect()
    world.settle()
    sizes = 0
    end_s = world.now_s + 10 * sync.interval_s
    while world.now_s < end_s:
        world.now_s += 0.5
        while world.pull():
            sizes += len(world.up[-1].to_binary()) + 5
            world.deliver_up()
        while world.down:
            sizes += len(world.down[0].to_binary()) + 5
            world.deliver_down()
    assert 0 < sizes / 10 < 1000


# life signs


def test_silence_is_broken_after_the_keep_alive_interval_and_death_noticed_after_its_timeout() -> None:
    world = World(make(keep_alive_s=7, keep_alive_timeout_s=3))
    ready(world)
    world.connect()
    world.settle()
    assert world.settle(6) == []
    assert world.settle(2) == ["keep_alive"]
    assert world.machine.dead(world.now_s) == ""
    world.now_s += 7
    assert world.pull() and world.up.pop().body.field == "keep_alive"  # type: ignore[union-attr]
    assert world.machine.dead(world.now_s + 2.9) == ""
    assert "keep-alive" in world.machine.dead(world.now_s + 3)


def test_what_is_not_stored_in_time_is_noticed() -> None:
    world = World(make(request_timeout_s=5))
    ready(world)
    world.connect()
    world.settle()
    world.machine.put("pods", "default/p", data("p"))
    assert world.pull()
    assert world.machine.dead(world.now_s + 4.9) == ""
    assert "acknowledge" in world.machine.dead(world.now_s + 5)
    world.deliver_up()
    world.deliver_down()
    assert world.machine.dead(world.now_s + 5) == ""


def test_a_keep_alive_of_the_manager_is_sent_back_and_our_own_is_not() -> None:
    world = World(make(keep_alive_s=7))
    ready(world)
    world.connect()
    world.settle()
    from protobuf import Oneof

    world.down.append(pb.ManagerMessage(body=Oneof("keep_alive", pb.KeepAlive(at_ms=4711))))
    world.deliver_down()
    assert world.pull()
    assert world.up.pop().body.value.at_ms == 4711  # type: ignore[union-attr]


def test_what_the_manager_asks_becomes_commands() -> None:
    from protobuf import Oneof

    world = World(make())
    world.connect()
    world.deliver_down()
    request = pb.Request(id="1", what=Oneof("logs", pb.PodLogs(pod="p")))
    world.down.append(pb.ManagerMessage(body=Oneof("request", request)))
    world.down.append(pb.ManagerMessage(body=Oneof("cancel", pb.Cancel(id="1"))))
    rejected = pb.Rejected(code=pb.RejectionCode.STALE_EPOCH, message="old", retry_after_seconds=2.5)
    world.down.append(pb.ManagerMessage(body=Oneof("rejected", rejected)))
    while world.down:
        world.deliver_down()
    assert world.commands == [
        Accept(1, "model"), Run(request), Stop("1"), Reject(pb.RejectionCode.STALE_EPOCH, "old", 2.5)
    ]  # fmt: skip


@pytest.mark.parametrize("message", [pb.ManagerMessage()])
def test_messages_that_are_not_known_are_counted_and_ignored(message: pb.ManagerMessage) -> None:
    world = World(make())
    world.connect()
    assert world.machine.receive(message, 0.0) == [] and world.machine.ignored == 1


@given(st.lists(st.tuples(KEYS, SIZES), max_size=30))
@settings(max_examples=50, deadline=None)
def test_two_edges_of_one_cluster_name_the_same_digest(rows: list[tuple[str, int]]) -> None:
    first, second = make(), make()
    latest = dict(rows)
    for key, size in rows:
        first.put("pods", key, data(key, size))
    for key, size in sorted(latest.items()):
        second.put("pods", key, data(key, size))
    mine, other = first.kind_rows["pods"].digest, second.kind_rows["pods"].digest
    assert (mine.count, mine.value) == (other.count, other.value)
