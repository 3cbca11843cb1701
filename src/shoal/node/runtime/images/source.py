"""The images of a node with sandboxes: real ones from the store, and Shoal's own from the table of programs."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock
from shoal.node.runtime.images.adding import ImageAdder
from shoal.node.runtime.images.references import HUB, full_reference
from shoal.node.runtime.images.store import ImageStore
from shoal.node.runtime.model import CreateFailure, Image, PullProgress, RegistryCredentials
from shoal.node.runtime.process.table_images import TableImages
from shoal.node.runtime.sandbox.roots import RootFiles, machine_files

_OWN = "shoal/"
_TABLE_ID = "process:"


class StoreImages:
    """Implements ``RootSource``."""

    def __init__(self, table: TableImages, store: ImageStore, adder: ImageAdder, *, clock: Clock) -> None:
        self._table = table
        self._store = store
        self._adder = adder
        self._clock = clock

    async def image(self, reference: str) -> Image | None:
        name = full_reference(reference)
        if _is_own(reference):
            return await self._table.image(reference)
        found = self._store.index.find(name.canonical)
        if found is None or self._store.layers_of(found) is None:
            return None
        self._store.index.touch(found.id, self._clock.wall_s())
        return found.image()

    async def images(self) -> tuple[Image, ...]:
        return (*await self._table.images(), *(each.image() for each in self._store.index.images().values()))

    async def pull(
        self,
        reference: str,
        *,
        credentials: tuple[RegistryCredentials, ...],
        progress: Callable[[PullProgress], None],
        command: bool,
    ) -> Image:
        if _is_own(reference):
            return await self._table.pull(reference, credentials=credentials, progress=progress, command=command)
        return (await self._adder.pull(reference, credentials, progress)).image()  # layers are fetched once for all

    async def remove_image(self, image_id: str) -> None:
        if image_id.startswith(_TABLE_ID):
            await self._table.remove_image(image_id)
        else:
            await self._store.remove(image_id)

    def files_of(self, image: Image) -> RootFiles:
        if image.id.startswith(_TABLE_ID):
            return machine_files()
        kept = self._store.index.images().get(image.id)
        layers = self._store.layers_of(kept) if kept is not None else None
        if layers is None:
            raise CreateFailure(f"the image {image.id} is no longer on the node; the next start fetches it again")
        self._store.index.touch(image.id, self._clock.wall_s())
        return RootFiles(layers=layers)


def _is_own(reference: str) -> bool:
    """Whether it is one of Shoal's own programs, which need no image."""
    found = full_reference(reference)
    return found.host == HUB and found.path.startswith(_OWN)
