"""Send requests at a steady rate from another process, and record the outcome of each.

    with RequestLoad(outcomes_file, "127.0.0.1:8040", "shop.example", rate=500, mix=("GET /", "POST /echo")) as load:
        ...
    failed = [one for one in load.outcomes() if one.status != 200]

The rate does not depend on the answers: a request that hangs delays no other request. Connections are reused, unless
``lasting`` is False: then each request has one of its own, as those of many users. Times are those of the machine's
monotonic clock, so a test can compare them with its own.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from shoal.testing.tally import TALLY

_BODY = b'{"some": "body"}'
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of one request. ``status`` 0 means no answer, and ``error`` says why; else ``error`` is the code of a
    gateway's refusal."""

    asked: str
    started: float
    ended: float
    status: int
    error: str = ""
    version: str = ""  # of the demo application
    instance: str = ""


class RequestLoad:
    """Sends from entry to exit; the exit waits for requests under way."""

    def __init__(
        self,
        file: Path,
        address: str,
        host: str,
        *,
        rate: float,
        mix: Sequence[str] = ("GET /",),
        lasting: bool = True,
    ) -> None:
        self._file = file
        how = "lasting" if lasting else "short"
        self._command = [sys.executable, "-m", __name__, str(file), address, host, str(rate), how, *mix]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the load did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(_LONGEST_S)
        TALLY.checked += len(self.outcomes())

    def outcomes(self) -> list[RequestOutcome]:
        """The outcomes known so far, in the order in which requests ended."""
        lines = self._file.read_bytes().split(b"\n")[:-1]
        return [RequestOutcome(**orjson.loads(line)) for line in lines]


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"lost: {error}" if error else "closed without an answer"))

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, request: bytes) -> bytes:
        assert self._transport is not None
        self._answer, self._data = asyncio.get_running_loop().create_future(), b""
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, mark, body = self._data.partition(b"\r\n\r\n")
        if mark and self._answer is not None and not self._answer.done():
            at = head.lower().find(b"\r\ncontent-length:")
            if at >= 0 and len(body) >= int(head[at + 17 :].split(b"\r\n", 1)[0]):
                self._answer.set_result(self._data)


class _Client:
    def __init__(self, address: str, host: str, file: Path, *, lasting: bool) -> None:
        self._lasting = lasting
        self._at = address.rpartition(":")
        self._host = host
        self._idle: list[_Connection] = []
        self._out = file.open("wb", buffering=0)

    async def ask(self, asked: str) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(_LONGEST_S):
                found = _read(await self._exchange(_request(asked, self._host)))
        except (OSError, TimeoutError) as error:
            found = {"status": 0, "error": f"{type(error).__name__}: {error}"}
        outcome = RequestOutcome(asked=asked, started=started, ended=time.monotonic(), **found)
        self._out.write(orjson.dumps(asdict(outcome)) + b"\n")

    async def _exchange(self, request: bytes) -> bytes:
        while self._idle and not self._idle[-1].usable:
            self._idle.pop()
        if self._idle:
            connection = self._idle.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._at[0], int(self._at[2])
            )
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.close()
            raise
        if not self._lasting or b"\r\nconnection: close" in answer.partition(b"\r\n\r\n")[0].lower():
            connection.close()
        else:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._out.close()


def _request(asked: str, host: str) -> bytes:
    method, _, path = asked.partition(" ")
    body = _BODY if method in ("POST", "PUT", "PATCH") else b""
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nhost: {host}\r\n{length}\r\n".encode() + body


def _read(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        told = {}
    error = told.get("error")
    return {
        "status": status,
        "error": error.get("code", "") if isinstance(error, dict) else "",
        "version": told.get("version", ""),
        "instance": told.get("instance", ""),
    }


async def _run(file: Path, address: str, host: str, rate: float, how: str, mix: Sequence[str]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)  # ends with the test's process
    client, under_way = _Client(address, host, file, lasting=how == "lasting"), set[asyncio.Task[None]]()
    print("ready", flush=True)
    began, sent = time.monotonic(), 0
    while not stop.is_set():
        while sent < (time.monotonic() - began) * rate:
            task = asyncio.create_task(client.ask(mix[sent % len(mix)]), name=f"request/{sent}")
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            sent += 1
        await asyncio.sleep(1 / rate)
    loop.remove_reader(sys.stdin.fileno())
    if under_way:
        await asyncio.wait(under_way)
    client.close()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5], sys.argv[6:]))
