"""An open stream, as those see it who may end it, and the errors that end one."""

from __future__ import annotations

import asyncio

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.errors import ServiceUnavailable, ShoalError
from shoal.sync.keys import Place


class OpenStream:
    """One open stream. ``end`` makes it stop with an error; the first one counts."""

    __slots__ = ("digest", "epoch", "error", "place", "reason", "stream", "token_id", "wake")

    def __init__(self, place: Place, stream: str, epoch: int, token_id: str, digest: str = "") -> None:
        self.place = place
        self.stream = stream
        self.epoch = epoch
        self.token_id = token_id
        self.digest = digest  # of the token's text that it was opened with
        self.wake = asyncio.Event()
        self.error: ConnectError | None = None
        self.reason = "closed"

    def end(self, reason: str, error: ConnectError) -> None:
        if self.error is None:
            self.error, self.reason = error, reason
            self.wake.set()


def fenced(place: Place, epoch: int, newest: int) -> ConnectError:
    """The error for an agent that was replaced by another."""
    message = f"fenced: epoch {epoch} of {place} was replaced by {newest}; join again to take over"
    return ConnectError(Code.FAILED_PRECONDITION, message)


def to_connect(error: ShoalError) -> ConnectError:
    """What a failure of ours looks like to an agent."""
    if isinstance(error, ServiceUnavailable):
        return ConnectError(Code.UNAVAILABLE, str(error))
    return ConnectError(Code.INTERNAL, str(error))
