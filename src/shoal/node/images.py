"""Gets images for containers: by pull policy, one pull at a time, with backoff after failures."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from shoal.base.clock import Clock
from shoal.errors import ShoalError
from shoal.kube.objects import Obj
from shoal.node.containers import ContainerWait
from shoal.node.events import PodEvents
from shoal.node.runtime.model import Image, ImageFailure, ImageFault, RegistryCredentials, Runtime

BASE_S = 10.0
CAP_S = 300.0
RESET_S = 600.0


class NoImage(ShoalError):
    """The image is not available: the waiting reason, and the time of the next attempt."""

    def __init__(self, wait: ContainerWait, retry_at: float) -> None:
        super().__init__(wait.message)
        self.wait = wait
        self.retry_at = retry_at


@dataclass(frozen=True, slots=True)
class _Failed:
    count: int
    at: float
    message: str

    @property
    def retry_at(self) -> float:
        return self.at + min(CAP_S, BASE_S * 2.0 ** min(self.count - 1, 10))


class NodeImages:
    """Images for the pods of a node."""

    def __init__(self, runtime: Runtime, events: PodEvents, *, clock: Clock) -> None:
        self._runtime = runtime
        self._events = events
        self._clock = clock
        self._pulling = asyncio.Lock()
        self._failed: dict[tuple[str, str], _Failed] = {}  # by uid of the pod and reference

    async def ensure(self, pod: Obj, container: Obj, credentials: tuple[RegistryCredentials, ...]) -> Image:
        """The image of a container, pulled if its policy requires it; raises ``NoImage``."""
        name, reference = container["name"], container.get("image") or ""
        policy = container.get("imagePullPolicy") or "IfNotPresent"
        now = self._clock.wall_s()
        try:
            present = await self._runtime.image(reference)
        except ImageFailure as failure:
            self._warn(pod, name, "InspectFailed", f'Failed to apply default image tag "{reference}": {failure}')
            raise NoImage(ContainerWait(failure.fault.value, str(failure)), now + CAP_S) from failure
        if present is not None and policy != "Always":
            message = f'Container image "{reference}" already present on machine'
            self._events.normal(pod, "Pulled", f"{message} and can be accessed by the pod", container=name)
            return present
        if policy == "Never":
            message = f'Container image "{reference}" is not present with pull policy of Never'
            self._warn(pod, name, "ErrImageNeverPull", message)
            raise NoImage(ContainerWait(ImageFault.NEVER_PULL.value, message), now + BASE_S)
        return await self._pull(pod, container, credentials)

    async def _pull(self, pod: Obj, container: Obj, credentials: tuple[RegistryCredentials, ...]) -> Image:
        name, reference = container["name"], container.get("image") or ""
        key = (pod["metadata"]["uid"], reference)
        asked_at = self._clock.monotonic()
        self._events.normal(pod, "Pulling", f'Pulling image "{reference}"', container=name)
        async with self._pulling:
            began_at = self._clock.monotonic()
            try:
                image = await self._runtime.pull(
                    reference, credentials=credentials, command=bool(container.get("command"))
                )
            except ImageFailure as failure:
                self._warn(pod, name, "Failed", f'Failed to pull image "{reference}": {failure}')
                self._warn(pod, name, "Failed", f"Error: {failure.fault.value}")
                failed = self._failures(key, failure)
                message = f'failed to pull image "{reference}": {failure}'
                raise NoImage(ContainerWait(failure.fault.value, message), failed.retry_at) from failure
        self._failed.pop(key, None)
        now = self._clock.monotonic()
        took = f"{_seconds(now - began_at)} ({_seconds(now - asked_at)} including waiting)"
        message = f'Successfully pulled image "{reference}" in {took}. Image size: {image.size_bytes} bytes.'
        self._events.normal(pod, "Pulled", message, container=name)
        return image

    def _failures(self, key: tuple[str, str], failure: ImageFailure) -> _Failed:
        before, now = self._failed.get(key), self._clock.wall_s()
        count = before.count + 1 if before is not None and now - before.at < RESET_S else 1
        found = self._failed[key] = _Failed(count, now, str(failure))
        return found

    def backing_off(self, pod: Obj, name: str, reference: str, first: ContainerWait) -> ContainerWait:
        """The waiting state of a container while its failed pull backs off."""
        message = f'Back-off pulling image "{reference}"'
        self._events.normal(pod, "BackOff", message, container=name)
        self._warn(pod, name, "Failed", "Error: ImagePullBackOff")
        return ContainerWait("ImagePullBackOff", f"{message}: {first.reason}: {first.message}")

    def forget(self, uid: str) -> None:
        for key in [key for key in self._failed if key[0] == uid]:
            del self._failed[key]

    def _warn(self, pod: Obj, name: str, reason: str, message: str) -> None:
        self._events.warning(pod, reason, message, container=name)


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}s".rstrip("0s").rstrip(".") + "s" if duration_s else "0s"


def credentials_of(secrets: Iterable[Obj]) -> tuple[RegistryCredentials, ...]:
    """The credentials in pull secrets; invalid secrets count as empty."""
    found: list[RegistryCredentials] = []
    for secret in secrets:
        data = secret.get("data") or {}
        try:
            text = base64.b64decode(data.get(".dockerconfigjson") or data.get(".dockercfg") or "")
            config = orjson.loads(text) if text else {}
        except ValueError:
            continue
        for server, entry in (config.get("auths", config) or {}).items():
            if isinstance(entry, dict):
                found.append(_credentials(server, entry))
    return tuple(found)


def _credentials(server: str, entry: Obj) -> RegistryCredentials:
    user, password = entry.get("username", ""), entry.get("password", "")
    if not user and entry.get("auth"):
        try:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except ValueError:
            pass
    return RegistryCredentials(server=server, username=user, password=password)
