"""Connections through an HTTP proxy, configured by ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``.

Connections to this machine never use a proxy of the environment. ``NO_PROXY`` has names, which stand for what is below
them too, addresses and ranges of addresses (``10.0.0.0/8``).
"""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

_LOOPBACK = ("127.", "localhost", "::1")
_VARIABLES = ("https_proxy", "all_proxy")
_MAX_ANSWER_BYTES = 16 << 10


def for_host(host: str, port: int, environ: Mapping[str, str] = os.environ) -> SplitResult | None:
    """The proxy for a TLS connection to this host, None without one; ``OSError`` for one that is not supported."""
    named = next((text for name in _VARIABLES if (text := environ.get(name) or environ.get(name.upper()))), "")
    if not named or host.startswith(_LOOPBACK) or _is_excepted(host, port, environ):
        return None
    return parse(named, "the proxy in the environment")


def parse(text: str, what: str) -> SplitResult:
    """A proxy by its URL; ``OSError`` for one that is not supported. The message shows no password."""
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise OSError(f"{what} is {proxy.scheme}://…: only http:// is supported")
    return proxy


def _is_excepted(host: str, port: int, environ: Mapping[str, str]) -> bool:
    for one in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(",", " ").split():
        name, _, its_port = one.lower().partition(":") if one.count(":") == 1 else (one.lower(), "", "")
        name = name.removeprefix("*").removeprefix(".")
        fits = not name or host.lower() == name or host.lower().endswith(f".{name}")  # a bare * is everything
        if (fits and its_port in ("", str(port))) or _is_within(host, one):
            return True
    return False


def _is_within(host: str, network: str) -> bool:
    try:
        return "/" in network and ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


async def tunnel(proxy: SplitResult, host: str, port: int) -> socket.socket:
    """A socket connected to the host through the proxy."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(proxy.hostname or "", proxy.port or 80, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unreachable(proxy, error) from error
    family, kind, protocol, _, address = found[0]
    used = socket.socket(family, kind, protocol)
    try:
        used.setblocking(False)
        try:
            await loop.sock_connect(used, address)
        except OSError as error:
            raise _unreachable(proxy, error) from error
        await loop.sock_sendall(used, _request(proxy, host, port))
        status = await _status(used)
        if status != 200:
            raise OSError(f"the proxy {proxy.hostname} answered {status or 'nothing'} to CONNECT {host}:{port}")
    except BaseException:
        used.close()
        raise
    return used


def _unreachable(proxy: SplitResult, error: OSError) -> OSError:
    return OSError(f"the proxy {proxy.hostname}:{proxy.port or 80} cannot be reached: {error.strerror or error}")


def credentials(proxy: SplitResult) -> dict[str, str]:
    """The header with the user and password of its URL, if it has them."""
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _request(proxy: SplitResult, host: str, port: int) -> bytes:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += [f"{name}: {value}" for name, value in credentials(proxy).items()]
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
