"""Relays in the proxy process of a cluster: starts it where none runs, finds the one of an earlier start, and starts
another one with the same listeners when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.files import holder_of, make_private_dirs
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks, wait_first
from shoal.errors import ShoalError
from shoal.node.dns.model import ServiceNames
from shoal.node.dns.model import pack as pack_names
from shoal.node.forks.client import NO_FORKS, ForkClient, ForkRefused
from shoal.node.policy.model import Rules
from shoal.node.policy.model import pack as pack_rules
from shoal.node.proxy import wire
from shoal.node.proxy.metrics import ProxyMetrics
from shoal.node.proxy.model import InsideNetwork, ListenAddress, ProxyListener, SharedNetwork
from shoal.reconcile.keys import ObjectKey

log = get_logger("node.proxy")

_ANSWER_S = 10.0
_START_S = 20.0
_END_S = 4.0  # longer than connections get to end
_POLL_S = 0.02
_COUNT_S = 5.0  # between two looks at what it has counted
_PROGRAM = "shoal.node.proxy.serve"
_ERRORS = "proxy.err"
_PASSED_ON = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
_THRIFTY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536"}


class ProxyAway(ShoalError):
    """The proxy process does not answer."""


async def _ready() -> None:
    pass


class ProxyProcess:
    """Implements ``Relays``. ``run`` keeps the process alive; ``release`` leaves it running."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        metrics: ProxyMetrics,
        forks: ForkClient = NO_FORKS,
        shared: SharedNetwork | None = None,
        inside: InsideNetwork | None = None,
        ready: Callable[[], Awaitable[None]] = _ready,
    ) -> None:
        self._inside = inside
        self._ready = ready  # awaited before the network of sandboxes is used; raises ``ShoalError``
        self._folder = folder
        self._shared = shared
        self._clock = clock
        self._metrics = metrics
        self._forks = forks
        self._names: dict[ObjectKey, ServiceNames] = {}
        self._rules: Rules | None = None
        self._served: dict[ListenAddress, ProxyListener] = {}
        self._lock = asyncio.Lock()
        self._link: _Link | None = None

    async def open(self, listener: ProxyListener) -> int:
        answer = await self._ask("open", wire.pack(listener))
        if "error" in answer:
            raise OSError(answer["errno"], answer["error"])
        self._served[listener.place] = listener
        return int(answer["port"])

    def serves(self, place: ListenAddress) -> bool:
        return place in self._served

    async def close(self, place: ListenAddress) -> None:
        self._served.pop(place, None)
        await self._ask("close", wire.pack_place(place))

    async def keep(self, places: Collection[ListenAddress]) -> None:
        await self._ask("keep", [wire.pack_place(each) for each in places])

    async def set_names(self, key: ObjectKey, names: ServiceNames | None) -> None:
        if names is None:
            self._names.pop(key, None)
        else:
            self._names[key] = names
        await self._ask("name", [key.namespace, key.name], None if names is None else pack_names(names))

    async def keep_names(self, keys: Collection[ObjectKey]) -> None:
        await self._ask("keep_names", [[each.namespace, each.name] for each in keys])

    async def set_rules(self, rules: Rules) -> str:
        self._rules = rules
        answer = await self._ask("rules", pack_rules(rules))
        return str(answer.get("error", ""))

    async def run(self) -> None:
        backoff, failures = Backoff(base_s=0.1, cap_s=5.0), 0
        while True:
            try:
                link = await self._connected()
            except ProxyAway as error:
                failures += 1
                log.warning("the service proxy cannot be started; trying again", reason=str(error))
                await self._clock.sleep(backoff.bound_s(failures))
                continue
            failures = 0
            while not link.ended.is_set():
                with suppress(ProxyAway):
                    self._metrics.saw(await link.ask("counts"))
                await wait_first(link.ended.wait(), self._clock.sleep(_COUNT_S))
            log.warning("the service proxy has ended; starting another one")

    async def release(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def _ask(self, *question: Any) -> dict[str, Any]:
        return await (await self._connected()).ask(*question)

    async def _connected(self) -> _Link:
        async with self._lock:
            if self._link is not None and not self._link.ended.is_set():
                return self._link
            await self.release()
            link = await self._greeted()
            try:
                await self._share(link)
                await self._enter(link)
                for listener in list(self._served.values()):
                    answer = await link.ask("open", wire.pack(listener))
                    if "error" in answer:
                        del self._served[listener.place]
                        log.warning(
                            "a service is not served any more", place=str(listener.place), reason=answer["error"]
                        )
            except BaseException:
                await link.close()
                raise
            self._link = link
            self._metrics.found(await link.ask("counts"))
            return link

    async def _share(self, link: _Link) -> None:
        if self._shared is None:
            return
        answer = await link.ask("share", self._shared.cidr, list(self._shared.clients))
        if "error" in answer:
            log.warning("containers do not reach services", network=self._shared.cidr, reason=answer["error"])

    async def _enter(self, link: _Link) -> None:
        if self._inside is None:
            return
        try:
            await self._ready()
        except ShoalError as error:
            raise ProxyAway(f"pods do not reach services: {error}") from error
        answer = await link.ask("inside", wire.pack_inside(self._inside))
        if "error" in answer:
            raise ProxyAway(f"pods do not reach services: {answer['error']}")
        for key, names in list(self._names.items()):
            await link.ask("name", [key.namespace, key.name], pack_names(names))
        if self._rules is not None:
            await link.ask("rules", pack_rules(self._rules))

    async def _greeted(self) -> _Link:
        """A connection to a proxy of this version."""
        make_private_dirs(self._folder)
        for _ in range(2):
            link = await _dial(self._folder, self._clock)
            if link is None:
                await self._start()
                link = await _dial(self._folder, self._clock)
            if link is None:
                raise ProxyAway(f"the proxy process in {self._folder} does not accept connections")
            if (await link.ask("hello")).get("version") == wire.VERSION:
                return link
            await link.close()
            await end_proxy(self._folder, clock=self._clock)
        raise ProxyAway(f"the proxy process in {self._folder} has another version and does not end")

    async def _start(self) -> None:
        environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _THRIFTY
        with (self._folder / _ERRORS).open("ab") as errors:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            files = (nothing, nothing, errors.fileno())
            try:
                async with within(self._clock, _START_S):
                    code = await self._forks.call(f"{_PROGRAM}:main", [str(self._folder)], files, environ)
            except (ForkRefused, TimeoutError):
                code = await self._executed(errors, environ)
            finally:
                os.close(nothing)
        self._metrics.started()
        if code:
            raise ProxyAway(f"the proxy process did not start: see {self._folder / _ERRORS}")

    async def _executed(self, errors: BinaryIO, environ: Mapping[str, str]) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _PROGRAM, str(self._folder), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=errors, start_new_session=True, env=dict(environ),
        )  # fmt: skip
        try:
            async with within(self._clock, _START_S):
                return await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ProxyAway(f"the proxy process did not start within {_START_S:g} s") from None


