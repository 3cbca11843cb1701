"""Which hosts the control plane may call on behalf of a workspace: the list that administrators of the fleet set. Pure.

    hooks.example.com          this name; hooks.example.com:8443 at this port only
    *.corp.example             every name below it
    10.1.2.0/24:9090           addresses of a network, at this port only; [fd00::/64]:9090 for IPv6

A name of the list must still lead to addresses of the public internet: private, loopback, link-local and similar ones
need a network of the list besides. A URL that has an address in place of a name needs a network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_network

from shoal.base.destinations import Address, Network, OutboundRefused, OutboundUrl, kind_of_address, plain_address
from shoal.control.domain.kinds.checks import is_host

MOST = 100  # entries
_SYNTAX = "use a host such as hooks.example.com, *.corp.example or a network such as 10.1.2.0/24, with :PORT or without"
# Resolvers read these as addresses: 2130706433, 0x7f.1, 127.1
_is_number = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.IGNORECASE).fullmatch


@dataclass(frozen=True, slots=True)
class OutboundEntry:
    host: str = ""  # may begin with "*."
    network: Network | None = None
    port: int = 0  # 0: any

    def has_name(self, host: str, port: int) -> bool:
        if not self.host or self.port not in (0, port):
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*") else host == self.host

    def has_address(self, address: Address, port: int) -> bool:
        return self.network is not None and self.port in (0, port) and address in self.network


@dataclass(frozen=True, slots=True)
class OutboundRules:
    texts: tuple[str, ...]
    entries: tuple[OutboundEntry, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> OutboundRules:
        """Of a list that was checked when it was set; what an earlier version allowed and this one does not is left
        out."""
        return _rules(tuple(texts))

    def url_fault(self, url: str) -> str:
        """Why a URL may not be called, as far as it shows that itself; empty if it may."""
        try:
            found = OutboundUrl.parse(url)
        except OutboundRefused as error:
            return str(error)
        return self.host_fault(found.host, found.port)

    def host_fault(self, host: str, port: int) -> str:
        try:
            address = plain_address(host)
        except ValueError:
            if _is_number(host):
                return f"host {host!r} is an address in an unusual form: write it as 192.0.2.7 or [2001:db8::7]"
            if any(each.has_name(host, port) for each in self.entries):
                return ""
            return self._not_allowed(f"{host}:{port}")
        if any(each.has_address(address, port) for each in self.entries):
            return ""
        return self._not_allowed(f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}")

    def address_fault(self, host: str, port: int, address: Address) -> str:
        """Why an address of a host may not be dialled; a ``Guard``."""
        if fault := self.host_fault(host, port):
            return fault
        kind = kind_of_address(address)
        if not kind or any(each.has_address(address, port) for each in self.entries):
            return ""
        shown = host if host == str(address) else f"{host} ({address})"
        fix = self._fix(f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}")
        return f"{shown} has a {kind} address, and the workspace may not call that network; {fix}"

    def _not_allowed(self, what: str) -> str:
        listed = ", ".join(self.texts[:5]) + (", …" if len(self.texts) > 5 else "")
        return f"the workspace may not call {what} (allowed: {listed or 'none'}); {self._fix(what)}"

    def _fix(self, entry: str) -> str:
        return f"ask an administrator of the fleet for `shoal workspaces set NAME --outbound {entry}`"


def entry_fault(text: str) -> str:
    """Why an entry of the list cannot be one; empty if it can."""
    try:
        _entry(text)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _rules(texts: tuple[str, ...]) -> OutboundRules:
    return OutboundRules(texts, tuple(_entry(text) for text in texts if not entry_fault(text)))


def _entry(text: str) -> OutboundEntry:
    """Raises ``ValueError`` with the fix."""
    body, port = _with_port(text)
    if "/" in body or ":" in body or _is_number(body):
        try:
            network = ip_network(body)
        except ValueError as error:
            raise ValueError(f"{error}; {_SYNTAX}") from None
        if network.prefixlen == 0:
            raise ValueError(f"allows every address; {_SYNTAX}")
        return OutboundEntry(network=network, port=port)
    if body != body.lower() or is_host(body) or (body.startswith("*.") and "." not in body[2:]):
        raise ValueError(f"is not the name of a host in lower case, or names a whole top-level domain; {_SYNTAX}")
    return OutboundEntry(host=body, port=port)


def _with_port(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``NETWORK:PORT`` or ``[NETWORK OF IPV6]:PORT``, with the port or without."""
    if text.startswith("["):
        body, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"the bracket is not closed; {_SYNTAX}")
        port = rest[1:]
    elif text.count(":") == 1:
        body, _, port = text.partition(":")
        rest = ":"
    else:
        return text, 0
    if not rest:
        return body, 0
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"the port is {port[:20]!r}: use 1 to 65535")
    return body, int(port)
