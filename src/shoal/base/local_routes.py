"""Ranges of addresses that this machine takes as its own: ``ip route add local RANGE dev lo``, by netlink.

Every address of such a range can be listened on, without being configured on an interface. Routes belong to the network
namespace of the process. Changing them takes CAP_NET_ADMIN; ``PermissionError`` says that it is missing.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

_NEW_ROUTE, _DELETE_ROUTE, _ERROR = 24, 25, 2  # types of messages
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_TABLE_LOCAL, _SCOPE_HOST, _TYPE_LOCAL = 255, 254, 2
_BY = 116  # who made a route; a number that no other program uses
_TO, _DEVICE = 1, 4  # attributes
_LOOPBACK_INDEX = 1  # in every network namespace
_ROUTES = "/proc/net/route"
_ANSWER_BYTES = 4096
_NOBODYS = IPv4Network("192.0.2.255/32")  # of documentation


def add_local(network: IPv4Network, kernel: socket.socket | None = None) -> None:
    """Make the range local; it may be already. Raises ``OSError``. A route socket of another network namespace may be
    given; the caller closes it."""
    _change(_NEW_ROUTE, _CREATE | _EXCLUSIVE, network, fine=errno.EEXIST, kernel=kernel)


def remove_local(network: IPv4Network) -> None:
    """Take back ``add_local``; a range that is not local is fine. Raises ``OSError``."""
    _change(_DELETE_ROUTE, 0, network, fine=errno.ESRCH)


def may_change_routes() -> bool:
    """Whether this process has the right to; asked by removing a route that does not exist."""
    try:
        remove_local(_NOBODYS)
    except OSError:
        return False
    return True


def is_local(address: IPv4Address) -> bool:
    """Whether a program of this machine could listen on the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(address), 0))
        except OSError:
            return False
    return True


def routed_networks(path: str = _ROUTES) -> Iterator[IPv4Network]:
    """The networks to which this machine has a route, without the default route and local ones."""
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        to, mask = (int.from_bytes(bytes.fromhex(fields[n])[::-1], "big") for n in (1, 7))
        if mask:
            yield IPv4Network((to, mask.bit_count()))


def _change(kind: int, flags: int, network: IPv4Network, *, fine: int, kernel: socket.socket | None = None) -> None:
    body = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, network.prefixlen, 0, 0, _TABLE_LOCAL, _BY, _SCOPE_HOST, _TYPE_LOCAL, 0
    )
    body += _attribute(_TO, network.network_address.packed)
    body += _attribute(_DEVICE, struct.pack("=I", _LOOPBACK_INDEX))
    head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
    if kernel is None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as own:
            answer = _asked(own, head + body)
    else:
        answer = _asked(kernel, head + body)
    _, said, _, _, _, code = struct.unpack_from("=IHHIIi", answer)
    if said != _ERROR:
        raise OSError(errno.EPROTO, f"the kernel's answer about the route to {network} is of type {said}")
    if code and -code != fine:
        raise OSError(-code, f"{os.strerror(-code)}: local route to {network}")


def _asked(kernel: socket.socket, message: bytes) -> bytes:
    kernel.send(message)
    return kernel.recv(_ANSWER_BYTES)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value
