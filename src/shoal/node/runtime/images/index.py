"""Which images a folder holds: a small file, replaced in one step, and a file per image with its last use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from shoal.base.files import write_private
from shoal.node.runtime.images.locks import locked_shortly
from shoal.node.runtime.images.manifests import ImageSettings
from shoal.node.runtime.model import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptImage:
    """An image that is unpacked."""

    settings: ImageSettings
    names: tuple[str, ...] = ()
    layers: Mapping[str, int] = field(default_factory=dict)  # sizes by diff id
    added_at: float = 0.0
    lost_capabilities: int = 0  # files of which setcap has no effect

    @property
    def id(self) -> str:
        return self.settings.id

    @property
    def size_bytes(self) -> int:
        return sum(self.layers.values())

    def image(self) -> Image:
        return self.settings.image(self.names, self.size_bytes)


_Content = dict[str, KeptImage]


class ImageIndex:
    """The index of a folder. Reading takes no lock and reads the file only if it has changed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "index.json"
        self._lock = folder / "index.lock"
        self._used = folder / "used"
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._content: _Content = {}

    def images(self) -> _Content:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            self._content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
            self._seen = seen
        return self._content

    def find(self, name: str) -> KeptImage | None:
        return next((each for each in self.images().values() if name in each.names or name == each.id), None)

    def add(self, image: KeptImage, now: float) -> KeptImage:
        """Add an image; its names leave the images that had them."""
        with self._changing() as content:
            before = content.pop(image.id, None)
            for each in tuple(content.values()):
                if set(each.names) & set(image.names):
                    content[each.id] = replace(each, names=tuple(n for n in each.names if n not in image.names))
            if before is not None:
                image = replace(image, names=tuple(dict.fromkeys((*before.names, *image.names))))
            content[image.id] = image
        self.touch(image.id, now)
        return image

    def remove(self, ids: set[str]) -> None:
        with self._changing() as content:
            for each in ids:
                content.pop(each, None)
        for each in ids:
            with suppress(FileNotFoundError):
                (self._used / _plain(each)).unlink()

    def touch(self, image_id: str, now: float) -> None:
        path = self._used / _plain(image_id)
        path.touch()
        os.utime(path, (now, now))

    def used_at(self, image: KeptImage) -> float:
        try:
            return (self._used / _plain(image.id)).stat().st_mtime
        except FileNotFoundError:
            return image.added_at

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        with locked_shortly(self._lock):
            content = dict(self.images())
            yield content
            write_private(self._path, msgspec.json.encode(content))


def _plain(image_id: str) -> str:
    return image_id.replace(":", "-")
