"""Notifies the readers of the changes, in this process and in others, that there are new ones.

Notifications are hints: readers also poll now and then, so a lost one only delays them.
``Wakeups`` is this process' side; ``PostgresHints`` and ``RedisHints`` bring the hints of other processes into it, each
with one connection that is made again whenever it breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.control.database.statements import CHANNEL

if TYPE_CHECKING:  # each is imported where it is used, and most control planes use neither
    from redis.asyncio.connection import AbstractConnection, ConnectionPool

_BACKOFF = Backoff(base_s=0.05, cap_s=2.0)
_CONNECT_S = 3.0
_PING_S = 5.0  # a connection that broke silently is noticed within this and the time-out

_log = get_logger("control.database")


class Wakeups:
    """The highest known number, and the tasks that wait for a higher one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()
        self.known = 0
        self.heard = 0  # how often
        self.on_heard: Callable[[], None] = lambda: None

    def hear(self, number: int) -> None:
        """There is a change with this number, or there may be any number of them (0)."""
        if 0 < number <= self.known:  # of ourselves, told again by the database
            return
        self.heard += 1
        self.known = max(self.known, number)
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            _finish(one)
        self.on_heard()

    def correct(self, number: int, heard: int) -> None:
        """The database says ``number``, and was asked when ``heard`` was current. It may have gone back."""
        if self.heard == heard:
            self.known = number

    async def wait(self, after: int, timeout_s: float) -> None:
        if self.known > after or timeout_s <= 0:
            await asyncio.sleep(0)
            return
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        timer = self._clock.call_later(timeout_s, lambda: _finish(one))
        try:
            await one
        finally:
            timer.cancel()
            self._waiting.discard(one)


def _finish(one: asyncio.Future[None]) -> None:
    if not one.done():
        one.set_result(None)


class Hints(Protocol):
    """Carries hints between processes. ``run`` goes on until it is cancelled, after ``end``."""

    def offer(self, number: int) -> None:
        """Tell the others of a commit."""

    async def run(self) -> None: ...

    def end(self) -> None: ...


async def _again(
    what: str, work: Callable[[], Awaitable[None]], away: tuple[type[Exception], ...], ended: Callable[[], bool]
) -> None:
    """Do ``work``, which returns or fails when its connection ends, for ever."""
    failures = 0
    while not ended():
        begun = asyncio.get_running_loop().time()
        try:
            await work()
        except away as error:
            if asyncio.get_running_loop().time() - begun > _BACKOFF.cap_s:
                failures = 0
            failures += 1
            if failures == 1:
                _log.warning(
                    "database notifications are unavailable", source=what, reason=str(error) or type(error).__name__
                )
        if not ended():
            await asyncio.sleep(_BACKOFF.bound_s(max(1, failures)))


class PostgresHints:
    """LISTEN. The notification is sent by the transaction itself, so there is nothing to offer."""

    def __init__(self, dsn: str, wakeups: Wakeups, *, name: str) -> None:
        self._dsn = dsn
        self._wakeups = wakeups
        self._name = name
        self._ended = False

    def offer(self, number: int) -> None:
        """The database told them at the commit."""

    def end(self) -> None:
        self._ended = True

    async def run(self) -> None:
        import asyncpg

        away = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
        await _again("postgresql", self._listen, away, lambda: self._ended)

    async def _listen(self) -> None:
        import asyncpg

        connection = await asyncpg.connect(
            self._dsn,
            timeout=_CONNECT_S,
            command_timeout=_CONNECT_S,
            server_settings={"application_name": f"shoal control {self._name} listen"},
        )
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _connection: lost.set())
            await connection.add_listener(CHANNEL, self._hear)
            self._wakeups.hear(0)  # changes may have been missed while not listening
            while not lost.is_set():
                try:
                    async with asyncio.timeout(_PING_S):
                        await lost.wait()
                except TimeoutError:
                    await connection.execute("SELECT 1")
            raise ConnectionResetError("the server closed the connection")
        finally:
            connection.terminate()

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._wakeups.hear(int(payload) if payload.isdigit() else 0)


class RedisHints:
    """A channel of Redis, named after the fleet and the database."""

    def __init__(self, url: str, wakeups: Wakeups, *, channel: str) -> None:
        from redis.asyncio.connection import ConnectionPool

        self._pool = ConnectionPool.from_url(url, socket_connect_timeout=_CONNECT_S, protocol=2)
        self._wakeups = wakeups
        self._channel = channel
        self._newest = 0  # to be sent; of several only the last matters
        self._offered = asyncio.Event()
        self._ended = False

    def offer(self, number: int) -> None:
        self._newest = number
        self._offered.set()

    def end(self) -> None:
        """Before ``run`` is cancelled: the client library now and then takes a cancellation for itself."""
        self._ended = True

    async def run(self) -> None:
        from redis.exceptions import RedisError

        away = (RedisError, OSError, TimeoutError, ValueError)
        async with asyncio.TaskGroup() as group:
            for what, work in (("redis publish", self._publish), ("redis subscribe", self._subscribe)):
                group.create_task(_again(what, work, away, lambda: self._ended), name=f"control-hints/{what}")

    async def _publish(self) -> None:
        async with _Connected(self._pool) as connection:
            while not self._ended:
                await self._offered.wait()
                await connection.send_command("PUBLISH", self._channel, newest := self._newest)
                await connection.read_response(timeout=_CONNECT_S)
                if newest == self._newest:
                    self._offered.clear()

    async def _subscribe(self) -> None:
        async with _Connected(self._pool) as connection:
            await connection.send_command("SUBSCRIBE", self._channel)
            await connection.read_response(timeout=_CONNECT_S)
            self._wakeups.hear(0)
            asked = False
            while not self._ended:
                try:
                    said: Any = await connection.read_response(timeout=_PING_S, disconnect_on_error=False)
                except TimeoutError:
                    if asked:
                        raise
                    asked = True
                    await connection.send_command("PING")
                    continue
                asked = False
                if said[0] == b"message":
                    self._wakeups.hear(int(said[2]) if said[2].isdigit() else 0)


class _Connected:
    """A bare connection: the pool of the client is not needed, and leaves connections behind when cancelled."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> AbstractConnection:
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await self._connection.disconnect(nowait=True)
            raise
        return self._connection

    async def __aexit__(self, *_error: object) -> None:
        await self._connection.disconnect(nowait=True)
