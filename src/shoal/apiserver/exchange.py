"""One request being answered: the handler's coroutine, driven by what it waits for. Part of ``apiserver.http``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from shoal.apiserver.messages import Answer, LongResponse, Request, RequestTimedOut, Response, timeout_of

if TYPE_CHECKING:
    from shoal.apiserver.http import HttpServer


class Owner(Protocol):
    """Where requests come from: a connection of HTTP/1.1, or a stream of HTTP/2."""

    server: HttpServer

    def flush_answers(self) -> None:
        """A handler has answered."""

    def abort(self) -> None: ...

    def is_http_1_0(self) -> bool:
        """Whether the request that has just been parsed is HTTP/1.0."""


class Exchange:
    """Drives one handler coroutine and keeps its answer until the answers to earlier requests are sent."""

    __slots__ = ("answer", "connection", "coroutine", "deadline", "old", "request", "waiting_for")

    def __init__(self, connection: Owner, request: Request, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self.connection = connection
        self.request = request
        self.answer: Answer | None = None
        self.waiting_for: asyncio.Future[Any] | None = None
        self.coroutine = coroutine
        server = connection.server
        self.deadline = server.tick + timeout_of(request.query, server.limits.request_timeout_s)
        self.old = connection.is_http_1_0()

    def step(self, done: asyncio.Future[Any]) -> None:
        """The awaited result is ready: run the handler until it waits again or answers."""
        if done is self.waiting_for:  # False when the wait was cancelled after this call was scheduled
            self._resume(self.coroutine.send, None)

    def time_out(self) -> None:
        """The request timed out. A commit in progress continues; only the wait ends."""
        self._stop_waiting()
        self._resume(self.coroutine.throw, RequestTimedOut())

    def _stop_waiting(self) -> None:
        waiting, self.waiting_for = self.waiting_for, None
        if waiting is not None and waiting is not _DONE:
            waiting.remove_done_callback(self.step)

    def _resume(self, resume: Callable[[Any], Any], value: Any) -> None:
        try:
            waiting = resume(value)
        except StopIteration as stop:
            self.answer = stop.value
            self.connection.flush_answers()
        except asyncio.CancelledError:
            self.connection.abort()
        except Exception as error:
            self.answer = self.connection.server.on_error(self.request, error)
            self.connection.flush_answers()
        else:
            self.wait_for(waiting)

    def wait_for(self, waiting: Any) -> None:
        """Go on when ``waiting``, which the handler has yielded, is done."""
        if waiting is None:  # a bare yield: asyncio.sleep(0)
            self.waiting_for = _DONE
            self.connection.server.loop.call_soon(self.step, _DONE)
            return
        waiting._asyncio_future_blocking = False  # what a task would do: this exchange is the one that waits
        self.waiting_for = waiting
        waiting.add_done_callback(self.step)

    def cancel(self) -> None:
        """The client disconnected. A commit in progress continues; only the wait ends."""
        if self.answer is None:
            self._stop_waiting()
            self.coroutine.close()
        else:
            discard(self.answer)


def discard(answer: Answer) -> None:
    """The answer will not be sent: release what it holds."""
    if isinstance(answer, LongResponse):
        answer.on_sent()
    elif not isinstance(answer, Response):
        answer.on_closed()


_DONE: Any = object()  # a finished future for a bare yield
