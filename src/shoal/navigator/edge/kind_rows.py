"""The edge's state of each kind: rows with fingerprints, their digest, and the kind's status."""

from __future__ import annotations

from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.edge.rows import fitting
from shoal.wire.navigator.v1 import navigator_pb as pb

SYNCED, WAITING, MISSING, FORBIDDEN, FAILING = "synced", "waiting", "missing", "forbidden", "failing"
_ERROR_CHARACTERS = 300


class KindRows:
    """One kind. It is ``ready`` once all its objects have been read; later errors keep the rows."""

    __slots__ = ("digest", "error", "kind", "largest", "ready", "rows", "since_ms", "state")

    def __init__(self, kind: str, largest: int) -> None:
        self.kind = kind
        self.largest = largest  # the size of data beyond which a row becomes a stub
        self.rows: dict[str, tuple[bytes, int]] = {}  # key → data, fingerprint
        self.digest = KindDigest()
        self.ready = False
        self.state = WAITING
        self.error = ""
        self.since_ms = 0

    def put(self, key: str, data: bytes) -> tuple[int | None, int]:
        """The fingerprints before (None: there was no such row) and after."""
        data = fitting(data, self.largest)
        new = fingerprint(self.kind, key, data)
        held = self.rows.get(key)
        if held is None:
            self.digest.add(new)
        elif held[1] == new:
            return new, new
        else:
            self.digest.change(held[1], new)
        self.rows[key] = (data, new)
        return (None if held is None else held[1]), new

    def remove(self, key: str) -> int | None:
        """The fingerprint of the removed row; None when there was none."""
        held = self.rows.pop(key, None)
        if held is None:
            return None
        self.digest.remove(held[1])
        return held[1]

    def set_status(self, state: str, error: str, now_ms: int) -> bool:
        """False when nothing changed."""
        error = error[:_ERROR_CHARACTERS]
        if (state, error) == (self.state, self.error):
            return False
        if state != self.state:
            self.since_ms = now_ms
        self.state, self.error = state, error
        return True

    def limit(self, largest: int) -> None:
        """Rows larger than this become stubs."""
        self.largest = min(self.largest, largest)
        for key in [key for key, (data, _) in self.rows.items() if len(data) > self.largest]:
            self.put(key, self.rows[key][0])

    def status(self) -> pb.KindStatus:
        return pb.KindStatus(kind=self.kind, state=self.state, error=self.error, since_ms=self.since_ms)


def wire_digest(kind: str, digest: KindDigest) -> pb.KindDigest:
    return pb.KindDigest(kind=kind, count=digest.count, digest=digest.value)
