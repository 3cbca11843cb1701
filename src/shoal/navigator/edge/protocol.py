"""The edge's side of the stream, as a state machine that never awaits. Input: changes in the cluster and messages from
the manager. Output: messages, when the stream asks for them.

    idle ──connect──▶ claiming ──accepted──▶ live
      ▲                  │ rejected            │ rejected
      └──────────────────┴───disconnect────────┘

Only keys are queued: ``next`` builds each message from the current rows, so superseded changes are never sent. On a
connection every kind is in one of four states: not compared yet (the cluster has not been read), waiting to be sent
whole, being sent whole, or equal except for its dirty keys. In the last state the machine knows the digest of the rows
that the manager holds, so digests can be compared while changes still wait. After a reconnect the digests that the
manager reports decide what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from shoal.navigator.digest import KindDigest
from shoal.navigator.edge import messages
from shoal.navigator.edge.connection_state import ConnectionState, Transfer
from shoal.navigator.edge.kind_rows import WAITING, KindRows, wire_digest
from shoal.navigator.edge.machine_settings import ConnectionSettings, SyncSettings
from shoal.navigator.edge.messages import Body
from shoal.navigator.edge.rows import largest_row, size_of
from shoal.wire.navigator.v1 import navigator_pb as pb

Phase = Literal["idle", "claiming", "live"]

WINDOW = 8  # states and deltas that the manager has not acknowledged
_CHUNK_BYTES = 512 * 1024  # larger messages delay both event loops
_PART_BYTES = 256 * 1024
_DELTA_GAP_S = 0.05  # between two deltas: changes in between are sent together
NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The identity of this edge and its claim."""

    edge: str
    cluster: str
    metadata: Mapping[str, str]
    software: str


