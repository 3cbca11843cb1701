"""The built-in pause image, for the container that owns a pod's network: one program that sleeps forever; pure.

It is built here, so a node needs no registry for it. The program is a few machine instructions in a minimal ELF file:
one loaded segment with the headers and the code.
"""

from __future__ import annotations

import io
import struct
import tarfile

NAME = "localhost/shoal-pause-1"  # the number changes with the content
PATH = "/pause"

_BASE = 0x400000
_HEADERS_BYTES = 64 + 56
_X86_64, _AARCH64 = 62, 183
_CODE = {
    # again: mov eax, 34 (pause); syscall; jmp again
    _X86_64: bytes.fromhex("b822000000 0f05 ebf7"),
    # again: x0 = x1 = x2 = x3 = 0; x8 = 73 (ppoll); svc 0; b again
    _AARCH64: struct.pack("<7I", 0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800928, 0xD4000001, 0x17FFFFFA),
}
_MACHINES = {"amd64": _X86_64, "x86_64": _X86_64, "arm64": _AARCH64, "aarch64": _AARCH64}


def program(architecture: str) -> bytes | None:
    """The executable; None for an unsupported architecture."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        return None
    code = _CODE[machine]
    size = _HEADERS_BYTES + len(code)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    head = identity + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, _BASE + _HEADERS_BYTES, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    return head + segment + code


def archive(architecture: str) -> bytes | None:
    """The image as a tar archive, for import by an engine."""
    content = program(architecture)
    if content is None:
        return None
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        entry = tarfile.TarInfo(PATH.lstrip("/"))
        entry.size, entry.mode = len(content), 0o755
        tar.addfile(entry, io.BytesIO(content))
    return found.getvalue()
