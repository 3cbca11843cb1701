"""Outgoing messages of one stream, for one writer. Bounded: of most types only the newest message is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from protobuf import Oneof

from shoal.navigator.manager.registry import ClaimRefused
from shoal.wire.navigator.v1 import navigator_pb as pb


class Outbox:
    """Requests are limited by their sender; of other types there is at most one message."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._first: deque[pb.ManagerMessage] = deque()  # acceptance and requests, in order
        self._received = 0
        self._resync: dict[str, None] = {}
        self._options: pb.Options | None = None
        self._echo: pb.KeepAlive | None = None
        self._probe: pb.KeepAlive | None = None
        self._refused: ClaimRefused | None = None
        self._ended = False

    def accept(self, accepted: pb.Accepted) -> None:
        self._first.append(_message("accepted", accepted))
        self._wake.set()

    def request(self, request: pb.Request) -> None:
        self._first.append(_message("request", request))
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self._first.append(_message("cancel", pb.Cancel(id=request_id)))
        self._wake.set()

    def received(self, sequence: int) -> None:
        self._received = max(self._received, sequence)
        self._wake.set()

    def resync(self, kinds: Iterable[str]) -> None:
        self._resync.update(dict.fromkeys(kinds))
        self._wake.set()

    def options(self, options: pb.Options) -> None:
        self._options = options
        self._wake.set()

    def echo(self, alive: pb.KeepAlive) -> None:
        self._echo = alive
        self._wake.set()

    def probe(self, alive: pb.KeepAlive) -> None:
        self._probe = alive
        self._wake.set()

    def refuse(self, refused: ClaimRefused) -> None:
        """Send the refusal as the last message. The first one counts."""
        if self._refused is None:
            self._refused = refused
        self._wake.set()

    def end(self) -> None:
        """End without a last message: the client is gone, or the process stops."""
        self._ended = True
        self._wake.set()

    @property
    def refused(self) -> ClaimRefused | None:
        return self._refused

    async def next(self) -> pb.ManagerMessage | None:
        """Wait for the next message; None at the end, which follows a refusal."""
        while True:
            self._wake.clear()
            if self._ended:
                return None
            if self._refused is not None:
                self._ended = True
                return _rejected(self._refused)
            if (message := self._take()) is not None:
                return message
            await self._wake.wait()

    def _take(self) -> pb.ManagerMessage | None:
        if self._first:
            return self._first.popleft()
        if self._options is not None:
            options, self._options = self._options, None
            return _message("options", options)
        if self._received:
            sequence, self._received = self._received, 0
            return _message("received", pb.Received(sequence=sequence))
        if self._resync:
            kinds, self._resync = list(self._resync), {}
            return _message("resync", pb.ResyncRequest(kinds=kinds))
        if self._echo is not None:
            alive, self._echo = self._echo, None
            return _message("keep_alive", alive)
        if self._probe is not None:
            alive, self._probe = self._probe, None
            return _message("keep_alive", alive)
        return None


def _rejected(refused: ClaimRefused) -> pb.ManagerMessage:
    code = pb.RejectionCode[refused.code]
    body = pb.Rejected(code=code, message=refused.message, retry_after_seconds=refused.retry_after_s)
    return _message("rejected", body)


def _message(field: str, body: object) -> pb.ManagerMessage:
    said: Any = Oneof(field, body)
    return pb.ManagerMessage(body=said)
