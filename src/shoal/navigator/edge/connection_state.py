"""State of one connection of the edge."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shoal.navigator.digest import KindDigest
from shoal.navigator.edge.machine_settings import KeepAliveSettings
from shoal.wire.navigator.v1 import navigator_pb as pb

_NEVER = float("inf")
_ASKED_KEPT = 8


@dataclass(slots=True)
class Transfer:
    """A kind that is being sent whole."""

    kind: str
    sync: int
    pending: dict[str, None]  # keys in the order of sending
    chunk: int = 0
    digest: KindDigest = field(default_factory=KindDigest)  # of the rows sent so far


class ConnectionState:
    def __init__(self, now_s: float, interval_s: float) -> None:
        self.epoch = 0
        self.sequence = 0
        self.syncs = 0
        self.message_bytes = 0
        self.held: dict[str, tuple[int, int]] = {}  # digests of the manager when it accepted
        # Each kind is in at most one of these three; in none of them while it is not compared.
        self.sent: dict[str, KindDigest] = {}  # equal except for dirty keys: the manager's digest
        self.whole: dict[str, None] = {}  # to be sent whole, in this order
        self.transfer: Transfer | None = None
        self.dirty: dict[str, dict[str, int | None]] = {}  # kind → key → fingerprint that the manager has
        self.dirty_count = 0
        self.statuses: dict[str, None] = {}  # kinds whose new status was not sent yet
        self.replies: deque[pb.Reply] = deque()
        self.echoes: deque[pb.KeepAlive] = deque()
        self.options_taken: pb.OptionsTaken | None = None  # not sent yet
        self.replied = False  # whether the last message was a part of an answer
        # time
        self.interval_s = interval_s
        self.verified_s: float | None = None
        self.verify_s = _NEVER
        self.changes = 0  # sent since the last verification
        self.delta_s = 0.0
        self.sent_s = now_s
        self._heard_s = now_s
        self._asked: dict[int, None] = {}  # stamps of keep-alives that were not answered
        self._asked_s: float | None = None  # when the oldest unanswered keep-alive was sent
        self.unacknowledged: deque[int] = deque()
        self._progress_s = now_s  # when the oldest of them was sent, or the last acknowledgement came

    @property
    def idle(self) -> bool:
        return self.transfer is None and not self.whole and not self.dirty_count

    # dirty keys

    def mark(self, kind: str, key: str, old: int | None) -> None:
        keys = self.dirty.setdefault(kind, {})
        if key not in keys:
            keys[key] = old
            self.dirty_count += 1

    def unmark(self, kind: str, key: str) -> int | None:
        keys = self.dirty[kind]
        self.dirty_count -= 1
        old = keys.pop(key)
        if not keys:
            del self.dirty[kind]
        return old

    def forget(self, kind: str) -> None:
        """Discard what is known about the manager's rows of this kind."""
        self.sent.pop(kind, None)
        self.dirty_count -= len(self.dirty.pop(kind, ()))

    # keep-alives

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s
        self._asked_s = None

    def asked(self, stamp_ms: int, now_s: float) -> None:
        """A keep-alive was sent."""
        self._asked[stamp_ms] = None
        while len(self._asked) > _ASKED_KEPT:
            del self._asked[next(iter(self._asked))]
        if self._asked_s is None:
            self._asked_s = now_s

    def answered(self, stamp_ms: int) -> bool:
        """Whether a received keep-alive answers one that was sent."""
        if stamp_ms not in self._asked:
            return False
        del self._asked[stamp_ms]
        return True

    def open(self, now_s: float) -> None:
        """The message of the current sequence must be acknowledged."""
        if not self.unacknowledged:
            self._progress_s = now_s
        self.unacknowledged.append(self.sequence)

    def acknowledged(self, sequence: int, now_s: float) -> None:
        while self.unacknowledged and self.unacknowledged[0] <= sequence:
            self.unacknowledged.popleft()
            self._progress_s = now_s

    def keep_alive_s(self, config: KeepAliveSettings) -> float:
        """When to send a keep-alive: after silence of either side."""
        if self._asked_s is not None:
            return _NEVER
        return min(self.sent_s, self._heard_s) + config.keep_alive_s

    def dead_s(self, config: KeepAliveSettings) -> float:
        """When the connection counts as dead unless a message comes."""
        answer_s = self._asked_s + config.keep_alive_timeout_s if self._asked_s is not None else _NEVER
        stored_s = self._progress_s + config.request_timeout_s if self.unacknowledged else _NEVER
        return min(answer_s, stored_s)

    def dead(self, now_s: float, config: KeepAliveSettings) -> str:
        if self._asked_s is not None and now_s >= self._asked_s + config.keep_alive_timeout_s:
            return "the manager does not answer keep-alives"
        if self.unacknowledged and now_s >= self._progress_s + config.request_timeout_s:
            return "the manager does not acknowledge messages"
        return ""
