"""Many watchers of one server over TLS, each on a connection of its own, as Go clients open them over HTTP/1.1.

with idle_watchers(server, 500, "/api/v1/configmaps") as watchers:
    watchers.read_until(b'"name":"last"')
"""

from __future__ import annotations

import resource
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from shoal.testing.servers import ServerProcess

_OWN_FILES = 200


class IdleWatchers:
    """Open watches. What they receive is read and dropped."""

    def __init__(self) -> None:
        self._sockets: list[ssl.SSLSocket] = []
        self._tails: dict[ssl.SSLSocket, bytes] = {}
        self._selector = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, connection: ssl.SSLSocket) -> None:
        self._sockets.append(connection)
        self._tails[connection] = b""
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)

    def read_until(self, text: bytes, timeout_s: float = 60.0) -> None:
        """Read until every watcher has received ``text``."""
        missing, deadline = set(self._sockets), time.monotonic() + timeout_s
        while missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} of {len(self)} watchers did not receive {text!r}")
            for key, _ in self._selector.select(1.0):
                assert isinstance(key.fileobj, ssl.SSLSocket)
                if text in self._read(key.fileobj, len(text)):
                    missing.discard(key.fileobj)

    def _read(self, connection: ssl.SSLSocket, keep: int) -> bytes:
        data = bytearray(self._tails[connection])
        try:
            while piece := connection.recv(256 * 1024):
                data += piece
            raise ConnectionError("the server closed a watch")
        except ssl.SSLWantReadError:
            self._tails[connection] = bytes(data[-keep:])
            return bytes(data)

    def close(self) -> None:
        self._selector.close()
        for connection in self._sockets:
            connection.close()


@contextmanager
def idle_watchers(server: ServerProcess, count: int, path: str) -> Iterator[IdleWatchers]:
    """``count`` watches of ``path``, opened one after the other."""
    _allow_files(count + _OWN_FILES)
    parts = urlsplit(server.url)
    context = ssl.create_default_context(cafile=server.ca_file)
    joint = "&" if "?" in path else "?"
    head = f"GET {path}{joint}watch=true&allowWatchBookmarks=true HTTP/1.1\r\nHost: {parts.netloc}\r\n"
    request = f"{head}Authorization: Bearer {server.token}\r\nAccept: application/json\r\n\r\n".encode()
    watchers = IdleWatchers()
    try:
        for _ in range(count):
            raw = socket.create_connection((parts.hostname or "", parts.port or 443))
            connection = context.wrap_socket(raw, server_hostname=parts.hostname)
            connection.sendall(request)
            status = connection.recv(len(b"HTTP/1.1 200"))
            assert status == b"HTTP/1.1 200", status
            watchers.add(connection)
        yield watchers
    finally:
        watchers.close()


def resident_mb(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
