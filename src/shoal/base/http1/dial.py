"""Opens connections: TCP, TLS and Unix sockets, with errors that name the address and the cause."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.errors import Unreachable
from shoal.base.http1.limits import DEFAULT_LIMITS, NO_DEADLINES, AnswerLimits, Deadlines
from shoal.base.http1.messages import HttpReply
from shoal.base.proxies import tunnel

_TLS_GOODBYE_S = 0.5
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where a server listens: a host and a port, or the path of a Unix socket. With a ``proxy`` the connection goes
    through it."""

    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str = ""  # that the certificate must have; the host if empty
    socket_path: str = ""
    proxy: SplitResult | None = None

    def __str__(self) -> str:
        if self.socket_path:
            return self.socket_path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def dial(
    address: HttpAddress,
    *,
    clock: Clock,
    connect_s: float | None = None,
    limits: AnswerLimits = DEFAULT_LIMITS,
    peer: str = "",
    on_lost: Callable[[ClientConnection], object] | None = None,
) -> ClientConnection:
    """A connection that is ready for a request, or ``Unreachable``. ``connect_s`` includes the TLS handshake and
    needs a running task; ``peer`` is the server's name in messages, its address if empty."""

    def made() -> ClientConnection:
        return ClientConnection(peer or str(address), clock=clock, limits=limits, on_lost=on_lost)

    try:
        if connect_s is None:
            return await _open(address, made)
        async with within(clock, connect_s):
            return await _open(address, made)
    except TimeoutError as error:
        waited = "" if connect_s is None else f" within {connect_s:g} s"
        raise Unreachable(f"no connection to {address}{waited}") from error
    except OSError as error:
        raise Unreachable(reason_of(error, address)) from error


async def fetch(
    address: HttpAddress,
    data: bytes,
    *,
    clock: Clock,
    connect_s: float | None = None,
    deadlines: Deadlines = NO_DEADLINES,
    limits: AnswerLimits = DEFAULT_LIMITS,
) -> HttpReply:
    """The answer to one request on a connection of its own."""
    connection = await dial(address, clock=clock, connect_s=connect_s, limits=limits)
    try:
        return await connection.request(data, deadlines)
    finally:
        await connection.close()


async def _open(address: HttpAddress, made: Callable[[], ClientConnection]) -> ClientConnection:
    loop = asyncio.get_running_loop()
    tls = address.tls
    if address.socket_path:
        _, connection = await loop.create_unix_connection(made, address.socket_path)
    elif address.proxy is not None:
        through = await tunnel(address.proxy, address.host, address.port)
        _, connection = await loop.create_connection(
            made, sock=through, ssl=tls, server_hostname=None if tls is None else address.server_name or address.host,
            ssl_shutdown_timeout=None if tls is None else _TLS_GOODBYE_S,
        )  # fmt: skip
    else:
        _, connection = await loop.create_connection(
            made, address.host, address.port, ssl=tls,
            server_hostname=None if tls is None else address.server_name or address.host,
            ssl_shutdown_timeout=None if tls is None else _TLS_GOODBYE_S,
        )  # fmt: skip
    return connection


def reason_of(error: OSError, address: HttpAddress) -> str:
    """The reason for a failed connection, for users."""
    what = f"socket {address}" if address.socket_path else str(address)
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused: nothing listens on {what}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {what} is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake with {what} failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return f'host "{address.host}" not found: {error.strerror or error}'
    if isinstance(error, FileNotFoundError):
        return f"{what} does not exist"
    if isinstance(error, PermissionError):
        return f"permission to use {what} denied"
    if isinstance(error, ConnectionResetError):
        return f"{what} closed the connection before it was ready"
    if error.errno in _NO_ROUTE:
        return f"no route to {what}"
    return f"no connection to {what}: {error.strerror or error}"
