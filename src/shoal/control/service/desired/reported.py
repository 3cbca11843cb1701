"""Digests of agents' reports: one per place and stream, over the fingerprint of every key's last report.

An agent keeps the same digest and sends it with its heartbeats. Equal digests mean that nothing was lost on the way,
and cost nothing to find out. This copy may be behind when reports reached another control plane, so a difference is
judged only after reading the place again. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.sync.digest import Digest, differing
from shoal.sync.keys import Place

_NOTHING = Digest().buckets


class Reported:
    """A fingerprint of 0 means that there is no report."""

    def __init__(self) -> None:
        self._digests: dict[tuple[Place, str], Digest] = {}

    def put(self, place: Place, stream: str, key: str, fingerprint: int) -> None:
        if fingerprint:
            self._digest(place, stream).put(key, str(fingerprint))
        elif (digest := self._digests.get((place, stream))) is not None:
            digest.drop(key)

    def replace(self, place: Place, stream: str, rows: Iterable[tuple[str, int]]) -> None:
        """The reports of a place as the database has them."""
        self._digests[place, stream] = Digest()
        for key, fingerprint in rows:
            self.put(place, stream, key, fingerprint)

    def clear(self, place: Place) -> None:
        for known, stream in list(self._digests):
            if known == place:
                del self._digests[known, stream]

    def differing(self, place: Place, stream: str, theirs: Sequence[int]) -> list[int]:
        """Buckets in which the agent and this copy differ; none when the agent sent no digest."""
        if not theirs:
            return []
        digest = self._digests.get((place, stream))
        return differing(_NOTHING if digest is None else digest.buckets, theirs)

    def _digest(self, place: Place, stream: str) -> Digest:
        digest = self._digests.get((place, stream))
        if digest is None:
            digest = self._digests[place, stream] = Digest()
        return digest
