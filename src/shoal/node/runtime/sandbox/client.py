"""Talks to the helper of a cluster: starts it where none runs, and another one when it has ended."""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import shoal
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.files import holder_of, make_private_dirs, write_private
from shoal.base.logs import get_logger
from shoal.node.runtime.model import RuntimeFailure
from shoal.node.runtime.sandbox.ids import IdMap, choose
from shoal.node.runtime.sandbox.roots import programs

log = get_logger("node.sandbox")

SOCKET, LOCK, VERSION = "helper.sock", "helper.lock", "2"
_MARSHAL = 2
_START_S, _ANSWER_S, _END_S, _POLL_S = 20.0, 30.0, 4.0, 0.02
_ERRORS = "helper.err"
_MOST_FILES = 64
_AT_ONCE = 8  # requests; the helper has a few processes for each, and few cores
_MODULE = "shoal.node.runtime.sandbox.helper.boot"
_RUN = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from {_MODULE} import main; main()"


class HelperAway(RuntimeFailure):
    """The helper does not answer; it may have been killed."""


class HelperRefusal(RuntimeFailure):
    """The helper could not do it."""


class HelperLink:
    """One connection, for one request after the other: the helper may answer a later one first."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = asyncio.Lock()
        self.ended = False

    async def ask(self, request: Mapping[str, Any], files: tuple[int, ...] = ()) -> tuple[str, list[int]]:
        """Send a request and return the words after ``ok``, with the files that came along."""
        async with self._lock:
            if self.ended:
                raise HelperAway("the helper of sandboxes has ended")
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._send(request, files)
                    line, opened = await self._line()
            except TimeoutError:
                self.close()
                raise HelperAway(f"the helper of sandboxes did not answer within {_ANSWER_S:g} s") from None
            except OSError as error:
                self.close()
                raise HelperAway(f"the helper of sandboxes has ended: {error.strerror}") from error
            except BaseException:
                self.close()  # its answer is still to come: the next request would take it for its own
                raise
        word, _, rest = line.partition(" ")
        if word != "ok":
            raise HelperRefusal(rest or "the helper of sandboxes gave no answer")
        return rest, opened

    async def _send(self, request: Mapping[str, Any], files: tuple[int, ...]) -> None:
        body = marshal.dumps(dict(request), _MARSHAL)
        data = len(body).to_bytes(4, "big") + body
        sent = socket.send_fds(self._socket, [data], files) if files else 0
        await asyncio.get_running_loop().sock_sendall(self._socket, data[sent:])

    async def _line(self) -> tuple[str, list[int]]:
        found, opened = b"", []
        while not found.endswith(b"\n"):
            data, numbers = await self._receive()
            opened += numbers
            if not data:
                raise OSError(32, "it closed the connection")
            found += data
        return found[:-1].decode(errors="replace"), opened

    async def _receive(self) -> tuple[bytes, list[int]]:
        while True:
            try:
                data, numbers, _, _ = socket.recv_fds(self._socket, 65536, _MOST_FILES)
            except BlockingIOError:
                await _readable(self._socket)
            else:
                for number in numbers:
                    os.set_inheritable(number, False)
                return data, list(numbers)

    def close(self) -> None:
        self.ended = True
        self._socket.close()


class HelperClient:
    """The helper in a folder. ``found`` is called with each new connection to a helper that this client has not talked
    to, before anything else is asked of it."""

    def __init__(
        self, folder: Path, *, clock: Clock, ids: Callable[[], IdMap], found: Callable[[HelperLink], Awaitable[None]]
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._ids = ids
        self._found = found
        self._links: list[HelperLink] = []
        self._connections = 0  # counts ``close``, after which links that are in use are not kept
        self._helper = 0
        self._opening = asyncio.Lock()
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, request: Mapping[str, Any], files: tuple[int, ...] = ()) -> tuple[str, list[int]]:
        """As ``HelperLink.ask``. Raises ``HelperAway`` if no helper can be started."""
        async with self._at_once:
            link = await self._take()
            connections = self._connections
            try:
                return await link.ask(request, files)
            finally:
                if connections != self._connections:  # closed meanwhile
                    link.close()
                elif not link.ended:
                    self._links.append(link)

    @property
    def is_there(self) -> bool:
        """Whether the helper that was last found still runs."""
        return self._helper > 0 and holder_of(self._folder / LOCK) == self._helper

    async def _take(self) -> HelperLink:
        async with self._opening:
            if not self.is_there:
                self._drop_links()
                link = await self._greeted()
                try:
                    await self._found(link)
                except BaseException:
                    link.close()
                    raise
                self._helper = holder_of(self._folder / LOCK) or 0
                return link
        if self._links:
            return self._links.pop()
        opened = await dial(self._folder)
        if opened is None:
            raise HelperAway("the helper of sandboxes has ended")
        return opened

    def _drop_links(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()

    async def _greeted(self) -> HelperLink:
        for _ in range(2):
            link = await dial(self._folder)
            if link is None:
                await self._start()
                link = await dial(self._folder)
            if link is None:
                raise HelperAway(f"the helper of sandboxes in {self._folder} does not accept connections")
            version, _ = await link.ask({"do": "hello"})
            if version == VERSION:
                return link
            link.close()
            await end_helper(self._folder, clock=self._clock)
        raise HelperAway(f"the helper of sandboxes in {self._folder} has another version and does not end")

    async def _start(self) -> None:
        make_private_dirs(self._folder)
        ids = self._ids()
        config = {
            "root": ids.root, "uids": list(ids.uids), "gids": list(ids.gids), "mapper": ids.mapper,
            "programs": [str(path) for path in programs() if path.is_dir()],
        }  # fmt: skip
        write_private(self._folder / "config", marshal.dumps(config, _MARSHAL), durable=False)
        source = str(Path(shoal.__file__).parents[1])
        with (self._folder / _ERRORS).open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", _RUN, source, str(self._folder), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=errors, start_new_session=True, env={},
            )  # fmt: skip
        try:
            async with within(self._clock, _START_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise HelperAway(f"the helper of sandboxes did not start within {_START_S:g} s") from None
        if code:
            raise HelperAway(f"the helper of sandboxes did not start: {_last_line(self._folder / _ERRORS)}")

    async def close(self) -> None:
        """Disconnect; the helper goes on."""
        self._connections += 1
        self._drop_links()
        self._helper = 0


async def dial(folder: Path) -> HelperLink | None:
    """A connection to the helper of a folder; None if none listens there."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        made.close()
        return None
    try:  # by way of the open folder, because paths of sockets may have 107 bytes only
        await asyncio.get_running_loop().sock_connect(made, f"/proc/self/fd/{place}/{SOCKET}")
    except OSError:
        made.close()
        return None
    except BaseException:
        made.close()
        raise
    finally:
        os.close(place)
    return HelperLink(made)


