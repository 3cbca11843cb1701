"""Chooses the port to listen on: the requested one, the last one used, else the next free one from the default up."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

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
    for _ in range(_TRIES):
        port = first - 1 - secrets.randbelow(_BELOW)
        if is_free(host, port):
            return port
    raise ConfigError(f"port: none is free on {host} from {first - _BELOW} to {first - 1}; choose one with --port")


def _first_ephemeral() -> int:
    try:
        return max(int(_RANGE.read_text().split()[0]), _BELOW + 1025)
    except (OSError, ValueError, IndexError):
        return 32768


def choose_port(asked: int | None, *, host: str, default: int, remembered: Path) -> int:
    """The port to use, written to ``remembered`` so that the next start takes the same and kubeconfigs stay valid.

    Raise ConfigError if ``asked`` is in use; it is never replaced.
    """
    port = _pick(asked, host, default, remembered)
    if _read(remembered) != port:
        make_private_dirs(remembered.parent)
        write_private(remembered, f"{port}\n".encode())
    return port


def _pick(asked: int | None, host: str, default: int, remembered: Path) -> int:
    if asked == 0:
        return any_free(host)
    if asked is not None:
        if not is_free(host, asked):
            raise ConfigError(
                f"port is {asked}: already in use on {host}; choose another, or leave it out for a free port"
            )
        return asked
    last = _read(remembered)
    if last is not None and is_free(host, last):
        return last
    for port in range(default, min(default + _TRIES, 65536)):
        if is_free(host, port):
            return port
    raise ConfigError(f"port: none is free on {host} from {default} to {default + _TRIES - 1}; choose one with --port")


def _read(path: Path) -> int | None:
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return None
    return port if 0 < port < 65536 else None
