"""The images of a node that has no real ones: those of the table, as the node has used them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal.node.runtime.model import Image, PullProgress, RegistryCredentials
from shoal.node.runtime.process.images import ImageTable

_MOST = 500


class ImageSource(Protocol):
    """The images of a node; ``shoal.node.runtime.model.Runtime`` specifies each call."""

    async def image(self, reference: str) -> Image | None: ...

    async def images(self) -> tuple[Image, ...]: ...

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...],
        progress: Callable[[PullProgress], None],
        command: bool,
    ) -> Image: ...

    async def remove_image(self, image_id: str) -> None: ...


class TableImages:
    """Every entry of the table is there without a pull; what was used is listed."""

    def __init__(self, table: ImageTable) -> None:
        self._table = table
        self._used: dict[str, Image] = {}

    async def image(self, reference: str) -> Image | None:
        found = self._table.find(reference)
        return self._use(found) if found is not None else None

    async def images(self) -> tuple[Image, ...]:
        return tuple(self._used.values())

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...],
        progress: Callable[[PullProgress], None],
        command: bool,
    ) -> Image:
        found = self._table.find(reference)
        if found is None and not command:
            raise self._table.missing(reference)
        return self._use(found or self._table.bare(reference))

    async def remove_image(self, image_id: str) -> None:
        self._used.pop(image_id, None)

    def _use(self, image: Image) -> Image:
        self._used.setdefault(image.id, image)
        if len(self._used) > _MOST:
            del self._used[next(iter(self._used))]
        return image
