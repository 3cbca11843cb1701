"""The listening TCP sockets of the machine, and the containers that own them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shoal.node.runtime.process.shim import processes

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listening socket; the inode distinguishes sockets with the same address."""

    address: str
    port: int
    inode: int

    @property
    def wildcard(self) -> bool:
        return self.address in ("0.0.0.0", "::")


def listeners() -> list[ListeningSocket]:
    """All listening TCP sockets of the machine."""
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
    found = [each for each in await asyncio.to_thread(listeners) if each.port == port]
    if any(each.address == address for each in found):
        return address
    own = await asyncio.to_thread(_inodes_of_shims, tuple(shims)) if found else set()
    for each in found:
        if each.inode in own:
            return address if each.wildcard else each.address
    raise ConnectionRefusedError(f"connection refused: nothing listens on port {port} of {address}")


async def ports_on_all_addresses(shims: Iterable[int]) -> dict[int, list[int]]:
    """By shim, the ports on which its container listens on all addresses of the machine."""

    def look() -> dict[int, list[int]]:
        wild = [each for each in listeners() if each.wildcard]
        owned = {shim: _inodes_of_shims((shim,)) for shim in shims} if wild else {}
        return {shim: sorted({each.port for each in wild if each.inode in inodes}) for shim, inodes in owned.items()}

    return await asyncio.to_thread(look)


def _inodes_of_shims(shims: tuple[int, ...]) -> set[int]:
    return inodes_of(pid for shim in shims for pid in processes.descendants(shim))
