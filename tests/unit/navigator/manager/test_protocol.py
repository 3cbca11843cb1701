"""The manager's side of a stream: the stored rows equal those of the edge, and invalid messages are refused."""

from __future__ import annotations

from collections.abc import Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.manager.protocol import Answer, Delivered, Echo, EdgeSession, Identified, Step, Write, identified
from shoal.navigator.manager.registry import ClaimRefused, RejectionReason
from shoal.navigator.model import KindStatus
from shoal.testing.managers import (
    change_put,
    change_remove,
    cluster_delta,
    digest_of,
    edge_message,
    identification,
    transfer,
)
from shoal.wire.navigator.v1 import navigator_pb as pb

CLAIM = Identified(
    cluster="east", edge="e1", metadata={}, software="", kinds=("pods", "services"), interval_s=30.0,
    max_message_bytes=0,
)  # fmt: skip


class StoredRows:
    """What a manager would have stored."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes]] = {}

    def fingerprint(self, kind: str, key: str) -> int | None:
        data = self.rows.get(kind, {}).get(key)
        return fingerprint(kind, key, data) if data is not None else None

    def keys(self, kind: str) -> Set[str]:
        return self.rows.get(kind, {}).keys()

    def digest(self, kind: str) -> tuple[int, int]:
        made = KindDigest()
        for key, data in self.rows.get(kind, {}).items():
            made.add(fingerprint(kind, key, data))
        return made.count, made.value

    def apply(self, write: Write) -> None:
        for kind, key in write.removals:
            del self.rows[kind][key]
        for one in write.puts:
            self.rows.setdefault(one.kind, {})[one.key] = one.data


class Conversation:
    """An edge's messages, numbered, against a session whose writes are stored at once."""

    def __init__(self, held: StoredRows | None = None, epoch: int = 1, statuses: object = None) -> None:
        self.held = held or StoredRows()
        self.session = EdgeSession(CLAIM, epoch, self.held)
        self.sequence = 0

    def say(self, field: str, body: object) -> Step:
        self.sequence += 1
        return self.session.receive(edge_message(field, body, sequence=self.sequence, epoch=self.session.epoch))

    def store(self, field: str, body: object) -> list[Answer]:
        step = self.say(field, body)
        assert isinstance(step, Write), step
        self.held.apply(step)
        return self.session.stored(step)

    def again(self, field: str, body: object) -> list[str]:
        """The kinds that have to be sent again."""
        return [
            kind for answer in self.store(field, body) if isinstance(answer, pb.ResyncRequest) for kind in answer.kinds
        ]


def code(step: object) -> RejectionReason:
    assert isinstance(step, ClaimRefused), step
    return step.code


def test_a_claim_must_name_a_cluster_an_edge_and_its_kinds() -> None:
    assert isinstance(identified(identification()), Identified)
    wrong = [
        None,
        pb.EdgeMessage(edge="e1"),
        edge_message("keep_alive", pb.KeepAlive(), sequence=0, epoch=0),
        identification(cluster=""),
        identification(cluster="a b"),
        identification(cluster="x" * 64),
        identification(edge=""),
        identification(edge="e\n1"),
        identification(kinds=[]),
        identification(kinds=["Pods"]),
        identification(metadata={"k": "v" * 300}),
        pb.EdgeMessage(edge="e1", epoch=1, body=identification().body),
        pb.EdgeMessage(edge="e1", sequence=1, body=identification().body),
    ]
    for message in wrong:
        assert code(identified(message)) is RejectionReason.INVALID_IDENTIFICATION, message


@pytest.mark.parametrize(("said", "meant"), [(0.0, 30.0), (5.0, 5.0), (float("nan"), 30.0), (1e9, 3600.0), (-1.0, 0.1)])
def test_the_interval_of_an_edge_is_bounded(said: float, meant: float) -> None:
    claim = identified(identification(interval_seconds=said))
    assert isinstance(claim, Identified) and claim.interval_s == meant


