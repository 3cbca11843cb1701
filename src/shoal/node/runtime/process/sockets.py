"""The listening TCP sockets of the machine, and the containers that own them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.node.runtime.process.shim import processes

_LISTEN = "0A"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2  # of netlink
_REQUEST_DUMP = 0x301
_LISTENING = 1 << 10
_MESSAGE = struct.Struct("=IHHII")  # length, type, flags, sequence number, port id
_HEAD = struct.Struct("=BBBBI")  # of inet_diag_req_v2: family, protocol, extensions, states; the id follows
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # and any interface
_PORT_AT, _ADDRESS_AT, _INODE_AT = 4, 8, 68  # in inet_diag_msg
_BUFFER = 65536


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listening socket; the inode distinguishes sockets with the same address."""

    address: str
    port: int
    inode: int

    @property
    def wildcard(self) -> bool:
        return self.address in ("0.0.0.0", "::")


async def listeners(port: int = 0) -> list[ListeningSocket]:
    """The listening TCP sockets of the machine, on one port if given."""
    try:
        return list(asked_of_kernel(port))
    except OSError:  # the kernel has no sock_diag, or a sandbox forbids it
        return [each for each in await asyncio.to_thread(read_from_proc) if port in (0, each.port)]


def asked_of_kernel(port: int = 0) -> Iterator[ListeningSocket]:
    """What the kernel answers over netlink. Unlike the tables of ``/proc/net`` the answer has listening sockets only:
    on a machine with thousands of connections it takes 30 microseconds instead of 10 milliseconds."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asked:
        for family in _FAMILIES:
            wanted = struct.pack("!HH", port, 0) + bytes(32) + _ANY_COOKIE
            request = _HEAD.pack(family, socket.IPPROTO_TCP, 0, 0, _LISTENING) + wanted
            asked.send(_MESSAGE.pack(_MESSAGE.size + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + request)
            done = False
            while not done:
                answer = asked.recv(_BUFFER)
                done = yield from parsed(answer)


def parsed(answer: bytes) -> Generator[ListeningSocket, None, bool]:
    """The sockets of one datagram; returns whether it was the last one."""
    at = 0
    while at < len(answer):
        length, kind, _, _, _ = _MESSAGE.unpack_from(answer, at)
        body = at + _MESSAGE.size
        if kind == _DONE:
            return True
        if kind == _ERROR:
            (code,) = struct.unpack_from("=i", answer, body)
            raise OSError(-code, os.strerror(-code), "sock_diag")
        size = 4 if answer[body] == socket.AF_INET else 16
        raw = answer[body + _ADDRESS_AT : body + _ADDRESS_AT + size]
        (port,) = struct.unpack_from("!H", answer, body + _PORT_AT)
        (inode,) = struct.unpack_from("=I", answer, body + _INODE_AT)
        yield ListeningSocket(_text(raw), port, inode)
        at += (length + 3) & ~3
    return False


def read_from_proc() -> list[ListeningSocket]:
    """What the tables of ``/proc/net`` say."""
    found: list[ListeningSocket] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, _, port = fields[1].partition(":")
                found.append(ListeningSocket(_address(address), int(port, 16), int(fields[9])))
    return found


def _address(text: str) -> str:
    """Parse an address of ``/proc/net``: 32-bit words in the machine's byte order."""
    raw = b"".join(int(text[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(text), 8))
    return _text(raw)


def _text(raw: bytes) -> str:
    parsed = ipaddress.ip_address(raw)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed)


def inodes_of(pids: Iterable[int]) -> set[int]:
    """The sockets that these processes have open."""
    found: set[int] = set()
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


async def listening_address(address: str, port: int, shims: Iterable[int]) -> str:
    """The address on which the pod of these shims listens on the port. Sockets on all addresses, or on the machine's
    own, count only if the pod owns them. Raise ConnectionRefusedError if the pod does not listen."""
    found = await listeners(port)
    if any(each.address == address for each in found):
        return address
    own = await asyncio.to_thread(_inodes_of_shims, tuple(shims)) if found else set()
    for each in found:
        if each.inode in own:
            return address if each.wildcard else each.address
    raise ConnectionRefusedError(f"connection refused: nothing listens on port {port} of {address}")


async def ports_on_all_addresses(shims: Iterable[int]) -> dict[int, list[int]]:
    """By shim, the ports on which its container listens on all addresses of the machine."""

    wild = [each for each in await listeners() if each.wildcard]

    def look() -> dict[int, list[int]]:
        owned = {shim: _inodes_of_shims((shim,)) for shim in shims} if wild else {}
        return {shim: sorted({each.port for each in wild if each.inode in inodes}) for shim, inodes in owned.items()}

    return await asyncio.to_thread(look)


def _inodes_of_shims(shims: tuple[int, ...]) -> set[int]:
    return inodes_of(pid for shim in shims for pid in processes.descendants(shim))
