"""Both state machines of the protocol together: after any events the manager has the edge's rows."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from protobuf import Oneof

from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.edge.config import ConnectionConfig, SyncConfig
from shoal.navigator.edge.protocol import Claim, EdgeMachine
from shoal.navigator.manager.protocol import Echo, EdgeSession, Identified, Write, identified
from shoal.wire.navigator.v1 import navigator_pb as pb

KINDS = ("pods", "services")
CLAIM = Claim(edge="e1", cluster="east", metadata={"region": "eu"}, software="test")
SYNC = SyncConfig(interval_s=30.0, min_interval_s=5.0, max_interval_s=60.0, busy_changes=3)
CONNECTION = ConnectionConfig(send_queue=3, max_message_bytes=64 * 1024)


class StoredRows:
    """What a manager has stored."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes]] = {kind: {} for kind in KINDS}

    def fingerprint(self, kind: str, key: str) -> int | None:
        data = self.rows[kind].get(key)
        return fingerprint(kind, key, data) if data is not None else None

    def keys(self, kind: str) -> Set[str]:
        return self.rows[kind].keys()

    def digest(self, kind: str) -> tuple[int, int]:
        made = KindDigest()
        for key, data in self.rows[kind].items():
            made.add(fingerprint(kind, key, data))
        return made.count, made.value


class World:
    def __init__(self) -> None:
        self.edge = EdgeMachine(KINDS, sync=SYNC, connection=CONNECTION)
        self.kind_indexes = StoredRows()
        self.cluster: dict[str, dict[str, bytes]] = {kind: {} for kind in KINDS}
        self.now_s = 0.0
        self.epoch = 0
        self.session: EdgeSession | None = None
        self.answers: list[pb.ManagerMessage] = []  # on their way to the edge

    def connect(self) -> None:
        """Connect again; messages on their way are lost."""
        self.edge.disconnect()
        self.answers.clear()
        claim = identified(self.edge.connect(CLAIM, self.now_s, self._ms))
        assert isinstance(claim, Identified), claim
        self.epoch += 1
        self.session = EdgeSession(claim, self.epoch, self.kind_indexes)
        self.hear("accepted", self.session.accepted("manager", 64 * 1024))
        self.deliver()

    def hear(self, field: str, body: object) -> None:
        said: Any = Oneof(field, body)
        self.answers.append(pb.ManagerMessage(body=said))

    def deliver(self) -> None:
        answers, self.answers = self.answers, []
        for answer in answers:
            self.edge.receive(answer, self.now_s)

    def send(self) -> bool:
        """Send and store one message of the edge; False when there is none."""
        message = self.edge.next(self.now_s, self._ms)
        if message is None or self.session is None:
            return False
        step = self.session.receive(message)
        if isinstance(step, Echo):
            self.hear("keep_alive", pb.KeepAlive(at_ms=step.at_ms))
        elif step is not None:
            assert isinstance(step, Write), step
            for kind, key in step.removals:
                del self.kind_indexes.rows[kind][key]
            for put in step.puts:
                self.kind_indexes.rows[put.kind][put.key] = put.data
            for answer in self.session.stored(step):
                self.hear("received" if isinstance(answer, pb.Received) else "resync", answer)
        return True

    def pump(self) -> None:
        for _ in range(1000):
            sent = self.send()
            self.deliver()
            if not sent:
                return
        raise AssertionError("they talk for ever")

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def _ms(self) -> int:
        return int(self.now_s * 1000)


KEYS = st.sampled_from(["a/1", "a/2", "b/1", "b/2", "b/3", "b/4"])
KIND = st.sampled_from(KINDS)
DATA = st.sampled_from([b"{}", b'{"v":1}', b'{"v":2}', b'{"v":"' + b"x" * 20_000 + b'"}'])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KIND, KEYS, DATA),
        st.tuples(st.just("remove"), KIND, KEYS),
        st.tuples(st.just("ready"), KIND),
        st.tuples(st.just("send")),
        st.tuples(st.just("deliver")),
        st.tuples(st.just("pump")),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.06, 1.0, 16.0, 70.0])),
        st.tuples(st.just("connect")),
        st.tuples(st.just("damage"), KIND, KEYS),
    ),
    max_size=60,
)


@given(EVENTS)
@settings(max_examples=150)
def test_after_any_interleaving_the_manager_has_what_the_cluster_has(events: list[tuple[Any, ...]]) -> None:
    world = World()
    for event in events:
        match event:
            case ("put", kind, key, data):
                world.cluster[kind][key] = data
                world.edge.put(kind, key, data)
            case ("remove", kind, key):
                world.cluster[kind].pop(key, None)
                world.edge.remove(kind, key)
            case ("ready", kind):
                world.edge.status(kind, "synced", "", 0)
                world.edge.ready(kind)
            case ("send",):
                world.send()
            case ("deliver",):
                world.deliver()
            case ("pump",):
                world.pump()
            case ("wait", seconds):
                world.wait(seconds)
            case ("connect",):
                world.connect()
            case ("damage", kind, key):
                world.kind_indexes.rows[kind].pop(key, None)
    for kind in KINDS:
        world.edge.status(kind, "synced", "", 0)
        world.edge.ready(kind)
    if world.session is None:
        world.connect()
    for _ in range(6):  # a verification, the transfer it asks for, and the next one
        world.pump()
        world.wait(61.0)
    assert world.kind_indexes.rows == world.cluster
    assert world.session is not None and world.session.complete
    before = world.edge.resyncs
    world.pump()
    assert world.edge.resyncs == before, "nothing is sent again while nothing differs"
