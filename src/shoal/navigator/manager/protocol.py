"""The manager's side of one edge's stream, as a state machine that never awaits.

    step = session.receive(message)     # Write, Delivered, Echo, ClaimRefused or None
    …store step's rows, then put them into the index…
    answers = session.stored(step)      # the acknowledgement, and kinds that the edge must send again

Messages are numbered without gaps within an epoch. A kind is transferred in chunks: rows are visible as soon as their
chunk is stored, and the last chunk removes all rows of the kind that were not in the transfer. Digests are compared
after each change of a kind, but not during its transfer, nor while the kind is in error at the edge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from protobuf import Oneof

from shoal.navigator.digest import fingerprint
from shoal.navigator.manager.registry import ClaimRefused, RejectionReason
from shoal.navigator.model import KindStatus
from shoal.wire.navigator.v1 import navigator_pb as pb

SYNCED = "synced"
WAITING = "waiting"
STATES = frozenset({SYNCED, WAITING, "missing", "forbidden", "failing"})

_CLUSTER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_EDGE = re.compile(r"[\x21-\x7e]{1,128}")
_KIND = re.compile(r"[a-z][a-z0-9.-]{0,62}")
_KEY = re.compile(r"[^/\x00-\x1f]{1,253}(?:/[^/\x00-\x1f]{1,253})?")
_CONTROL = re.compile(r"[\x00-\x1f]")
_MOST_KINDS = 200
_MOST_METADATA = 64
_METADATA_LENGTH = 256
_ERROR_LENGTH = 1024
_INTERVAL_S = (0.1, 3600.0)
_DEFAULT_INTERVAL_S = 30.0

Answer = pb.Received | pb.ResyncRequest


class Held(Protocol):
    """The manager's rows of this cluster, as of the last stored message."""

    def fingerprint(self, kind: str, key: str) -> int | None: ...

    def keys(self, kind: str) -> Set[str]: ...

    def digest(self, kind: str) -> tuple[int, int]:
        """Count and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """A valid claim."""

    cluster: str
    edge: str
    metadata: Mapping[str, str]
    software: str
    kinds: tuple[str, ...]
    interval_s: float
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class Put:
    kind: str
    key: str
    data: bytes
    fingerprint: int


@dataclass(frozen=True, slots=True)
class _Check:
    kind: str
    count: int
    value: int
    transfer: bool = False  # the digest came with the end of a transfer
    verification: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """The changes of a message, maybe none. Call ``stored`` afterwards in any case."""

    sequence: int
    puts: tuple[Put, ...] = ()
    removals: tuple[tuple[str, str], ...] = ()  # kind and key
    checks: tuple[_Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    reply: pb.Reply


@dataclass(frozen=True, slots=True)
class Echo:
    """The edge sent a keep-alive."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The edge has taken the manager's options, or refused them."""

    said: pb.OptionsTaken


Step = Write | Delivered | Echo | Taken | ClaimRefused | None


@dataclass(slots=True)
class _Transfer:
    sync: int
    next_chunk: int = 0
    seen: set[str] = field(default_factory=set)


class _Invalid(Exception):
    pass


