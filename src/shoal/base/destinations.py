"""Where a call to outside goes: its URL, what an address is for, and the networks that settings allow. Pure.

An address of IPv6 that only carries one of IPv4 (mapped, or translated by NAT64) counts as that one: a firewall that
knows the one form must not be passed by the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from shoal.errors import ConfigError, ShoalError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_TRANSLATED = IPv6Network("64:ff9b::/96")
_GLOBAL = IPv6Network("2000::/3")
_RANGES: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(text), kind)
    for kind, texts in {
        # A cloud's metadata has addresses in other ranges too; these come first for the sake of the message.
        "metadata": ("169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32",
                     "fd00:ec2::254/128"),
        "unspecified": ("0.0.0.0/8", "::/128"),
        "loopback": ("127.0.0.0/8", "::1/128"),
        "link-local": ("169.254.0.0/16", "fe80::/10"),
        "multicast": ("224.0.0.0/4", "ff00::/8"),
        "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
        "carrier-grade NAT": ("100.64.0.0/10",),
        # For documentation and measurements, by protocols, for later use, and tunnels that carry an address of IPv4
        "reserved": ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
                     "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    }.items()
    for text in texts
)  # fmt: skip


_PORTS = {"http": 80, "https": 443}


class OutboundRefused(ShoalError):
    """The call was not made; the text says what is wrong with the URL, the host or an address of it."""


@dataclass(frozen=True, slots=True)
class OutboundUrl:
    """An ``http(s)://HOST[:PORT]/PATH``. The host is in lower case and without the brackets of IPv6."""

    scheme: str
    host: str
    port: int
    target: str  # path and query
    netloc: str  # for the header ``host``

    @classmethod
    def parse(cls, url: str) -> OutboundUrl:
        """Raises ``OutboundRefused``."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (KeyError, ValueError) as error:
            raise OutboundRefused(f"url {url!r} is invalid: use http(s)://HOST[:PORT]/PATH") from error
        if not host or not url.isascii() or not url.isprintable() or " " in url:
            raise OutboundRefused(f"url {url!r} is invalid: use http(s)://HOST[:PORT]/PATH in printable ASCII")
        if "@" in parts.netloc:
            raise OutboundRefused("the url has a user before the host: send a header with the credentials instead")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, port, target, parts.netloc)


def plain_address(text: str) -> Address:
    """The address that ``text`` stands for, without its zone; raises ``ValueError`` if it is none."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def kind_of_address(address: Address) -> str:
    """What a plain address is for; empty for one of the public internet."""
    for network, kind in _RANGES:
        if address in network:
            return kind
    return "" if address.version == 4 or address in _GLOBAL else "reserved"


def read_networks(texts: Sequence[str], setting: str) -> tuple[Network, ...]:
    """Networks of a setting, in CIDR notation."""
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}: use CIDR notation, for example 127.0.0.0/8") from error
