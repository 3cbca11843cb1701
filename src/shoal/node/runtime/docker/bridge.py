"""Keeps the hardware address of an engine's bridge.

A bridge takes the lowest address of its ports, unless one was set. Podman sets none, so containers that come and go
change it, and those that talk to the bridge lose their connections for seconds, until they ask for its address again.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Collection

_GET_ADDRESS, _GET_HARDWARE, _SET_HARDWARE = 0x8915, 0x8927, 0x8924
_NAME_BYTES, _REQUEST_BYTES = 16, 40


def keep_address(gateways: Collection[str]) -> None:
    """Set the hardware address that the interfaces with these addresses have. Those of another machine or network
    namespace are left alone, and so are all where this process has not the right to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_NAME_BYTES}s", name.encode()).ljust(_REQUEST_BYTES, b"\0")
            try:
                found = fcntl.ioctl(kernel, _GET_ADDRESS, request)
                if socket.inet_ntoa(found[_NAME_BYTES + 4 : _NAME_BYTES + 8]) in gateways:
                    fcntl.ioctl(kernel, _SET_HARDWARE, fcntl.ioctl(kernel, _GET_HARDWARE, request))
            except OSError:
                continue  # it has no address, or it may not be changed
