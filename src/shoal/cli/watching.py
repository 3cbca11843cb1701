"""Watch mode: redraws the screen of a terminal, or prints only new lines to other outputs."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

import typer

from shoal.base.clock import RealClock
from shoal.cli.printers import Format, line_document
from shoal.cli.rest import CannotReach, EventStream, RequestRefused, Rest

REFRESH_S = 2.0  # on a terminal, to update ages
_CLEAR = "\x1b[H\x1b[2J"
_JOIN_S = 0.05
_POLL_S = 1.0


class Display:
    """Shows one text after the other."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._before: list[str] = []

    @property
    def is_terminal(self) -> bool:
        return self._terminal

    def show(self, text: str) -> None:
        lines = text.splitlines()
        if self._terminal:
            self._out.write(_CLEAR + text)
        else:
            self._out.writelines(f"{line}\n" for line in lines if line not in self._before)
        self._out.flush()
        self._before = lines

    def show_document(self, value: Any, output: Format) -> None:
        """One line of JSON, or one YAML document, for each value."""
        self._out.write(line_document(value, output))
        self._out.flush()


def until_stopped(every_s: float, look: Callable[[], object]) -> None:
    """Call ``look`` every ``every_s`` until interrupted. An unreachable server is reported once, then retried."""
    pause = threading.Event()
    warned = False
    while True:
        try:
            look()
            warned = False
        except CannotReach as error:
            if not warned:
                typer.echo(f"{error}; retrying", err=True)
            warned = True
        pause.wait(every_s)


class ReconnectingStream:
    """The messages of an event stream, read by a thread that reconnects when the stream ends."""

    def __init__(
        self, rest: Rest, path: str, params: Mapping[str, Any] | None = None, *, reconnect_s: float = 1.0
    ) -> None:
        self._rest = rest
        self._path = path
        self._params = dict(params or {})
        self._reconnect_s = reconnect_s
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=1000)
        self._closed = threading.Event()
        self._reading: EventStream | None = None
        self._thread = threading.Thread(target=self._read, name=f"stream {path}", daemon=True)

    def __enter__(self) -> ReconnectingStream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):  # the thread may wait for space in the queue
                self._queue.get_nowait()
            if self._reading is not None:
                self._reading.close()
            self._thread.join(_JOIN_S)

    def next(self, timeout_s: float | None = None) -> Any:
        """The data of the next message; None after the timeout. Raises the error that ended the stream for good."""
        clock = RealClock()
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        while True:
            # a wait without a timeout cannot be interrupted on every platform
            left_s = _POLL_S if deadline is None else min(_POLL_S, deadline - clock.monotonic())
            try:
                found = self._queue.get(timeout=max(0.0, left_s))
            except queue.Empty:
                if deadline is not None and clock.monotonic() >= deadline:
                    return None
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def _read(self) -> None:
        last, warned = "", False
        while not self._closed.is_set():
            try:
                self._reading = self._rest.events(self._path, params=self._params, last=last)
                for message in self._reading:
                    last, warned = message.id or last, False
                    if message.event == "error":
                        raise RequestRefused(
                            401, str(message.data.get("code", "")), str(message.data.get("message", "")), []
                        )
                    self._queue.put(message.data)
            except Exception as error:  # raised by next() in the reader's thread
                passing = isinstance(error, CannotReach) or (
                    isinstance(error, RequestRefused) and error.status in (429, 503)
                )
                if not passing:
                    self._queue.put(error)
                    return
                if not warned and not self._closed.is_set():
                    typer.echo(f"{error}; retrying", err=True)
                warned = True
            self._closed.wait(self._reconnect_s)
