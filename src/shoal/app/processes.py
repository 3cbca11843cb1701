"""Shared by all long-running processes: logs, the ready line, uvloop, exit on a signal or with the parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from shoal.base import logs, stdlib_logs

# The default of 5 ms would let a thread, such as a store's writer, wait that long for a busy event loop before each of
# its steps.
_SWITCH_INTERVAL_S = 0.0005


def start_logs(level: str) -> None:
    """Log JSON lines on standard error from this level on, those of libraries too."""
    logs.configure(level=level)
    stdlib_logs.capture()


def say_ready(url: str = "") -> None:
    """The line on standard output for which `shoal up`, scripts and tests wait; systemd, which waits too, is told."""
    print(f"ready {url}".rstrip(), flush=True)
    if address := os.environ.get("NOTIFY_SOCKET"):  # of a unit with Type=notify; @ begins an abstract name
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


def say_runtime(line: str) -> None:
    """How pods run: the first line on standard error, so that `ready` stays the first one on standard output."""
    print(line, file=sys.stderr, flush=True)


def hand_over_often() -> None:
    """Threads and the event loop hand the interpreter to each other ten times as often as by default."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def run_until_signal(
    serve: Callable[[asyncio.Event], Any], reload: Callable[[], None] | None = None, *, traced: str = ""
) -> None:
    """Run ``serve``; the event it gets is set on SIGTERM and SIGINT. SIGHUP calls ``reload``. ``traced``
    names the process in traces, where ``SHOAL_TRACES`` asks for them."""
    from shoal.base import tracing

    finish = tracing.configure(os.environ, service=traced) if traced else lambda: None

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, reload)
        await serve(stop)

    try:
        run_loop(main())
    finally:
        finish()


def run_loop(main: Coroutine[Any, Any, object]) -> None:
    """Run the process's coroutine on uvloop, which is not made for every system, else on asyncio's own loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def stop_when_stdin_ends() -> None:
    """End with the process that holds the other end of our standard input, however that one ends."""

    def wait() -> None:
        # Not through sys.stdin: its lock, held by this thread for ever, would break the interpreter's own exit.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin", daemon=True).start()
