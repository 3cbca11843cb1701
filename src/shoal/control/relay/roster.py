"""Agents that the control plane has admitted: a relay serves them while the control plane is unreachable. Pure.

A relay admits no new agent by itself. An admission, a token for an epoch of a place, is remembered until the
control plane says otherwise; a newer epoch ends the older ones at once.
"""

from __future__ import annotations

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.control.service.stream.opened import fenced
from shoal.sync.keys import Place

_MOST = 20_000


class Roster:
    """Places are by the cluster's name."""

    def __init__(self) -> None:
        self._epochs: dict[Place, int] = {}
        self._owners: dict[Place, str] = {}
        self._admitted: dict[tuple[str, Place], int] = {}  # token's digest and place: the newest epoch admitted

    def joined(self, place: Place, epoch: int, public_key: bytes, digest: str) -> None:
        """The control plane has given this epoch to an agent with this key."""
        if epoch >= self._epochs.get(place, 0):
            self._owners[place] = public_key.hex() or f"epoch {epoch}"
        self.admitted(place, epoch, digest)

    def admitted(self, place: Place, epoch: int, digest: str) -> None:
        if epoch > self._epochs.get(place, 0):
            self._epochs[place] = epoch
        if len(self._admitted) >= _MOST:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[digest, place] = max(epoch, self._admitted.get((digest, place), 0))

    def refused(self, place: Place, digest: str) -> None:
        """The control plane does not let the token speak for the place (any more)."""
        self._admitted.pop((digest, place), None)

    def owner(self, place: Place, epoch: int) -> str:
        """For whose key secrets of the place are wrapped; another text whenever that may be another key."""
        if epoch == self._epochs.get(place, 0) and place in self._owners:
            return self._owners[place]
        return f"epoch {epoch}"

    def epoch(self, place: Place) -> int:
        return self._epochs.get(place, 0)

    def check(self, place: Place, epoch: int, digest: str) -> None:
        """Whether the agent may be served without the control plane. Refuses agents that were not admitted before."""
        newest = self._epochs.get(place, 0)
        if 0 < epoch < newest:
            raise fenced(place, epoch, newest)
        if epoch == 0 or self._admitted.get((digest, place)) != epoch:
            raise ConnectError(
                Code.UNAVAILABLE,
                "the control plane is unreachable, and this relay does not know the agent yet: try again",
            )