@dataclass(frozen=True, slots=True)
class Accept:
    """The claim is granted; the sync begins."""

    epoch: int
    manager: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The manager ends the stream."""

    code: pb.RejectionCode
    message: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """Answer this request with ``reply``."""

    request: pb.Request


@dataclass(frozen=True, slots=True)
class Stop:
    """The manager has cancelled this request."""

    id: str


@dataclass(frozen=True, slots=True)
class TakeOptions:
    """Take these settings, and answer with ``options_taken``."""

    revision: int
    values: Mapping[str, str]


Command = Accept | Reject | Run | Stop | TakeOptions


class EdgeMachine:
    """One per process; it outlives connections. ``now_s`` is monotonic, ``now_ms`` wall time."""

    def __init__(self, kinds: Iterable[str], *, sync: SyncSettings, connection: ConnectionSettings) -> None:
        self._sync = sync
        self._connection = connection
        largest = largest_row(connection.max_message_bytes)
        self.kind_rows = {kind: KindRows(kind, largest) for kind in kinds}
        self.phase: Phase = "idle"
        self.ignored = 0  # messages that were not expected
        self.overflows = 0
        self.resyncs = 0  # kinds whose digests differed
        self._edge = ""
        self._link: ConnectionState | None = None

    def configure(self, sync: SyncSettings, connection: ConnectionSettings, now_s: float) -> None:
        """Take other settings, from now on; the largest message stays as it was agreed upon."""
        link = self._link
        if link is not None and sync.interval_s != self._sync.interval_s:
            link.interval_s = sync.interval_s
            if link.verified_s is not None:
                link.verify_s = max(now_s, link.verified_s + sync.interval_s)
        self._sync = sync
        self._connection = connection

    # the cluster

    def put(self, kind: str, key: str, data: bytes) -> bool:
        """Add or change an object; False when its row is the same."""
        old, new = self.kind_rows[kind].put(key, data)
        if old == new:
            return False
        self._mark(kind, key, old)
        return True

    def remove(self, kind: str, key: str) -> bool:
        old = self.kind_rows[kind].remove(key)
        if old is None:
            return False
        self._mark(kind, key, old)
        return True

    def ready(self, kind: str) -> None:
        """All objects of this kind have been read."""
        own_rows = self.kind_rows[kind]
        if not own_rows.ready:
            own_rows.ready = True
            if self._link is not None:
                self._compare(self._link, own_rows)

    def status(self, kind: str, state: str, error: str, now_ms: int) -> bool:
        """Set the status of a kind; False when it is unchanged."""
        if not self.kind_rows[kind].set_status(state, error, now_ms):
            return False
        if self._link is not None:
            self._link.statuses[kind] = None
        return True

    # the connection

    @property
    def epoch(self) -> int:
        return self._link.epoch if self._link is not None else 0

    @property
    def unsent(self) -> int:
        """Changes that wait to be sent."""
        return self._link.dirty_count if self._link is not None else 0

    @property
    def settled(self) -> bool:
        """Whether everything has been sent to the manager."""
        link = self._link
        return self.phase == "live" and link is not None and link.idle and not link.statuses

    @property
    def interval_s(self) -> float:
        """The current time between two verifications."""
        return self._link.interval_s if self._link is not None else self._sync.interval_s

    def connect(self, claim: Claim, now_s: float, now_ms: int) -> pb.EdgeMessage:
        """The first message of a new connection."""
        self.phase = "claiming"
        self._edge = claim.edge
        self._link = ConnectionState(now_s, self._sync.interval_s)
        said = messages.identification(
            pb.Identification(
                cluster=claim.cluster,
                metadata=dict(claim.metadata),
                software=claim.software,
                kinds=list(self.kind_rows),
                interval_seconds=self._sync.interval_s,
                max_message_bytes=self._connection.max_message_bytes,
            ),
        )
        return pb.EdgeMessage(edge=claim.edge, sent_at_ms=now_ms, body=said)

    def disconnect(self) -> None:
        self.phase = "idle"
        self._link = None

    def receive(self, message: pb.ManagerMessage, now_s: float) -> list[Command]:
        link, said = self._link, message.body
        if link is None or said is None:
            self.ignored += 1
            return []
        link.heard(now_s)
        match said.field:
            case "accepted":
                return self._accepted(link, said.value)
            case "rejected":
                return [_refusal(said.value)]
            case "received":
                link.acknowledged(said.value.sequence, now_s)
            case "resync":
                self._resync(link, said.value.kinds)
            case "request":
                return [Run(said.value)]
            case "cancel":
                return [Stop(said.value.id)]
            case "keep_alive":
                if not link.answered(said.value.at_ms):
                    link.echoes.append(said.value)
            case "options":
                return [TakeOptions(said.value.revision, dict(said.value.values))]
            case _:
                assert_never(said)
        return []

    def options_taken(self, taken: pb.OptionsTaken) -> None:
        """Tell the manager; without a connection it sends the options again with the next one."""
        if self._link is not None:
            self._link.options_taken = taken

    def reply(self, reply: pb.Reply) -> None:
        """Send a part of an answer. Without a connection it is dropped: the manager does not wait for it any more."""
        if self._link is not None:
            self._link.replies.append(reply)

    @property
    def part_bytes(self) -> int:
        """The largest part of an answer."""
        return min(self._link.message_bytes, _PART_BYTES) if self._link is not None else 0

    @property
    def replies_waiting(self) -> int:
        return len(self._link.replies) if self._link is not None else 0

    # output

    def next(self, now_s: float, now_ms: int) -> pb.EdgeMessage | None:
        """The next message; None when there is none before ``due_s``."""
        link = self._link
        if link is None or self.phase != "live":
            return None
        said = self._next_body(link, now_s, now_ms)
        if said is None:
            return None
        link.sequence += 1
        link.sent_s = now_s
        if said.field in ("state", "delta"):
            link.open(now_s)
        return pb.EdgeMessage(edge=self._edge, epoch=link.epoch, sequence=link.sequence, sent_at_ms=now_ms, body=said)

    def due_s(self, now_s: float) -> float:
        """When to call ``next`` and ``dead`` again, if nothing happens before."""
        link = self._link
        if link is None:
            return NEVER
        times = [link.dead_s(self._connection)]
        if self.phase == "live":
            times += [link.verify_s, link.keep_alive_s(self._connection)]
            if link.replies or link.echoes or link.options_taken is not None:
                times.append(now_s)
            if len(link.unacknowledged) < WINDOW:
                if self._has_changes(link):
                    times.append(link.delta_s)
                if link.transfer is not None or link.whole:
                    times.append(now_s)
        return min(times)

    def dead(self, now_s: float) -> str:
        """Why the connection counts as dead; empty while it is alive."""
        link = self._link
        return link.dead(now_s, self._connection) if link is not None else ""

    def _next_body(self, link: ConnectionState, now_s: float, now_ms: int) -> Body | None:
        if link.echoes:
            return messages.keep_alive(link.echoes.popleft())
        if link.options_taken is not None:
            taken, link.options_taken = link.options_taken, None
            return messages.options_taken(taken)
        link.replied = not link.replied
        if link.replies and link.replied:  # parts of answers and the state take turns
            return messages.reply(link.replies.popleft())
        said = self._next_state(link, now_s)
        if said is None and link.replies:
            return messages.reply(link.replies.popleft())
        if said is None and now_s >= link.keep_alive_s(self._connection):
            link.asked(now_ms, now_s)
            return messages.keep_alive(pb.KeepAlive(at_ms=now_ms))
        return said

    def _next_state(self, link: ConnectionState, now_s: float) -> Body | None:
        self._time_verification(link, now_s)
        if now_s >= link.verify_s:
            return messages.verification(self._verification(link, now_s))
        if len(link.unacknowledged) >= WINDOW:
            return None
        if self._has_changes(link) and now_s >= link.delta_s:
            link.delta_s = now_s + _DELTA_GAP_S
            delta = self._delta(link)
            if delta is not None:
                return messages.delta(delta)
        if link.transfer is None and link.whole:
            self._begin(link)
        if link.transfer is not None:
            return messages.state(self._chunk(link, link.transfer))
        return None

    # verification

    def _time_verification(self, link: ConnectionState, now_s: float) -> None:
        """The first verification is due when everything was sent once; many changes bring the next one forward."""
        if link.verified_s is None:
            waiting = any(own_rows.state == WAITING for own_rows in self.kind_rows.values())
            if link.verify_s == NEVER and link.idle and not waiting:
                link.verify_s = now_s
        elif link.changes > self._sync.busy_changes:
            link.verify_s = min(link.verify_s, link.verified_s + self._sync.min_interval_s)

    def _verification(self, link: ConnectionState, now_s: float) -> pb.Verification:
        if link.verified_s is not None:
            link.interval_s = self._next_interval_s(link)
        link.verified_s, link.changes = now_s, 0
        link.verify_s = now_s + link.interval_s
        return pb.Verification(
            digests=[wire_digest(kind, digest) for kind, digest in link.sent.items()],
            statuses=[own_rows.status() for own_rows in self.kind_rows.values() if own_rows.state != "synced"],
        )

    def _next_interval_s(self, link: ConnectionState) -> float:
        if link.changes > self._sync.busy_changes:
            return max(self._sync.min_interval_s, link.interval_s / 2)
        if link.changes == 0:
            return min(self._sync.max_interval_s, max(link.interval_s, self._sync.min_interval_s) * 2)
        return self._sync.interval_s

    # changes

    @staticmethod
    def _has_changes(link: ConnectionState) -> bool:
        held_back = link.transfer.kind if link.transfer is not None else ""
        return bool(link.statuses) or any(keys and kind != held_back for kind, keys in link.dirty.items())

    def _mark(self, kind: str, key: str, old: int | None) -> None:
        link = self._link
        if link is None:
            return
        transfer = link.transfer
        if transfer is not None and transfer.kind == kind:
            if key in transfer.pending:
                if key not in self.kind_rows[kind].rows:
                    del transfer.pending[key]
                return  # the transfer sends its current row
            if kind in link.whole:
                return
        elif kind not in link.sent:
            return  # it is sent with the whole kind
        link.mark(kind, key, old)
        if link.dirty_count > self._connection.send_queue:
            self.overflows += 1
            self._send_whole(link, max(link.dirty, key=lambda each: len(link.dirty[each])))

    def _delta(self, link: ConnectionState) -> pb.ClusterDelta | None:
        """Changes up to the size of a message. The rest stays dirty."""
        delta = pb.ClusterDelta(statuses=[self.kind_rows[kind].status() for kind in link.statuses])
        link.statuses.clear()
        left = link.message_bytes
        for kind in list(link.dirty):
            if link.transfer is not None and link.transfer.kind == kind:
                continue  # the end of the transfer would undo it
            before = len(delta.changes)
            left = self._changes(link, kind, delta, left)
            if len(delta.changes) > before:
                delta.digests.append(wire_digest(kind, link.sent[kind]))
            if left <= 0:
                break
        link.changes += len(delta.changes)
        return delta if delta.changes or delta.statuses else None

    def _changes(self, link: ConnectionState, kind: str, delta: pb.ClusterDelta, left: int) -> int:
        own_rows, keys, sent = self.kind_rows[kind], link.dirty[kind], link.sent[kind]
        for key in list(keys):
            held = own_rows.rows.get(key)
            size = size_of(kind, key, held[0] if held is not None else b"")
            if delta.changes and size > left:
                return 0
            old = link.unmark(kind, key)
            new = held[1] if held is not None else None
            if old == new:
                continue  # the manager has this row already
            left -= size
            _account(sent, old, new)
            if held is not None:
                delta.changes.append(messages.put(pb.Row(kind=kind, key=key, data=held[0])))
            else:
                delta.changes.append(messages.remove(pb.RowKey(kind=kind, key=key)))
        return left

    # whole kinds

    def _accepted(self, link: ConnectionState, accepted: pb.Accepted) -> list[Command]:
        if self.phase != "claiming":
            self.ignored += 1
            return []
        self.phase = "live"
        link.epoch = accepted.epoch
        limit = self._connection.max_message_bytes
        if accepted.max_message_bytes:
            limit = min(limit, accepted.max_message_bytes)
        link.message_bytes = min(largest_row(limit), _CHUNK_BYTES)
        for own_rows in self.kind_rows.values():
            own_rows.limit(largest_row(limit))
        link.held = {each.kind: (each.count, each.digest) for each in accepted.held}
        link.statuses = dict.fromkeys(self.kind_rows)
        for own_rows in self.kind_rows.values():
            if own_rows.ready:
                self._compare(link, own_rows)
        return [Accept(accepted.epoch, accepted.manager)]

    def _compare(self, link: ConnectionState, own_rows: KindRows) -> None:
        """Compare a kind with the manager's digest: send it whole if they differ."""
        if self.phase != "live":
            return  # compared when the claim is accepted
        if own_rows.digest.equals(*link.held.get(own_rows.kind, (0, 0))):
            link.sent[own_rows.kind] = KindDigest(own_rows.digest.count, own_rows.digest.value)
        else:
            self._send_whole(link, own_rows.kind)

    def _resync(self, link: ConnectionState, kinds: Iterable[str]) -> None:
        for kind in kinds:
            own_rows = self.kind_rows.get(kind)
            if own_rows is None or not own_rows.ready:
                self.ignored += 1
            elif link.transfer is None or link.transfer.kind != kind:
                self.resyncs += 1
                self._send_whole(link, kind)

    @staticmethod
    def _send_whole(link: ConnectionState, kind: str) -> None:
        link.forget(kind)
        link.whole[kind] = None

    def _begin(self, link: ConnectionState) -> None:
        kind = next(iter(link.whole))
        del link.whole[kind]
        link.forget(kind)
        link.syncs += 1
        link.transfer = Transfer(kind, link.syncs, dict.fromkeys(self.kind_rows[kind].rows))

    def _chunk(self, link: ConnectionState, transfer: Transfer) -> pb.ClusterState:
        own_rows, kind = self.kind_rows[transfer.kind], transfer.kind
        state = pb.ClusterState(kind=kind, sync=transfer.sync, chunk=transfer.chunk)
        left = link.message_bytes
        sent: list[str] = []
        for key in transfer.pending:
            data, print_ = own_rows.rows[key]
            size = size_of(kind, key, data)
            if state.rows and size > left:
                break
            left -= size
            state.rows.append(pb.Row(kind=kind, key=key, data=data))
            transfer.digest.add(print_)
            sent.append(key)
        for key in sent:
            del transfer.pending[key]
        transfer.chunk += 1
        if not transfer.pending:
            self._end(link, transfer, state)
        return state

    def _end(self, link: ConnectionState, transfer: Transfer, state: pb.ClusterState) -> None:
        state.last = True
        state.digest = wire_digest(transfer.kind, transfer.digest)
        state.statuses.append(self.kind_rows[transfer.kind].status())
        link.statuses.pop(transfer.kind, None)
        link.transfer = None
        if transfer.kind not in link.whole:  # else too much has changed meanwhile: it is sent again
            link.sent[transfer.kind] = transfer.digest


def _refusal(rejected: pb.Rejected) -> Reject:
    try:
        code = pb.RejectionCode(rejected.code)
    except ValueError:  # of a newer manager
        code = pb.RejectionCode.UNSPECIFIED
    return Reject(code, rejected.message, rejected.retry_after_seconds)


def _account(digest: KindDigest, old: int | None, new: int | None) -> None:
    if old is not None:
        digest.remove(old)
    if new is not None:
        digest.add(new)
