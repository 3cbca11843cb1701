"""The images of a cluster on disk. Several nodes and commands use one folder at the same time.

    index.json, used/      the images, and when each was used
    blobs/HEX              packed layers until they are unpacked, and those of which a part has arrived
    layers/KIND/HEX/files  unpacked layers, by diff id; KIND says whose ids their owners are
    work/                  what is being unpacked or deleted
    locks/                 for blobs and layers; ``adding`` is shared by all that add images, and cleaning has it alone

A layer is unpacked below ``work`` and renamed when all of it is on disk with the right digest, so a kill leaves nothing
half-unpacked where containers look. What a killed process has left in ``work`` goes with the next cleaning.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.base.clock import Clock
from shoal.base.files import make_private_dirs, sync_dir, write_private
from shoal.base.ids import new_token
from shoal.base.logs import get_logger
from shoal.node.runtime.images.compression import Refused
from shoal.node.runtime.images.config import ImageConfig
from shoal.node.runtime.images.garbage import Candidate, to_remove
from shoal.node.runtime.images.index import ImageIndex, KeptImage
from shoal.node.runtime.images.locks import locked, locked_now
from shoal.node.runtime.sandbox.ids import IdMap

log = get_logger("node.images")

_FOLDERS = ("used", "blobs", "layers", "work", "locks")
_BLOBS_S = 3600.0  # how long a part of a blob waits for the rest
_WORKER = "from shoal.node.runtime.images.worker import main; main()"


@dataclass(frozen=True, slots=True)
class UnpackedLayer:
    """A layer on disk, as its worker has described it."""

    diff_id: str
    size_bytes: int
    lost_capabilities: int


class ImageStore:
    """The folder of images of a cluster. ``in_use`` gives the ids of images of all its containers."""

    def __init__(
        self, config: ImageConfig, ids: Callable[[], IdMap], *, clock: Clock, in_use: Callable[[], Iterable[str]]
    ) -> None:
        self.config = config
        self._ids_of = ids
        self._clock = clock
        self._in_use = in_use
        self._folder = config.folder
        self.index = ImageIndex(config.folder)
        self._made = False
        self._unpacking = asyncio.Semaphore(config.at_once)

    @cached_property
    def _ids(self) -> IdMap:
        return self._ids_of()

    def open(self) -> None:
        """Make the folder; only its owner may look into it, because files in layers may be setuid."""
        if self._made:
            return
        make_private_dirs(self._folder)
        for name in _FOLDERS:
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)
        self._layers.mkdir(mode=0o700, exist_ok=True)
        self._made = True

    @property
    def _layers(self) -> Path:
        """The unpacked layers whose owners are ids of this cluster's users."""
        ids = self._ids
        kind = "one" if ids.count == 1 else "all" if ids.root else f"from-{ids.uids[1][1]}"
        return self._folder / "layers" / kind

    # blobs

    def blob(self, digest: str) -> Path:
        return self._folder / "blobs" / digest.removeprefix("sha256:")

    def lock(self, digest: str) -> Path:
        """The lock of a blob or a layer; a few share one, so nobody may hold two."""
        return self._folder / "locks" / digest.removeprefix("sha256:")[:2]

    @asynccontextmanager
    async def adding(self) -> AsyncIterator[None]:
        """While an image is being added, nothing that no image has yet is cleaned away."""
        self.open()
        async with locked(self._folder / "locks" / "adding", self._clock, shared=True):
            yield

    # layers

    def layer(self, diff_id: str) -> Path:
        return self._layers / diff_id.removeprefix("sha256:")

    def unpacked(self, diff_id: str) -> UnpackedLayer | None:
        try:
            found = json.loads((self.layer(diff_id) / "layer.json").read_bytes())
        except FileNotFoundError:
            return None
        return UnpackedLayer(diff_id, found["size_bytes"], len(found["capabilities"]))

    def layers_of(self, image: KeptImage) -> tuple[Path, ...] | None:
        """The folders of an image's layers, the uppermost first; None if one is missing."""
        once = dict.fromkeys(reversed(image.settings.diff_ids))  # of a layer that comes twice, the upper one counts
        folders = [self.layer(each) / "files" for each in once]
        return tuple(folders) if all(each.is_dir() for each in folders) else None

    async def unpack(self, blob: Path, diff_id: str) -> UnpackedLayer:
        """Unpack a layer unless it is there. Raises ``Refused`` or ``OSError``, and leaves nothing behind."""
        async with locked(self.lock(diff_id), self._clock):
            if (found := self.unpacked(diff_id)) is not None:
                return found
            async with self._unpacking:
                return await self._unpack(blob, diff_id)

    async def _unpack(self, blob: Path, diff_id: str) -> UnpackedLayer:
        ids, name = self._ids, diff_id.removeprefix("sha256:")
        work = self._folder / "work" / f"{name}-{new_token(8)}"
        work.mkdir(mode=0o700)
        try:
            answer = await self._work(
                {
                    "do": "unpack", "blob": str(blob), "target": str(work / "files"), "diff_id": diff_id,
                    "limits": asdict(self.config.limits), "owners": ids.count,
                }
            )  # fmt: skip
            write_private(work / "layer.json", json.dumps(answer).encode())
            os.rename(work, self.layer(diff_id))
            sync_dir(self._layers)
        except BaseException:
            await self._delete(work)
            raise
        return UnpackedLayer(diff_id, answer["size_bytes"], len(answer["capabilities"]))

    async def _delete(self, folder: Path) -> None:
        """Delete a folder with files of other users."""
        if self._ids.root:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            return
        try:
            await self._work({"do": "remove", "target": str(folder)})
        except OSError as error:
            log.warning("files of an image are left", folder=str(folder), reason=str(error))

    async def _work(self, request: dict[str, Any]) -> dict[str, Any]:
        ids = self._ids
        request |= {"uids": ids.uids, "gids": ids.gids, "mapper": ids.mapper}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {_WORKER}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8"}, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = await process.communicate(json.dumps(request).encode())
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            last = errors.decode(errors="replace").strip().splitlines()
            why = last[-1] if last else f"exit code {process.returncode}"
            raise OSError(errno.EIO, f"the process that unpacks layers has failed: {why}") from None
        if "refused" in answer:
            raise Refused(answer["refused"])
        if "failed" in answer:
            raise OSError(answer["errno"], answer["failed"])
        return answer

    # cleaning

    async def collect(self, *, budget_bytes: int | None = None, keep_s: float | None = None) -> list[KeptImage]:
        """Remove images until the rest fits into the budget, never one that a container uses, and then every layer
        without an image. Returns what was removed."""
        self.open()
        async with locked(self._folder / "collect.lock", self._clock):
            budget = self.config.budget_bytes if budget_bytes is None else budget_bytes
            since = self._clock.wall_s() - (self.config.keep_s if keep_s is None else keep_s)
            known = self.index.images()
            candidates = [Candidate(each.id, each.layers, self.index.used_at(each)) for each in known.values()]
            chosen = to_remove(candidates, budget_bytes=budget, in_use=set(self._in_use()), used_since=since)
            removed = [known[each] for each in chosen]
            if removed:
                self.index.remove(set(chosen))
            await self._sweep()
        return removed

    async def remove(self, image_id: str) -> None:
        """Remove an image that no container uses."""
        self.open()
        if image_id in self.index.images() and image_id not in set(self._in_use()):
            async with locked(self._folder / "collect.lock", self._clock):
                self.index.remove({image_id})
                await self._sweep()

    async def _sweep(self) -> None:
        """Delete what no image has and what killed processes have left, unless an image is being added now."""
        with locked_now(self._folder / "locks" / "adding") as alone:
            if not alone:
                return
            kept = {each.removeprefix("sha256:") for one in self.index.images().values() for each in one.layers}
            for folder in (self._folder / "layers").glob("*/*"):
                if folder.name not in kept:
                    os.rename(folder, self._folder / "work" / f"{folder.name}-{new_token(8)}")
            for folder in (self._folder / "work").iterdir():
                await self._delete(folder)
            old = self._clock.wall_s() - _BLOBS_S
            for path in (self._folder / "blobs").iterdir():
                if path.stat().st_mtime < old:
                    path.unlink()