def identified(message: pb.EdgeMessage | None) -> Identified | ClaimRefused:
    """The claim in the first message of a stream."""
    body = message.body if message is not None else None
    if message is None or body is None or body.field != "identification":
        return _not_identified("the first message of a stream must be an identification")
    said: pb.Identification = body.value
    if message.epoch or message.sequence:
        return _not_identified("an identification has neither epoch nor sequence")
    if not _EDGE.fullmatch(message.edge):
        return _not_identified("edge: must be 1 to 128 printable characters without spaces")
    if not _CLUSTER.fullmatch(said.cluster):
        return _not_identified(f"cluster: {said.cluster[:80]!r}: must be at most 63 letters, digits, '-', '_' or '.'")
    if not said.kinds or len(said.kinds) > _MOST_KINDS:
        return _not_identified(f"kinds: must name 1 to {_MOST_KINDS}")
    for kind in said.kinds:
        if not _KIND.fullmatch(kind):
            return _not_identified(f"kinds: {kind[:80]!r} is not a valid kind")
    if len(said.metadata) > _MOST_METADATA:
        return _not_identified(f"metadata: must have at most {_MOST_METADATA} entries")
    if any(len(name) + len(value) > _METADATA_LENGTH for name, value in said.metadata.items()):
        return _not_identified(f"metadata: an entry may not be longer than {_METADATA_LENGTH} characters")
    return Identified(
        cluster=said.cluster,
        edge=message.edge,
        metadata=dict(said.metadata),
        software=_CONTROL.sub(" ", said.software[:_METADATA_LENGTH]),
        kinds=tuple(dict.fromkeys(said.kinds)),
        interval_s=_within(said.interval_seconds),
        max_message_bytes=said.max_message_bytes,
    )