class _Link:
    """One connection; questions are answered in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._waiting: deque[asyncio.Future[dict[str, Any]]] = deque()
        self.ended = asyncio.Event()
        self._tasks = OwnedTasks()
        self._tasks.start(self._read(reader), name="service-proxy/answers")

    async def ask(self, *question: Any) -> dict[str, Any]:
        if self.ended.is_set():
            raise ProxyAway("the proxy process has ended")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._writer.write(orjson.dumps(question) + b"\n")
        try:
            async with within(self._clock, _ANSWER_S):
                return await answer
        except TimeoutError:
            self._end()
            raise ProxyAway(f"the proxy process did not answer within {_ANSWER_S:g} s") from None

    async def close(self) -> None:
        self._end()
        await self._tasks.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(orjson.loads(line))
        except (OSError, ValueError, IndexError) as error:
            log.warning("the connection to the service proxy broke", reason=str(error))
        finally:
            self._end()

    def _end(self) -> None:
        self.ended.set()
        self._writer.close()
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(ProxyAway("the proxy process has ended"))


async def end_proxy(folder: Path, *, clock: Clock) -> None:
    """End the proxy process of a cluster, if one runs: its connections get a moment to end by themselves."""
    pid = holder_of(folder / wire.LOCK)
    if pid is None:
        return
    with suppress(ProxyAway, TimeoutError):
        async with within(clock, _END_S):
            link = await _dial(folder, clock)
            if link is not None:
                try:
                    await link.ask("end")
                finally:
                    await link.close()
            while holder_of(folder / wire.LOCK) == pid:
                await clock.sleep(_POLL_S)
            return
    log.warning("the service proxy does not end; killing it", pid=pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def _dial(folder: Path, clock: Clock) -> _Link | None:
    """None when nothing listens there."""
    async with _short_path(folder) as path:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=wire.MAX_BYTES)
        except OSError:
            return None
    return _Link(reader, writer, clock)


@asynccontextmanager
async def _short_path(folder: Path) -> AsyncIterator[str]:
    """The path of the socket by way of an open file: paths of sockets may have 107 bytes only."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield str(folder / wire.SOCKET)
        return
    try:
        yield f"/proc/self/fd/{opened}/{wire.SOCKET}"
    finally:
        os.close(opened)