def test_messages_are_numbered_without_gaps_within_an_epoch() -> None:
    alive = pb.KeepAlive(at_ms=1)

    def said(**more: object) -> Step:
        session = EdgeSession(CLAIM, 3, StoredRows())
        return session.receive(edge_message("keep_alive", alive, **({"sequence": 1, "epoch": 3} | more)))  # type: ignore[arg-type]

    assert said() == Echo(1)
    assert code(said(sequence=0)) is RejectionReason.INVALID_MESSAGE
    assert code(said(sequence=2)) is RejectionReason.INVALID_MESSAGE
    assert code(said(epoch=2)) is RejectionReason.STALE_EPOCH
    assert code(said(epoch=4)) is RejectionReason.INVALID_MESSAGE
    assert code(said(edge="e2")) is RejectionReason.INVALID_MESSAGE
    session = EdgeSession(CLAIM, 3, StoredRows())
    session.receive(edge_message("keep_alive", alive, sequence=1, epoch=3))
    assert (
        code(session.receive(edge_message("keep_alive", alive, sequence=1, epoch=3))) is RejectionReason.INVALID_MESSAGE
    )


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("state", pb.ClusterState(kind="nodes", sync=1)),
        ("state", pb.ClusterState(kind="pods", sync=0)),
        ("state", pb.ClusterState(kind="pods", sync=1, chunk=1)),
        ("state", pb.ClusterState(kind="pods", sync=1, last=True)),
        ("state", pb.ClusterState(kind="pods", sync=1, rows=[pb.Row(kind="services", key="a/b")])),
        ("state", pb.ClusterState(kind="pods", sync=1, rows=[pb.Row(kind="pods", key="")])),
        ("state", pb.ClusterState(kind="pods", sync=1, rows=[pb.Row(kind="pods", key="a/b/c")])),
        ("delta", cluster_delta([change_put("nodes", "n", b"{}")])),
        ("delta", cluster_delta([pb.Change()])),
        ("delta", cluster_delta([change_remove("pods", "a\x00b")])),
        ("delta", cluster_delta([], [pb.KindDigest(kind="nodes")])),
        ("delta", cluster_delta([], statuses=[pb.KindStatus(kind="pods", state="happy")])),
        ("verification", pb.Verification(digests=[pb.KindDigest(kind="nodes")])),
        ("identification", pb.Identification(cluster="east")),
    ],
)
def test_an_invalid_message_is_refused(field: str, body: object) -> None:
    assert code(Conversation().say(field, body)) is RejectionReason.INVALID_MESSAGE


def test_a_transfer_replaces_the_kind_and_only_differences_are_written() -> None:
    one = Conversation()
    one.held.rows = {"pods": {"a/1": b"1", "a/2": b"2", "a/3": b"3"}, "services": {"a/s": b"s"}}
    rows = {"a/2": b"2", "a/3": b"changed", "a/4": b"4"}
    first, last = transfer("pods", rows, sync=1)
    step = one.say("state", first)
    assert isinstance(step, Write) and [put.key for put in step.puts] == ["a/3"] and not step.removals
    one.held.apply(step)
    assert one.session.stored(step) == [pb.Received(sequence=1)]
    assert one.store("state", last) == [pb.Received(sequence=2)]
    assert one.held.rows == {"pods": rows, "services": {"a/s": b"s"}}


def test_what_a_delta_does_during_a_transfer_is_not_undone_by_its_end() -> None:
    one = Conversation()
    one.held.rows = {"pods": {"a/old": b"x"}}
    chunks = transfer("pods", {"a/1": b"1", "a/2": b"2", "a/3": b"3"}, sync=1, chunk_rows=1)
    one.store("state", chunks[0])
    one.store("delta", cluster_delta([change_remove("pods", "a/1"), change_put("pods", "a/new", b"n")]))
    one.store("state", chunks[1])
    one.store("state", chunks[2])
    assert one.held.rows["pods"] == {"a/2": b"2", "a/3": b"3", "a/new": b"n"}


def test_a_digest_that_differs_asks_for_the_kind_once_until_it_comes() -> None:
    one = Conversation()
    wrong = digest_of("pods", {"a/other": b"x"})
    assert one.again("delta", cluster_delta([change_put("pods", "a/1", b"1")], [wrong])) == ["pods"]
    assert one.again("delta", cluster_delta([change_put("pods", "a/2", b"2")], [wrong])) == []
    assert one.again("verification", pb.Verification(digests=[wrong])) == [], "it was asked for a moment ago"
    assert one.again("verification", pb.Verification(digests=[wrong])) == ["pods"], "but it never came"
    rows = {"a/other": b"x"}
    assert [one.again("state", chunk) for chunk in transfer("pods", rows, sync=1)] == [[]]
    assert one.held.rows["pods"] == rows
    assert one.again("verification", pb.Verification(digests=[wrong])) == []


def test_digests_are_not_compared_while_the_kind_is_transferred() -> None:
    one = Conversation()
    first, last = transfer("pods", {"a/1": b"1", "a/2": b"2", "a/3": b"3"}, sync=1)
    one.store("state", first)
    assert one.again("verification", pb.Verification(digests=[digest_of("pods", {"z": b"z"})])) == []
    assert one.again("state", last) == []


def test_a_transfer_that_ends_with_another_digest_is_repeated_once_and_then_at_verifications() -> None:
    one = Conversation()
    (chunk,) = transfer("pods", {"a/1": b"1"}, sync=1)
    chunk.digest = digest_of("pods", {"a/1": b"2"})
    assert one.again("state", chunk) == ["pods"]
    chunk.sync = 2
    assert one.again("state", chunk) == []
    assert one.again("verification", pb.Verification(digests=[chunk.digest])) == ["pods"]


