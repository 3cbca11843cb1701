"""Connections through an HTTP proxy, configured by ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``.

Connections to this machine never use a proxy.
"""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

_LOOPBACK = ("127.", "localhost", "::1")
_VARIABLES = ("https_proxy", "all_proxy")
_MAX_ANSWER_BYTES = 16 << 10


def for_host(host: str, port: int, environ: Mapping[str, str] = os.environ) -> SplitResult | None:
    """The proxy for a TLS connection to this host, None without one; ``OSError`` for one that is not supported."""
    named = next((text for name in _VARIABLES if (text := environ.get(name) or environ.get(name.upper()))), "")
    if not named or host.startswith(_LOOPBACK) or _is_excepted(host, port, environ):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise OSError(f"the proxy in the environment is {proxy.scheme}://…: only http:// is supported")
    return proxy


def _is_excepted(host: str, port: int, environ: Mapping[str, str]) -> bool:
    for one in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(",", " ").split():
        name, _, its_port = one.lower().partition(":") if one.count(":") == 1 else (one.lower(), "", "")
        name = name.removeprefix("*").removeprefix(".")
        fits = not name or host.lower() == name or host.lower().endswith(f".{name}")  # a bare * is everything
        if fits and its_port in ("", str(port)):
            return True
    return False


async def tunnel(proxy: SplitResult, host: str, port: int) -> socket.socket:
    """A socket connected to the host through the proxy."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(proxy.hostname or "", proxy.port or 80, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    used = socket.socket(family, kind, protocol)
    try:
        used.setblocking(False)
        await loop.sock_connect(used, address)
        await loop.sock_sendall(used, _request(proxy, host, port))
        status = await _status(used)
        if status != 200:
            raise OSError(f"the proxy {proxy.hostname} answered {status or 'nothing'} to CONNECT {host}:{port}")
    except BaseException:
        used.close()
        raise
    return used


def _request(proxy: SplitResult, host: str, port: int) -> bytes:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.username:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}")
    return "\r\n".join((*lines, "", "")).encode()


async def _status(used: socket.socket) -> int:
    """The status of the proxy's answer. The host sends nothing before the client does, so reading in pieces is safe."""
    loop, answer = asyncio.get_running_loop(), b""
    while b"\r\n\r\n" not in answer and len(answer) < _MAX_ANSWER_BYTES:
        piece = await loop.sock_recv(used, 4096)
        if not piece:
            break
        answer += piece
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() and b"\r\n\r\n" in answer else 0
