"""The public address of a server: the URL by which others reach it, which may be that of a load balancer.

It is in the server's certificate, in join files, tokens and contexts. Whether it leads here is tried after the start; a
URL that does not is a warning, because the name or the load balancer may come later.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit

from shoal.base.clock import Clock
from shoal.base.http1.dial import HttpAddress, fetch
from shoal.base.http1.errors import TransportError
from shoal.base.http1.limits import Deadlines
from shoal.base.http1.messages import header_lines
from shoal.base.logs import get_logger
from shoal.errors import ConfigError

log = get_logger("public-address")

_ALL_ADDRESSES = ("0.0.0.0", "::", "")
_TRY_S = 10.0
_WAITS_S = (2.0, 8.0)  # a load balancer or a Service sends no requests before the server is ready


def check_url(url: str) -> None:
    """``ConfigError`` unless others can use it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" and bool(parts.hostname) and (parts.port or 443) > 0
    except ValueError:
        usable = False
    if not usable or parts.path not in ("", "/") or parts.query or parts.username is not None:
        raise ConfigError(f"advertise_url is {url!r}: use https://HOST:PORT")
    if parts.hostname in _ALL_ADDRESSES:
        raise ConfigError(
            f"advertise_url is {url!r}: no client can connect to {parts.hostname}; name a host or an address"
        )


def hosts_of(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Names and addresses for the certificate."""
    return tuple(dict.fromkeys(host for url in urls if (host := urlsplit(url).hostname)))


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def gap(host: str, urls: tuple[str, ...]) -> str:
    """Why others cannot get in although the server listens for them; empty if they can."""
    if is_loopback(host):
        return ""
    local = [url for url in urls if is_loopback(urlsplit(url).hostname or "")]
    return f"join files name {local[0]}, which only this machine reaches" if local and local[0] == urls[0] else ""


async def reach(url: str, ca_pem: str, *, clock: Clock) -> str:
    """Why this server cannot be reached at a URL from here; empty if it can be."""
    parts = urlsplit(url)
    tls = ssl.create_default_context(cadata=ca_pem or None)
    address = HttpAddress(parts.hostname or "", parts.port or 443, tls)
    data = f"GET /livez HTTP/1.1\r\n{header_lines([('host', parts.netloc)])}\r\n".encode()
    try:
        await fetch(address, data, clock=clock, connect_s=_TRY_S, deadlines=Deadlines(total_s=_TRY_S))
    except TransportError as error:
        return str(error)
    return ""


async def warn(host: str, urls: tuple[str, ...], advertised: tuple[str, ...], ca_pem: str, *, clock: Clock) -> None:
    """Log what keeps others from getting in."""
    fix = "start it with --advertise-url https://HOST:PORT, a URL that clusters and users can reach"
    if reason := gap(host, urls):
        log.warning("the public address is not known", reason=reason, fix=fix)
    for url in advertised:
        reason = await reach(url, ca_pem, clock=clock)
        for wait_s in _WAITS_S:
            if not reason:
                break
            await clock.sleep(wait_s)
            reason = await reach(url, ca_pem, clock=clock)
        if reason:
            fix = (
                "let the name resolve to this server or its load balancer, which passes TLS through, and open the port"
            )
            log.warning("the advertised URL does not lead here", url=url, reason=reason, fix=fix)
