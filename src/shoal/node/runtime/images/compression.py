"""The content of a layer: unpacked as its first bytes say, counted and hashed, and refused if it is a bomb."""

from __future__ import annotations

import gzip
import hashlib
import importlib
from typing import Any, BinaryIO, cast

from shoal.errors import ShoalError
from shoal.node.runtime.images.limits import LayerLimits

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PER_ENTRY = 2048  # of headers and padding


class Refused(ShoalError):
    """An archive that is damaged, or would do what no image needs to."""


class Reader:
    """A file for tarfile: the plain content of a packed file, which can be read once."""

    def __init__(self, packed: BinaryIO, limits: LayerLimits) -> None:
        self._counted = _Counted(packed)
        self._plain = _plain(self._counted, packed)
        self._limits = limits
        self._most_bytes = limits.bytes + limits.entries * _PER_ENTRY  # with headers
        self._hash = hashlib.sha256()
        self._count = 0

    def read(self, size: int) -> bytes:
        try:
            found = self._plain.read(size)
        except gzip.BadGzipFile as error:
            raise Refused(f"the layer is damaged: {error}") from error
        self._hash.update(found)
        self._count += len(found)
        limits = self._limits
        if self._count > self._most_bytes:
            raise Refused(f"the layer has more than {limits.bytes} bytes unpacked, which is the limit")
        if self._count > limits.ratio_from_bytes and self._count > limits.ratio * self._counted.count:
            raise Refused(
                f"the layer is {self._counted.count} bytes packed and more than {self._count} unpacked: "
                f"the limit is {limits.ratio} times"
            )
        return found

    def digest(self) -> str:
        return self._hash.hexdigest()


class _Counted:
    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        found = self._source.read(size)
        self.count += len(found)
        return found


def _plain(counted: _Counted, packed: BinaryIO) -> BinaryIO:
    start = packed.read(4)
    packed.seek(0)
    if start.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=cast(BinaryIO, counted), mode="rb"))
    if start == _ZSTD:
        return _zstd(counted)
    return cast(BinaryIO, counted)


def load_zstd() -> Any:
    """The module that reads zstd, if there is one: Python has it since 3.14, before that a package may be installed."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _zstd(counted: _Counted) -> BinaryIO:
    module = load_zstd()
    if module is None:
        raise Refused(
            "the layer is compressed with zstd, which this Python cannot read: use Python 3.14, install the package "
            "backports.zstd, or push the image with gzip"
        )
    found: BinaryIO = module.ZstdFile(counted)
    return found
