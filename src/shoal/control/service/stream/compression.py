"""Compression of messages to agents, for messages that are large enough to gain from it.

A stream that has agreed on gzip marks every message as compressed, and setting up a compressor costs more than sending
a kilobyte. So small messages are stored: a gzip member that contains its data uncompressed.
"""

from __future__ import annotations

import gzip
from struct import pack
from zlib import crc32

from connectrpc.compression.gzip import GzipCompression

_SMALL = 4096
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time
_LEVEL = 1


class Gzip(GzipCompression):
    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        return gzipped(data)


def gzipped(data: bytes | bytearray | memoryview) -> bytes:
    size = len(data)
    if size > _SMALL:
        return gzip.compress(data, compresslevel=_LEVEL, mtime=0)
    stored = pack("<BHH", 1, size, size ^ 0xFFFF)  # the last block, not compressed
    return b"".join((_HEADER, stored, data, pack("<II", crc32(data), size)))
