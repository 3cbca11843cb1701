"""Clients of a shim's socket: their requests, and the streams of their sessions.

A request is four bytes of length and a marshalled dict; its file descriptors are ancillary data of the first byte.
Answers are lines of text: ``ok``, ``started PID``, ``failed CODE WHY``, ``exit CODE``.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these at run time would double the memory of a shim
    from typing import Any

STALL_S = 10.0  # a reader that takes nothing for this long is disconnected, so that the container can continue
_LIMIT_BYTES = 4 << 20
_FILES = 3
_FD_BYTES = 4


class ShimPeer:
    """One connection. ``pending`` holds output that the reader has not taken yet, by file descriptor."""

    def __init__(self, fd: int) -> None:
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)
        self.socket.setblocking(False)
        self.closed = False
        self.pid = 0  # of the command, when it runs one
        self.outputs: dict[str, int] = {}
        self.input = -1
        self.pending: dict[int, bytes] = {}
        self._stalled_at = 0.0
        self._data = b""
        self._files: list[int] = []

    @property
    def fd(self) -> int:
        return self.socket.fileno()

    def gone(self) -> bool:
        return self.closed

    def receive(self) -> list[tuple[dict[str, Any], list[int]]]:
        """The complete requests so far, with their file descriptors. The end of the connection closes the peer."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(65536, _socket.CMSG_SPACE(_FILES * _FD_BYTES))
        except BlockingIOError:
            return []
        except OSError:
            data, ancillary = b"", []
        for level, kind, raw in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                for at in range(0, len(raw) - len(raw) % _FD_BYTES, _FD_BYTES):
                    number = int.from_bytes(raw[at : at + _FD_BYTES], sys.byteorder)
                    os.set_inheritable(number, False)
                    self._files.append(number)
        if not data:
            self.close()
            return []
        self._data += data
        return self._requests()

    def _requests(self) -> list[tuple[dict[str, Any], list[int]]]:
        found = []
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if size > _LIMIT_BYTES:
                self.close()
                break
            if len(self._data) < 4 + size:
                break
            request = marshal.loads(self._data[4 : 4 + size])  # noqa: S302 - written by our own user
            self._data = self._data[4 + size :]
            files, self._files = self._files, []
            found.append((request, files))
        return found

    def answer(self, line: str) -> None:
        """Send a line. Lines are few and short, so a peer whose socket buffer is full does not read: it is closed."""
        if not self.closed:
            try:
                self.socket.send(line.replace("\n", " ").encode() + b"\n")
            except OSError:
                self.close()

    def give(self, stream: str, data: bytes) -> None:
        """Output for the peer, if it wants that stream."""
        fd = self.outputs.get(stream)
        if fd is not None:
            if fd not in self.pending:
                self._stalled_at = time.monotonic()
            self.pending[fd] = self.pending.get(fd, b"") + data
            self.flush(fd)

    def flush(self, fd: int) -> None:
        data = self.pending.pop(fd, b"")
        try:
            written = os.write(fd, data) if data else 0
        except BlockingIOError:
            written = 0
        except OSError:
            self.close()
            return
        if written:
            self._stalled_at = time.monotonic()
        if len(data) > written:
            self.pending[fd] = data[written:]

    def check_stall(self) -> None:
        if self.pending and time.monotonic() - self._stalled_at > STALL_S:
            self.close()

    def close_input(self) -> None:
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.pending.clear()
        self.close_input()
        for fd in {*self.outputs.values(), *self._files}:
            os.close(fd)
        self.outputs, self._files = {}, []
        self.socket.close()
