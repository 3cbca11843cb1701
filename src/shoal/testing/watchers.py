"""Many watchers of one server over TLS: each on a connection of its own, as Go clients open them over HTTP/1.1, or a
hundred on each connection of HTTP/2.

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

from shoal.apiserver.http2 import frames
from shoal.base.hpack import literal
from shoal.testing.servers import ServerProcess

_OWN_FILES = 200
_STREAMS = 100  # of one connection; what the server offers


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

    def drain(self) -> None:
        """Read what has come by now."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                assert isinstance(key.fileobj, ssl.SSLSocket)
                self._read(key.fileobj, 0)

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


class MultiplexedWatchers:
    """Open watches on connections of HTTP/2. What they receive is counted and dropped."""

    def __init__(self) -> None:
        self._streams: dict[ssl.SSLSocket, int] = {}  # watches on each connection
        self._input: dict[ssl.SSLSocket, bytes] = {}

    def open(self, connection: ssl.SSLSocket, block: bytes, count: int) -> None:
        """Begin ``count`` watches with the same headers, and wait until all are answered."""
        windows = frames.settings(((frames.INITIAL_WINDOW, frames.LARGEST_WINDOW),))
        widest = frames.word_frame(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW - frames.FIRST_WINDOW)
        flags = frames.END_HEADERS | frames.END_STREAM
        requests = (frames.frame(frames.HEADERS, flags, 2 * number + 1, block) for number in range(count))
        connection.sendall(frames.PREFACE + windows + widest + b"".join(requests))
        self._streams[connection], self._input[connection] = count, b""
        while count:
            for kind, payload in self._read(connection):
                if kind == frames.HEADERS:
                    assert payload[:1] == b"\x88", payload  # status 200
                    count -= 1

    def read_until(self, text: bytes) -> None:
        """Read until every watcher has received ``text``, in a frame of its own."""
        for connection, missing in self._streams.items():
            while missing > 0:
                missing -= sum(text in payload for kind, payload in self._read(connection) if kind == frames.DATA)

    def _read(self, connection: ssl.SSLSocket) -> list[tuple[int, bytes]]:
        """The frames that are complete now: their kinds and payloads."""
        data, at, found = self._input[connection] + connection.recv(256 * 1024), 0, []
        while len(data) - at >= frames.HEADER_BYTES:
            word, _, _ = frames.read_header(data, at)
            begin, end = at + frames.HEADER_BYTES, at + frames.HEADER_BYTES + (word >> 8)
            if end > len(data):
                break
            found.append((word & 0xFF, data[begin:end]))
            at = end
        self._input[connection] = data[at:]
        return found

    def close(self) -> None:
        for connection in self._streams:
            connection.close()


@contextmanager
def multiplexed_watchers(server: ServerProcess, count: int, path: str) -> Iterator[MultiplexedWatchers]:
    """``count`` watches of ``path`` over HTTP/2, as many on a connection as the server allows."""
    parts = urlsplit(server.url)
    context = ssl.create_default_context(cafile=server.ca_file)
    context.set_alpn_protocols(["h2"])
    joint = "&" if "?" in path else "?"
    head = (
        (":method", "GET"), (":scheme", "https"), (":path", f"{path}{joint}watch=true&allowWatchBookmarks=true"),
        (":authority", parts.netloc), ("authorization", f"Bearer {server.token}"), ("accept", "application/json"),
    )  # fmt: skip
    block = b"".join(literal(name.encode(), value.encode()) for name, value in head)
    watchers = MultiplexedWatchers()
    try:
        for begin in range(0, count, _STREAMS):
            raw = socket.create_connection((parts.hostname or "", parts.port or 443))
            connection = context.wrap_socket(raw, server_hostname=parts.hostname)
            watchers.open(connection, block, min(_STREAMS, count - begin))
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
