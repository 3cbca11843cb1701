"""Images of the engine: inspection, pulls with credentials and progress, and the pause image."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import orjson

from shoal.base.tasks import OwnedTasks
from shoal.node.runtime.docker import pause
from shoal.node.runtime.docker.engine import Engine, EngineError
from shoal.node.runtime.docker.frames import BadFrame, JsonLines
from shoal.node.runtime.docker.views import image_of
from shoal.node.runtime.images.references import full_reference, matching
from shoal.node.runtime.model import (
    Image,
    ImageFailure,
    ImageFault,
    PullProgress,
    RegistryCredentials,
    RuntimeFailure,
)
from shoal.node.runtime.process.images import ImageReference, parse_reference

Progress = Callable[[PullProgress], None]

# Parts of engines' messages for an unreachable registry, as opposed to a refusal by the registry.
_UNREACHABLE = (
    "connection refused", "no such host", "i/o timeout", "tls handshake timeout", "network is unreachable",
    "no route to host", "server misbehaving", "context deadline exceeded", "connection reset", "request canceled",
)  # fmt: skip


def pull_fault(message: str) -> ImageFault:
    """The fault that the engine's message means."""
    low = message.lower()
    return ImageFault.REGISTRY if any(words in low for words in _UNREACHABLE) else ImageFault.PULL


def auth_header(credentials: RegistryCredentials) -> str:
    body = {"username": credentials.username, "password": credentials.password, "serveraddress": credentials.server}
    return base64.urlsafe_b64encode(orjson.dumps(body)).decode()


class Layers:
    """Sums the progress of all layers of a pull."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._layers: dict[str, tuple[int, int]] = {}

    def add(self, line: dict[str, Any]) -> PullProgress | None:
        detail, layer = line.get("progressDetail") or {}, line.get("id") or ""
        if line.get("status") != "Downloading" or not layer or not detail.get("total"):
            return None
        self._layers[layer] = (int(detail.get("current") or 0), int(detail["total"]))
        done, total = (sum(each[n] for each in self._layers.values()) for n in (0, 1))
        return PullProgress(reference=self._reference, done_bytes=done, total_bytes=total)


class EngineImages:
    """The images of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks = OwnedTasks()
        self._pulls: dict[str, asyncio.Task[Image]] = {}
        self._watchers: dict[str, list[Progress]] = {}

    async def close(self) -> None:
        await self._tasks.close()

    async def find(self, reference: str) -> Image | None:
        parse_reference(reference)
        try:
            return image_of(await self._engine.json("GET", "images", reference, "json"))
        except EngineError as error:
            if error.status == 404:
                return None
            raise ImageFailure(ImageFault.INSPECT, str(error)) from error

    async def all(self) -> tuple[Image, ...]:
        return tuple(image_of(each) for each in await self._engine.json("GET", "images", "json") or ())

    async def remove(self, image_id: str) -> None:
        try:
            await self._engine.json("DELETE", "images", image_id, query={"force": False})
        except EngineError as error:
            if error.status != 404:
                raise

    async def pull(self, reference: str, credentials: tuple[RegistryCredentials, ...], progress: Progress) -> Image:
        """Pull an image. Concurrent calls for one reference share a pull."""
        parsed = parse_reference(reference)
        task = self._pulls.get(reference)
        if task is None:
            watchers = self._watchers[reference] = []
            pulling = self._pull(reference, parsed, credentials, watchers)
            task = self._tasks.start(pulling, name=f"pull/{reference}", awaited=True)
            self._pulls[reference] = task
            task.add_done_callback(lambda _: self._forget(reference))
        self._watchers[reference].append(progress)
        await asyncio.wait({task})
        if task.cancelled():
            raise ImageFailure(ImageFault.PULL, "the runtime was closed")
        return task.result()

    def _forget(self, reference: str) -> None:
        self._pulls.pop(reference, None)
        self._watchers.pop(reference, None)

    async def _pull(
        self,
        reference: str,
        parsed: ImageReference,
        credentials: tuple[RegistryCredentials, ...],
        watchers: list[Progress],
    ) -> Image:
        headers = [{"x-registry-auth": auth_header(each)} for each in matching(parsed, credentials)]
        failure: ImageFailure | None = None
        for header in headers or [{}]:
            try:
                await self._fetch(reference, header, watchers)
                failure = None
                break
            except ImageFailure as error:
                failure = error
        if failure is not None:
            raise failure
        found = await self.find(reference)
        if found is None:
            raise ImageFailure(ImageFault.PULL, f"{reference} was pulled, but the engine does not list it")
        return found

    async def _fetch(self, reference: str, headers: dict[str, str], watchers: list[Progress]) -> None:
        full = full_reference(reference)
        query = {"fromImage": f"{full.host}/{full.path}", "tag": full.digest or full.tag}
        lines, layers = JsonLines(), Layers(reference)

        def seen(line: dict[str, Any]) -> None:
            if text := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise ImageFailure(pull_fault(text), text.strip())
            if found := layers.add(line):
                for each in watchers:
                    each(found)

        try:
            async with self._engine.stream("POST", "images", "create", query=query, headers=headers) as answer:
                while data := await answer.read():
                    for line in lines.feed(data):
                        seen(line)
                for line in lines.end():
                    seen(line)
        except EngineError as error:
            raise ImageFailure(pull_fault(str(error)), str(error)) from error
        except BadFrame as error:
            raise ImageFailure(ImageFault.PULL, str(error)) from error

    async def ensure_pause(self, configured: str) -> str:
        """The id of the pause image: the configured one or the built-in one, pulled or imported if missing."""
        if configured:
            found = await self.find(configured) or await self.pull(configured, (), lambda _: None)
            return found.id
        if (own := await self.find(pause.NAME)) is not None:
            return own.id
        architecture = str((await self._engine.json("GET", "version")).get("Arch") or "")
        content = pause.archive(architecture)
        if content is None:
            raise RuntimeFailure(
                f"no built-in pause image for {architecture or 'this architecture'}: set one with "
                "--pause-image, for example registry.k8s.io/pause:3.10"
            )
        await self._engine.json("POST", "images", "create", query={"fromSrc": "-", "repo": pause.NAME}, body=content)
        own = await self.find(pause.NAME)
        if own is None:
            raise RuntimeFailure("the pause image was imported, but the engine does not list it")
        return own.id