def test_rows_of_a_kind_in_error_are_the_last_good_ones() -> None:
    one = Conversation()
    one.held.rows = {"pods": {"a/1": b"1"}}
    status = pb.KindStatus(kind="pods", state="forbidden", error="no rights", since_ms=5000)
    empty = [digest_of("pods", {}), digest_of("services", {})]
    assert one.again("verification", pb.Verification(digests=empty, statuses=[status])) == []
    assert one.held.rows["pods"] == {"a/1": b"1"}
    assert one.session.statuses["pods"] == KindStatus(kind="pods", state="forbidden", error="no rights", since_s=5.0)
    assert one.session.complete, "what cannot be had is not waited for"


def test_a_session_is_complete_when_every_kind_was_found_equal() -> None:
    one = Conversation()
    assert not one.session.complete
    for chunk in transfer("pods", {"a/1": b"1"}, sync=1):
        one.store("state", chunk)
    assert not one.session.complete
    one.store("verification", pb.Verification(digests=[digest_of("pods", {"a/1": b"1"}), digest_of("services", {})]))
    assert one.session.complete


def test_keep_alives_are_answered_once_and_end() -> None:
    one = Conversation()
    assert one.say("keep_alive", pb.KeepAlive(at_ms=7)) == Echo(7)
    assert one.say("keep_alive", pb.KeepAlive(at_ms=7)) is None
    one.session.probe(9)
    assert one.say("keep_alive", pb.KeepAlive(at_ms=9)) is None
    assert isinstance(one.say("reply", pb.Reply(id="x")), Delivered)


def test_acceptance_names_the_held_digests() -> None:
    held = StoredRows()
    held.rows = {"pods": {"a/1": b"1"}, "nodes": {"n": b"n"}}
    accepted = EdgeSession(CLAIM, 4, held).accepted("m", 99)
    assert (accepted.epoch, accepted.max_message_bytes) == (4, 99)
    assert list(accepted.held) == [digest_of("pods", {"a/1": b"1"}), digest_of("services", {})]


KEYS = st.sampled_from(["a/1", "a/2", "b/1", "b/2", "b/3"])
DATA = st.sampled_from([b"1", b"2", b"3"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, DATA),
        st.tuples(st.just("remove"), KEYS, st.none()),
        st.tuples(st.just("send"), st.none(), st.none()),
        st.tuples(st.just("verify"), st.none(), st.none()),
        st.tuples(st.just("lose"), KEYS, st.none()),  # the manager's copy is damaged
        st.tuples(st.just("crash"), st.none(), st.none()),  # of the manager: the message under way is or is not stored
        st.tuples(st.just("reconnect"), st.none(), st.none()),
    ),
    max_size=60,
)


class Edge:
    """A small edge of one kind: changes wait in a queue, resyncs are sent chunk by chunk."""

    def __init__(self, held: StoredRows) -> None:
        self.rows: dict[str, bytes] = {}
        self.held = held
        self.epoch = 0
        self.syncs = 0
        self.connect()

    def connect(self) -> None:
        self.epoch += 1
        self.talk = Conversation(self.held, self.epoch)
        self.queue: list[pb.Change] = []
        self.chunks: list[pb.ClusterState] = []
        accepted = self.talk.session.accepted("m", 0)
        if accepted.held[0] != digest_of("pods", self.rows):
            self.resync()

    def resync(self) -> None:
        self.syncs += 1
        self.queue.clear()
        self.chunks = transfer("pods", dict(self.rows), sync=self.syncs)

    def send(self, *, stored: bool = True) -> bool:
        """The next message; False when there is none. Changes wait until a transfer has ended."""
        if self.chunks:
            field, body = "state", self.chunks.pop(0)
        elif self.queue:
            changes, self.queue = self.queue, []
            field, body = "delta", cluster_delta(changes, [digest_of("pods", self.rows)])
        else:
            return False
        step = self.talk.say(field, body)
        assert isinstance(step, Write), step
        if stored:
            self.held.apply(step)
            self.answered(self.talk.session.stored(step))
        return True

    def verify(self) -> None:
        if not self.chunks and not self.queue:
            self.answered(self.talk.store("verification", pb.Verification(digests=[digest_of("pods", self.rows)])))

    def answered(self, answers: list[Answer]) -> None:
        if any(isinstance(answer, pb.ResyncRequest) for answer in answers) and not self.chunks:
            self.resync()


@given(EVENTS)
@settings(max_examples=300)
def test_after_any_interleaving_what_is_stored_equals_what_the_edge_has(events: list[tuple[str, str, bytes]]) -> None:
    held = StoredRows()
    edge = Edge(held)
    for event, key, data in events:
        match event:
            case "put":
                edge.rows[key] = data
                edge.queue.append(change_put("pods", key, data))
            case "remove":
                edge.rows.pop(key, None)
                edge.queue.append(change_remove("pods", key))
            case "send":
                edge.send()
            case "verify":
                edge.verify()
            case "lose":
                held.rows.get("pods", {}).pop(key, None)
            case "crash":
                edge.send(stored=len(edge.rows) % 2 == 0)
                edge.connect()
            case "reconnect":
                edge.connect()
    for _ in range(3):  # a verification, a transfer, and a verification that finds nothing
        while edge.send():
            pass
        edge.verify()
    assert held.rows.get("pods", {}) == edge.rows