class EdgeSession:
    """From the acceptance of a claim to the end of its stream."""

    def __init__(
        self, claim: Identified, epoch: int, held: Held, *, statuses: Mapping[str, KindStatus] | None = None
    ) -> None:
        """``statuses`` are the previous ones, shown until the edge reports new ones."""
        self.cluster = claim.cluster
        self.edge = claim.edge
        self.epoch = epoch
        self.sequence = 0  # of the last message
        self.mismatches = 0
        self._kinds = frozenset(claim.kinds)
        self._held = held
        self._statuses = {kind: status for kind, status in (statuses or {}).items() if kind in self._kinds}
        self._reported: set[str] = set()  # kinds whose status this edge has given
        self._open: set[str] = set(claim.kinds)  # not yet known to be equal on both sides
        self._transfers: dict[str, _Transfer] = {}
        self._last_sync: dict[str, int] = {}
        self._asked: set[str] = set()  # requested again, transfer not begun yet
        self._differed: set[str] = set()  # after a whole transfer
        self._echoed_ms: int | None = None
        self._probe_ms: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every kind that the edge can read has been received once."""
        return not self._open

    @property
    def statuses(self) -> Mapping[str, KindStatus]:
        return self._statuses

    def accepted(self, manager: str, max_message_bytes: int) -> pb.Accepted:
        held = [
            pb.KindDigest(kind=kind, count=count, digest=value)
            for kind in sorted(self._kinds)
            for count, value in (self._held.digest(kind),)
        ]
        return pb.Accepted(epoch=self.epoch, manager=manager, max_message_bytes=max_message_bytes, held=held)

    def probe(self, at_ms: int) -> pb.KeepAlive:
        """A keep-alive for the edge to answer."""
        self._probe_ms = at_ms
        return pb.KeepAlive(at_ms=at_ms)

    def receive(self, message: pb.EdgeMessage) -> Step:
        if message.edge != self.edge:
            return ClaimRefused(RejectionReason.INVALID_MESSAGE, f"edge: this stream belongs to {self.edge!r}")
        if message.epoch < self.epoch:
            return ClaimRefused(RejectionReason.STALE_EPOCH, f"epoch {message.epoch}: {self.epoch} is the newest")
        if message.epoch > self.epoch or message.sequence != self.sequence + 1:
            return ClaimRefused(
                RejectionReason.INVALID_MESSAGE,
                f"epoch {message.epoch}, sequence {message.sequence}: expected {self.epoch} and {self.sequence + 1}",
            )
        self.sequence = message.sequence
        try:
            return self._step(message.body)
        except _Invalid as error:
            return ClaimRefused(RejectionReason.INVALID_MESSAGE, str(error))

    def stored(self, write: Write) -> list[Answer]:
        """The answers to a write, once it is stored and visible."""
        again = [check.kind for check in write.checks if self._differs(check)]
        self._asked.update(again)
        answers: list[Answer] = [pb.Received(sequence=write.sequence)]
        if again:
            answers.append(pb.ResyncRequest(kinds=again))
        return answers

    # messages

    def _step(self, body: object) -> Step:
        match body:
            case Oneof(field="state", value=pb.ClusterState() as state):
                return self._state(state)
            case Oneof(field="delta", value=pb.ClusterDelta() as delta):
                return self._delta(delta)
            case Oneof(field="verification", value=pb.Verification() as verification):
                return self._verification(verification)
            case Oneof(field="reply", value=pb.Reply() as reply):
                return Delivered(reply)
            case Oneof(field="keep_alive", value=pb.KeepAlive() as alive):
                return self._keep_alive(alive)
            case Oneof(field="options_taken", value=pb.OptionsTaken() as taken):
                return self._taken(taken)
            case _:
                raise _Invalid(
                    "a message must be a state, a delta, a verification, a reply, a keep-alive or the options taken"
                )

    def _state(self, state: pb.ClusterState) -> Write:
        transfer = self._transfer(state)
        changes: dict[tuple[str, str], bytes | None] = {}
        for row in state.rows:
            if row.kind not in ("", state.kind):
                raise _Invalid(f"state of {state.kind!r}: has a row of {row.kind[:80]!r}")
            transfer.seen.add(_key(row.key))
            changes[state.kind, row.key] = row.data
        transfer.next_chunk += 1
        self._note(state.statuses)
        if not state.last:
            return self._write(changes)
        del self._transfers[state.kind]
        for key in self._held.keys(state.kind) - transfer.seen:
            changes[state.kind, key] = None
        digest = state.digest
        if digest is None or digest.kind not in ("", state.kind):
            raise _Invalid(f"state of {state.kind!r}: the last chunk must have the digest")
        return self._write(changes, [_Check(state.kind, digest.count, digest.digest, transfer=True)])

    def _transfer(self, state: pb.ClusterState) -> _Transfer:
        kind = self._known(state.kind)
        transfer = self._transfers.get(kind)
        if state.chunk == 0:
            if state.sync <= self._last_sync.get(kind, 0):
                raise _Invalid(f"state of {kind!r}: sync {state.sync} does not rise")
            self._last_sync[kind] = state.sync
            self._asked.discard(kind)
            transfer = self._transfers[kind] = _Transfer(state.sync)
        elif transfer is None or (state.sync, state.chunk) != (transfer.sync, transfer.next_chunk):
            expected = "none is under way" if transfer is None else f"{transfer.sync}/{transfer.next_chunk} is next"
            raise _Invalid(f"state of {kind!r}: sync {state.sync}, chunk {state.chunk}: {expected}")
        return transfer

    def _delta(self, delta: pb.ClusterDelta) -> Write:
        changes: dict[tuple[str, str], bytes | None] = {}
        for one in delta.changes:
            change = one.change
            if change is None:
                raise _Invalid("delta: a change must put or remove")
            row: pb.Row | pb.RowKey = change.value
            kind, key = self._known(row.kind), _key(row.key)
            data = row.data if isinstance(row, pb.Row) else None
            changes[kind, key] = data
            transfer = self._transfers.get(kind)
            if transfer is not None and data is not None:
                transfer.seen.add(key)
            elif transfer is not None:
                transfer.seen.discard(key)
        self._note(delta.statuses)
        return self._write(changes, self._checks(delta.digests))

    def _verification(self, verification: pb.Verification) -> Write:
        listed = {status.kind for status in verification.statuses}
        for kind in self._kinds - listed:
            before = self._statuses.get(kind)
            if before is None or before.state != SYNCED:
                self._statuses[kind] = KindStatus(kind=kind, state=SYNCED)
            self._reported.add(kind)
        self._note(verification.statuses)
        return self._write({}, self._checks(verification.digests, verification=True))

    def _keep_alive(self, alive: pb.KeepAlive) -> Echo | None:
        """The answer to our own keep-alive, or one to answer; each is answered once, or both sides would never stop."""
        if alive.at_ms in (self._probe_ms, self._echoed_ms):
            return None
        self._echoed_ms = alive.at_ms
        return Echo(alive.at_ms)

    @staticmethod
    def _taken(taken: pb.OptionsTaken) -> Taken:
        """Limited like everything that an edge says about itself."""
        if len(taken.settings) > _MOST_METADATA:
            raise _Invalid(f"options taken: must have at most {_MOST_METADATA} settings")
        settings = {name[:_METADATA_LENGTH]: value[:_ERROR_LENGTH] for name, value in taken.settings.items()}
        error = _CONTROL.sub(" ", taken.error[:_ERROR_LENGTH])
        return Taken(pb.OptionsTaken(revision=taken.revision, error=error, settings=settings))

    @staticmethod
    def interval_s(settings: Mapping[str, str], before_s: float) -> float:
        """The interval of an edge whose settings have changed."""
        try:
            return _within(float(settings["sync.interval_s"]))
        except (KeyError, ValueError):
            return before_s

    # parts

    def _write(self, changes: Mapping[tuple[str, str], bytes | None], checks: Sequence[_Check] = ()) -> Write:
        """Only the rows that differ from the held ones."""
        puts: list[Put] = []
        removals: list[tuple[str, str]] = []
        for (kind, key), data in changes.items():
            before = self._held.fingerprint(kind, key)
            if data is None:
                if before is not None:
                    removals.append((kind, key))
            elif (print_ := fingerprint(kind, key, data)) != before:
                puts.append(Put(kind, key, data, print_))
        return Write(self.sequence, tuple(puts), tuple(removals), tuple(checks))

    def _checks(self, digests: Sequence[pb.KindDigest], *, verification: bool = False) -> list[_Check]:
        return [
            _Check(self._known(digest.kind), digest.count, digest.digest, verification=verification)
            for digest in digests
        ]

    def _differs(self, check: _Check) -> bool:
        """Whether the kind has to be sent again."""
        kind = check.kind
        if kind in self._transfers:
            return False
        if self._held.digest(kind) == (check.count, check.value):
            self._open.discard(kind)
            self._differed.discard(kind)
            return False
        status = self._statuses.get(kind)
        if kind in self._reported and status is not None and status.state != SYNCED:
            return False  # the held rows are the last good ones, which the edge may not have any more
        self.mismatches += 1
        if check.verification and kind in self._asked:
            self._asked.discard(kind)  # the transfer should begin; if not, the next verification shows it
            return False
        if check.transfer:
            # Requested again at once; if it still differs, only after the next verification.
            first = kind not in self._differed
            self._differed.add(kind)
            return first
        return kind not in self._asked

    def _note(self, statuses: Sequence[pb.KindStatus]) -> None:
        for said in statuses:
            kind = self._known(said.kind)
            if said.state not in STATES:
                raise _Invalid(f"status of {kind!r}: {said.state[:40]!r} is not a known state")
            self._reported.add(kind)
            self._statuses[kind] = KindStatus(
                kind=kind, state=said.state, error=said.error[:_ERROR_LENGTH], since_s=said.since_ms / 1000
            )
            if said.state not in (SYNCED, WAITING):
                self._open.discard(kind)

    def _known(self, kind: str) -> str:
        if kind not in self._kinds:
            raise _Invalid(f"kind {kind[:80]!r} was not named in the identification")
        return kind


def _within(interval_s: float) -> float:
    """An interval that staleness can be judged by."""
    known = interval_s if isfinite(interval_s) else 0.0
    return min(_INTERVAL_S[1], max(_INTERVAL_S[0], known or _DEFAULT_INTERVAL_S))


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise _Invalid(f"key {key[:80]!r}: must be a name, or a namespace and a name with '/' between them")
    return key


def _not_identified(message: str) -> ClaimRefused:
    return ClaimRefused(RejectionReason.INVALID_IDENTIFICATION, message)
