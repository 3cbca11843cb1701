"""Adds images to a store: from registries and from archives. Several layers at a time; what is there is not fetched.

Every fault is an ``ImageFailure``, whose text the agent shows as an event of the pod.
"""

from __future__ import annotations

import asyncio
import errno
import platform as machine
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from shoal.base.clock import Clock
from shoal.base.ids import new_token
from shoal.base.tasks import run_all
from shoal.node.runtime.images import archive
from shoal.node.runtime.images.compression import Refused
from shoal.node.runtime.images.index import KeptImage
from shoal.node.runtime.images.locks import locked
from shoal.node.runtime.images.manifests import (
    MOST_CONFIG_BYTES,
    BadImage,
    Descriptor,
    ImageSettings,
    Manifest,
    Platform,
    choose,
    document,
    is_index,
    parse_manifest,
    parse_settings,
)
from shoal.node.runtime.images.references import full_reference, matching
from shoal.node.runtime.images.registry import Repository
from shoal.node.runtime.images.store import ImageStore, UnpackedLayer
from shoal.node.runtime.model import ImageFailure, ImageFault, PullProgress, RegistryCredentials
from shoal.node.runtime.process.images import ImageReference

T = TypeVar("T")
Progress = Callable[[PullProgress], None]

_ARCHITECTURES = {
    "x86_64": Platform("amd64"),
    "aarch64": Platform("arm64", variant="v8"),
    "armv7l": Platform("arm", variant="v7"),
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DEEPEST = 4  # indices in indices


def this_platform() -> Platform:
    name = machine.machine()
    return _ARCHITECTURES.get(name) or Platform(name)


@dataclass(frozen=True, slots=True)
class ImageAdder:
    """Fetches and loads images."""

    store: ImageStore
    clock: Clock
    platform: Platform

    async def pull(
        self, text: str, credentials: tuple[RegistryCredentials, ...], progress: Progress = lambda _: None
    ) -> KeptImage:
        """The image as the registry has it now. Credentials are tried in turn."""
        reference = full_reference(text)
        tries: list[RegistryCredentials | None] = [*matching(reference, credentials)]
        failure: ImageFailure | None = None
        for each in tries or [None]:
            try:
                return await self._with_room(lambda each=each: self._pull(text, reference, each, progress))  # type: ignore[misc]
            except ImageFailure as error:
                failure = error
        assert failure is not None
        raise failure

    async def _pull(
        self, text: str, reference: ImageReference, credentials: RegistryCredentials | None, progress: Progress
    ) -> KeptImage:
        store = self.store
        repository = Repository(reference, store.config, self.clock, credentials)
        async with store.adding():
            manifest, digest = await self._manifest(repository, reference.digest or reference.tag)
            names = (reference.canonical, ImageReference(reference.host, reference.path, "", digest).canonical)
            known = store.index.images().get(manifest.config.digest)
            if known is not None and store.layers_of(known) is not None:
                return store.index.add(KeptImage(
                    settings=known.settings, names=names, layers=known.layers, added_at=known.added_at,
                    lost_capabilities=known.lost_capabilities,
                ), self.clock.wall_s())  # fmt: skip
            settings = parse_settings(
                await repository.small(manifest.config, MOST_CONFIG_BYTES), manifest.config.digest, self.platform
            )
            _check_layers(len(manifest.layers), settings)
            total, done = sum(each.size for each in manifest.layers), 0

            def more(count: int) -> None:
                nonlocal done
                done += count
                progress(PullProgress(reference=text, done_bytes=done, total_bytes=total))

            at_once = asyncio.Semaphore(store.config.at_once)
            wanted = dict(zip(settings.diff_ids, manifest.layers, strict=True))
            found: dict[str, UnpackedLayer] = {}

            async def layer(diff_id: str, packed: Descriptor) -> None:
                async with at_once:
                    found[diff_id] = await self._layer(repository, packed, diff_id, more)

            await _all({f"layer/{each[7:19]}": layer(each, packed) for each, packed in wanted.items()})
            return self._add(settings, names, found)

    async def _manifest(self, repository: Repository, reference: str) -> tuple[Manifest, str]:
        """The manifest for this machine, and the digest of what the reference names."""
        raw, kind = await repository.manifest(reference)
        digest = Descriptor.of(raw).digest
        for _ in range(_DEEPEST):
            content = document(raw, "manifest")
            if not is_index(content, kind):
                return parse_manifest(content, most_layers=self.store.config.layers), digest
            wanted = choose(content, self.platform)
            raw, kind = await repository.manifest(wanted.digest)
        raise BadImage("the image is an index of indices of indices")

    async def _layer(
        self, repository: Repository, packed: Descriptor, diff_id: str, on_bytes: Callable[[int], None]
    ) -> UnpackedLayer:
        store = self.store
        path, lock = store.blob(packed.digest), store.lock(packed.digest)
        if (found := store.unpacked(diff_id)) is not None:
            on_bytes(packed.size)
            return found
        async with locked(lock, self.clock):
            if store.unpacked(diff_id) is None:
                await repository.blob(packed, path, on_bytes)
        try:
            return await store.unpack(path, diff_id)
        finally:
            async with locked(lock, self.clock):
                path.unlink(missing_ok=True)

    async def load(self, path: Path, name: str = "") -> list[KeptImage]:
        """Every image of an archive, under the names that it gives, or under ``name``."""
        given = full_reference(name).canonical if name else ""
        return await self._with_room(lambda: self._load(path, given))

    async def _load(self, path: Path, name: str) -> list[KeptImage]:
        added = []
        async with self.store.adding():
            with archive.opened(path) as files:
                images = archive.images_in(files, self.platform, most_layers=self.store.config.layers)
                if name and len(images) > 1:
                    raise BadImage(f"{path} has {len(images)} images: a name can be given to one only")
                for each in images:
                    names = (name,) if name else tuple(full_reference(one).canonical for one in each.names)
                    if not names:
                        raise BadImage(f"{path} does not say how its image is called: give a name")
                    added.append(await self._load_one(files, each, names))
        return added

    async def _load_one(
        self, files: archive.ArchiveFiles, image: archive.ArchivedImage, names: tuple[str, ...]
    ) -> KeptImage:
        settings = parse_settings(image.config, image.config_digest, self.platform)
        _check_layers(len(image.layers), settings)
        found: dict[str, UnpackedLayer] = {}
        for diff_id, layer in zip(settings.diff_ids, image.layers, strict=True):
            known = self.store.unpacked(diff_id)
            if known is None:
                target = self.store.blob(f"load-{new_token(8)}")
                try:
                    await asyncio.to_thread(archive.copy_layer, files, layer, target)
                    known = await self.store.unpack(target, diff_id)
                finally:
                    target.unlink(missing_ok=True)
            found[diff_id] = known
        return self._add(settings, names, found)

    def _add(self, settings: ImageSettings, names: tuple[str, ...], found: dict[str, UnpackedLayer]) -> KeptImage:
        now = self.clock.wall_s()
        sizes = {each.diff_id: each.size_bytes for each in found.values()}
        lost = sum(each.lost_capabilities for each in found.values())
        image = KeptImage(settings=settings, names=names, layers=sizes, added_at=now, lost_capabilities=lost)
        return self.store.index.add(image, now)

    async def _with_room(self, add: Callable[[], Awaitable[T]]) -> T:
        """Add, and keep to the budget. If the disk is full, images that no container uses make room once."""
        with _faults():
            try:
                found = await add()
            except OSError as error:
                if error.errno not in _FULL or not await self.store.collect(budget_bytes=0):
                    raise
                found = await add()
        await self.store.collect()
        return found


async def _all(parts: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run all; of several failures the first is raised."""
    try:
        await run_all(parts)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _check_layers(count: int, settings: ImageSettings) -> None:
    if count != len(settings.diff_ids):
        raise BadImage(f"the image has {count} layers, and its configuration says {len(settings.diff_ids)}")
    if not count:
        raise BadImage("the image has no layers: there is nothing to run")


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except (BadImage, Refused) as error:
        raise ImageFailure(ImageFault.PULL, str(error)) from error
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            why = f"{why}: free room on the disk, or remove images with `shoal image prune`"
        raise ImageFailure(ImageFault.PULL, f"the image cannot be written: {why}") from error
