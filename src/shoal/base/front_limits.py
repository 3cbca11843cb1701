"""What an HTTP front accepts of clients that have not proven who they are, and the open files it needs for that."""

from __future__ import annotations

import resource
from dataclasses import dataclass

_OWN_FILES = 512  # of a process besides its clients' connections: databases, other servers, logs


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """Limits of a connection; the same for every front."""

    body_bytes: int = 3 * 1024 * 1024
    header_bytes: int = 64 * 1024  # the URL included
    handshake_s: float = 10.0  # for TLS; slower clients are dropped: they block a connection slot
    header_timeout_s: float = 32.0  # from the first byte of a request to the end of its headers and body
    idle_timeout_s: float = 300.0  # keep-alive connections without a request
    reader_timeout_s: float = 60.0  # without the client reading from its response
    connections: int = 16_384
    connections_per_address: int = 8_192


def connections_within_files(wanted: int, own_files: int = _OWN_FILES) -> int:
    """How many connections of clients the limit of open files allows; raises that limit as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + own_files
    if soft < needed and soft != resource.RLIM_INFINITY:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(needed, soft) - own_files)
