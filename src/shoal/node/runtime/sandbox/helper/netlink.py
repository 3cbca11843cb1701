"""Sets up network interfaces through rtnetlink, the kernel's interface for it: messages as bytes, and the few requests
that a pod's network takes.

A socket belongs to the network namespace in which it was made. Messages have a header, a fixed part per kind, and
attributes (length, type, value), all padded to four bytes.
"""

from __future__ import annotations

import _socket
import os
import struct

_ERROR, _NEW_LINK, _DEL_LINK, _SET_LINK, _NEW_ADDRESS, _NEW_ROUTE = 2, 16, 17, 19, 20, 24
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 1, 4, 0x100, 0x200, 0x400
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, sender
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, mask of changed flags
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
_ROUTE = struct.Struct("=BBBBBBBBI")  # family, lengths of two prefixes, TOS, table, protocol, scope, type, flags
_IPV4, _UP = 2, 1
_NAME, _MTU, _HARDWARE, _LINKINFO, _NS_FD = 3, 4, 1, 18, 28  # attributes of links
_KIND, _DATA, _PEER = 1, 2, 1  # nested in LINKINFO
_MAIN, _STATIC, _UNICAST, _SCOPE_LINK, _ON_LINK = 254, 4, 1, 253, 4
_NESTED = 0x8000


class NetlinkError(OSError):
    """The kernel refused a request."""


class RouteSocket:
    """Requests in the network namespace in which this is made."""

    def __init__(self) -> None:
        self._socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, 0)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def add_pair(self, name: str, peer: str, peer_namespace: int, mtu: int = 0) -> None:
        """Make two connected interfaces: ``name`` here, ``peer`` in the namespace of an open file."""
        size = attribute(_MTU, struct.pack("=I", mtu)) if mtu else b""
        other = _LINK.pack(0, 0, 0, 0, 0) + text(_NAME, peer) + size
        other += attribute(_NS_FD, struct.pack("=I", peer_namespace))
        data = attribute(_DATA | _NESTED, attribute(_PEER | _NESTED, other))
        info = attribute(_LINKINFO | _NESTED, text(_KIND, "veth") + data)
        self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, _LINK.pack(0, 0, 0, 0, 0) + text(_NAME, name) + size + info, name)

    def set_up(self, index: int, what: str) -> None:
        self._ask(_SET_LINK, 0, _LINK.pack(0, 0, index, _UP, _UP), what)

    def remove(self, index: int, what: str) -> None:
        self._ask(_DEL_LINK, 0, _LINK.pack(0, 0, index, 0, 0), what)

    def add_address(self, index: int, address: str, prefix: int = 32) -> None:
        raw = _socket.inet_aton(address)
        body = _ADDRESS.pack(_IPV4, prefix, 0, 0, index) + attribute(2, raw) + attribute(1, raw)
        self._ask(_NEW_ADDRESS, _CREATE | _REPLACE, body, address)

    def add_route(self, index: int, target: str, *, prefix: int = 32, gateway: str = "", source: str = "") -> None:
        """Send packets for ``target`` to an interface, by way of a gateway if given. Replaces a route to it."""
        scope = 0 if gateway else _SCOPE_LINK
        body = _ROUTE.pack(_IPV4, prefix, 0, 0, _MAIN, _STATIC, scope, _UNICAST, _ON_LINK if gateway else 0)
        if prefix:
            body += attribute(1, _socket.inet_aton(target))
        body += attribute(4, struct.pack("=I", index))
        if gateway:
            body += attribute(5, _socket.inet_aton(gateway))
        if source:
            body += attribute(7, _socket.inet_aton(source))
        self._ask(_NEW_ROUTE, _CREATE | _REPLACE, body, f"{target}/{prefix}")

    def _ask(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._sequence += 1
        self._socket.send(message(kind, flags | _REQUEST | _ACK, self._sequence, body))
        while True:
            answer = self._socket.recv(65536)
            _, found, _, sequence, _ = _HEADER.unpack_from(answer)
            if found == _ERROR and sequence == self._sequence:
                (code,) = struct.unpack_from("=i", answer, _HEADER.size)
                if code:
                    raise NetlinkError(-code, os.strerror(-code), what)
                return


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def index_of(name: str) -> int:
    """The number of an interface in the network namespace of this process."""
    return _socket.if_nametoindex(name)
