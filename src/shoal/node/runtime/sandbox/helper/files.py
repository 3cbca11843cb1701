"""Files of the helper: reading and writing small ones, and passing open ones to another process."""

from __future__ import annotations

import _socket
import os
import sys

_MOST = 64  # files in one message
_FD_BYTES = 4


def read(path: str) -> str:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, 65536).decode()
    finally:
        os.close(number)


def read_all(path: str) -> str:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while piece := os.read(number, 65536):
            found += piece
        return found.decode(errors="replace")
    finally:
        os.close(number)


def write(path: str, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)


def send(to: _socket.socket, data: bytes, numbers: list[int]) -> None:
    raw = b"".join(number.to_bytes(_FD_BYTES, sys.byteorder) for number in numbers)
    to.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, raw)] if numbers else [])


def receive(source: _socket.socket, size: int = 65536) -> tuple[bytes, list[int]]:
    """The next bytes with the files that came with them."""
    data, ancillary, _, _ = source.recvmsg(size, _socket.CMSG_SPACE(_MOST * _FD_BYTES))
    found = []
    for level, kind, raw in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for at in range(0, len(raw) - len(raw) % _FD_BYTES, _FD_BYTES):
                number = int.from_bytes(raw[at : at + _FD_BYTES], sys.byteorder)
                os.set_inheritable(number, False)
                found.append(number)
    return data, found


def error_text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def remove(path: str) -> None:
    """Remove a folder with everything in it."""
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove_folder(parent, os.path.basename(path))
    finally:
        os.close(parent)


def remove_below(folder: int) -> None:
    """Remove everything in an open folder; symbolic links are removed, not followed."""
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            _remove_folder(folder, name)


def _remove_folder(parent: int, name: str) -> None:
    number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        remove_below(number)
    finally:
        os.close(number)
    os.rmdir(name, dir_fd=parent)
