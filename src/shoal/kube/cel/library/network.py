"""URLs, IP addresses and networks."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote

from shoal.kube import names
from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.formats import is_uri
from shoal.kube.cel.functions import Library


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL, as written."""

    cel_name: ClassVar[str] = "kubernetes.URL"
    text: str
    scheme: str
    host: str
    path: str
    query: str

    def __len__(self) -> int:
        return len(self.text)

    def port(self) -> str:
        tail = self.host.rpartition("]")[2]
        return tail.rpartition(":")[2] if ":" in tail else ""

    def hostname(self) -> str:
        head = self.host.removesuffix(f":{self.port()}") if self.port() else self.host.removesuffix(":")
        return head[1:-1] if head.startswith("[") else head

    def queries(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key, value in parse_qsl(self.query, keep_blank_values=True):
            found.setdefault(key, []).append(value)
        return found


def _split_url(text: str) -> Url | None:
    if not is_uri(text):
        return None
    rest, _, query = text.partition("#")[0].partition("?")
    scheme, mark, rest = rest.partition(":") if not rest.startswith("/") else ("", "", rest)
    host = ""
    if rest.startswith("//") and mark:
        host, slash, path = rest[2:].partition("/")
        host = host.rpartition("@")[2]
        rest = slash + path
        tail = host.rpartition("]")[2]
        if ":" in tail and not tail.rpartition(":")[2].isdecimal() and not tail.endswith(":"):
            return None
        if host.startswith("[") and "]" not in host:
            return None
    return Url(text, scheme.lower(), host, quote(rest, safe="/%:@!$&'()*+,;=~-._"), query)


def url(text: str) -> Url:
    found = _split_url(text)
    if found is None:
        reason = f"parse {_quoted(text)}: invalid URI for request"
        raise EvalError(f"URL parse error during conversion from string: {reason}")
    return found


class Ip:
    """An address."""

    __slots__ = ("address",)
    cel_name: ClassVar[str] = "net.IP"

    def __init__(self, address: names.IPAddress) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __str__(self) -> str:
        return str(self.address)

    def __len__(self) -> int:
        return self.address.max_prefixlen // 8


class Cidr:
    """An address with a prefix length; host bits may be set."""

    __slots__ = ("address", "bits", "network")
    cel_name: ClassVar[str] = "net.CIDR"

    def __init__(self, address: names.IPAddress, bits: int) -> None:
        self.address = address
        self.bits = bits
        self.network: names.IPNetwork = ipaddress.ip_network(f"{address}/{bits}", strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def __len__(self) -> int:
        return -(-self.bits // 8)


def _ip_fault(text: str) -> str:
    address = names.parse_ip(text)
    if "%" in text and names.parse_ip(text.partition("%")[0]) is not None:
        return f"IP address {_quoted(text)} with zone value is not allowed"
    if address is None:
        return f"IP Address {_quoted(text)} parse error during conversion from string: unable to parse IP"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return f"IPv4-mapped IPv6 address {_quoted(text)} is not allowed"
    return ""


@lru_cache(maxsize=1024)
def ip(text: str) -> Ip:
    fault, address = _ip_fault(text), names.parse_ip(text)
    if fault or address is None:
        raise EvalError(fault)
    return Ip(address)


def is_ip(text: str) -> bool:
    return not _ip_fault(text)


@lru_cache(maxsize=1024)
def cidr(text: str) -> Cidr:
    head, _, length = text.partition("/")
    address = names.parse_ip(head)
    if names.parse_cidr(text) is None or address is None or _ip_fault(head):
        reason = f"netip.ParsePrefix({_quoted(text)}): invalid CIDR"
        raise EvalError(f"network address parse error during conversion from string: {reason}")
    return Cidr(address, int(length))


def is_cidr(text: str) -> bool:
    try:
        return cidr(text) is not None
    except EvalError:
        return False


def contains_ip(network: Cidr, address: Ip | str) -> bool:
    return (ip(address) if isinstance(address, str) else address).address in network.network


def contains_cidr(network: Cidr, other: Cidr | str) -> bool:
    inner = cidr(other) if isinstance(other, str) else other
    return network.bits <= inner.bits and inner.address in network.network


def _is_global_unicast(value: Ip) -> bool:
    address: Any = value.address
    if address.version == 4 and str(address) == "255.255.255.255":
        return False
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special


def _is_link_local_multicast(value: Ip) -> bool:
    address = value.address
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return int(address) >> 112 & 0xFF0F == 0xFF02


def declare(library: Library) -> None:
    add = library.add
    add("string_to_url", "url(string): url", url)
    add("is_url_string", "isURL(string): bool", lambda text: _split_url(text) is not None)
    add("url_get_scheme", "url.getScheme(): string", lambda value: value.scheme)
    add("url_get_host", "url.getHost(): string", lambda value: value.host)
    add("url_get_hostname", "url.getHostname(): string", Url.hostname)
    add("url_get_port", "url.getPort(): string", Url.port)
    add("url_get_escaped_path", "url.getEscapedPath(): string", lambda value: value.path)
    add("url_get_query", "url.getQuery(): map(string, list(string))", Url.queries)
    add("string_to_ip", "ip(string): ip", ip)
    add("is_ip", "isIP(string): bool", is_ip)
    add("ip_is_canonical", "|ip.isCanonical(string): bool", lambda text: str(ip(text)) == text)
    add("ip_to_string", "string(ip): string", str)
    add("ip_family", "ip.family(): int", lambda value: value.address.version)
    add("ip_is_unspecified", "ip.isUnspecified(): bool", lambda value: value.address.is_unspecified)
    add("ip_is_loopback", "ip.isLoopback(): bool", lambda value: value.address.is_loopback)
    add("ip_is_link_local_multicast", "ip.isLinkLocalMulticast(): bool", _is_link_local_multicast)
    add("ip_is_link_local_unicast", "ip.isLinkLocalUnicast(): bool", lambda value: value.address.is_link_local)
    add("ip_is_global_unicast", "ip.isGlobalUnicast(): bool", _is_global_unicast)
    add("string_to_cidr", "cidr(string): cidr", cidr)
    add("is_cidr", "isCIDR(string): bool", is_cidr)
    add("cidr_to_string", "string(cidr): string", str)
    add("cidr_contains_ip_string", "cidr.containsIP(string): bool", contains_ip)
    add("cidr_contains_ip_ip", "cidr.containsIP(ip): bool", contains_ip)
    add("cidr_contains_cidr_string", "cidr.containsCIDR(string): bool", contains_cidr)
    add("cidr_contains_cidr", "cidr.containsCIDR(cidr): bool", contains_cidr)
    add("cidr_ip", "cidr.ip(): ip", lambda value: Ip(value.address))
    masked = "cidr.masked(): cidr"
    add("cidr_masked", masked, lambda value: Cidr(value.network.network_address, value.bits))
    add("cidr_prefix_length", "cidr.prefixLength(): int", lambda value: value.bits)
