"""Chooses the port, and listens there at once: the requested one, the last one used, else the next free one from the
default up."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.base.asgi_common import bind
from shoal.base.files import make_private_dirs, write_private
from shoal.errors import ConfigError

_TRIES = 200
_BELOW = 16_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do, so that connections lingering from a stopped server do not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def any_free(host: str) -> int:
    """A random free port below the ephemeral range: a port of that range could be in use by an outgoing connection
    before the server listens on it."""
    first = _first_ephemeral()
    for port in _some():
        if is_free(host, port):
            return port
    raise ConfigError(f"port: none is free on {host} from {first - _BELOW} to {first - 1}; choose one with --port")


def _some() -> Iterator[int]:
    """Random ports below the ephemeral range."""
    first = _first_ephemeral()
    return (first - 1 - secrets.randbelow(_BELOW) for _ in range(_TRIES))


def _first_ephemeral() -> int:
    try:
        return max(int(_RANGE.read_text().split()[0]), _BELOW + 1025)
    except (OSError, ValueError, IndexError):
        return 32768


@contextmanager
def claimed_port(asked: int | None, *, host: str, default: int, remembered: Path) -> Iterator[socket.socket]:
    """A socket that listens at the port to use, so that no other program can take it before the server is ready. The
    port is written to ``remembered``: the next start takes the same and kubeconfigs stay valid.

    Raise ConfigError if ``asked`` is in use; it is never replaced.
    """
    with _listening(asked, host, default, remembered) as listening:
        port = port_of(listening)
        if _read(remembered) != port:
            make_private_dirs(remembered.parent)
            write_private(remembered, f"{port}\n".encode())
        yield listening


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def _listening(asked: int | None, host: str, default: int, remembered: Path) -> socket.socket:
    if asked:
        try:
            return bind(host, asked)
        except ConfigError as error:
            if is_free(host, asked):
                raise
            raise ConfigError(
                f"port is {asked}: already in use on {host}; choose another, or leave it out for a free port"
            ) from error
    last = _read(remembered)
    following = range(default, min(default + _TRIES, 65536))
    for port in _some() if asked == 0 else following if last is None else (last, *following):
        try:
            return bind(host, port)
        except ConfigError:  # another program has it
            continue
    first, end = (_first_ephemeral() - _BELOW, _first_ephemeral()) if asked == 0 else (default, default + _TRIES)
    raise ConfigError(f"port: none is free on {host} from {first} to {end - 1}; choose one with --port")


def _read(path: Path) -> int | None:
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return None
    return port if 0 < port < 65536 else None