async def end_helper(folder: Path, *, clock: Clock) -> None:
    """End the helper of a cluster, if one runs. Containers that still run go on without it."""
    pid = holder_of(folder / LOCK)
    if pid is None:
        return
    link = await dial(folder)
    with suppress(RuntimeFailure, TimeoutError):
        async with within(clock, _END_S):
            if link is not None:
                await link.ask({"do": "end"})
            while holder_of(folder / LOCK) == pid:
                await clock.sleep(_POLL_S)
    if link is not None:
        link.close()
    if holder_of(folder / LOCK) == pid:
        log.warning("the helper of sandboxes does not end; killing it", pid=pid)
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


async def remove_as_helper(folder: Path, target: Path, *, clock: Clock) -> None:
    """Delete a folder as the root of the cluster whose helper works in ``folder``; starts one for it."""

    async def nothing(link: HelperLink) -> None:
        pass

    client = HelperClient(folder, clock=clock, ids=lambda: choose(folder, "auto"), found=nothing)
    try:
        await client.ask({"do": "remove", "folder": str(target.absolute())})  # noqa: ASYNC240
    finally:
        await client.close()
        await end_helper(folder, clock=clock)


async def _readable(connected: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        loop.remove_reader(connected)
        if not woken.done():
            woken.set_result(None)

    loop.add_reader(connected, ready)
    try:
        await woken
    finally:
        loop.remove_reader(connected)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it gave no reason"
