"""Removes the entries of deleted sentinel pods: their verdicts on routes and policies, and their counters.

Each pod of a sentinel writes only its own entries, so none are written after it is gone. An entry is removed when two
checks in a row, some seconds apart, found no pod of its name; counters only once the control plane has got them. Names
that are not those of sentinel pods are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, PatchType, ResourceType, TransportError, builtin
from shoal.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from shoal.krane.labels import FIELD_MANAGER_KRANE, NAMESPACE_SENTINEL
from shoal.krane.sentinels.custom import TYPES
from shoal.krane.sentinels.sampling import Samplings
from shoal.kube.objects import Obj
from shoal.reconcile import Cache

log = get_logger("krane.sentinels")

POD_PREFIX = "sentinel-"  # how the names of all sentinels begin
LOOK_S = 10.0
_JUDGED = tuple(TYPES[kind] for kind in ("route", "policy"))


@dataclass(frozen=True, slots=True)
class Leftover:
    """An entry of a pod in an object: what it is, and the patch that removes it and nothing else."""

    kind: ResourceType
    name: str
    pod: str
    patch: tuple[Any, ...]
    subresource: str = ""


def leftovers(
    judged: Mapping[ResourceType, Iterable[Obj]],
    stats: Iterable[Obj],
    pods: set[str],
    is_told: Callable[[str, str], bool],
) -> list[Leftover]:
    """The entries of pods that are not in ``pods``; counters only if the control plane was told of them. Pure."""
    found: list[Leftover] = []
    for kind, objects in judged.items():
        for obj in objects:
            found += _of_status(kind, obj, pods)
    for one in stats:
        found += [
            Leftover(builtin("configmaps"), one["metadata"]["name"], pod, ({"op": "remove", "path": f"/data/{pod}"},))
            for pod, text in sorted((one.get("data") or {}).items())
            if _is_gone(pod, pods) and is_told(pod, text)
        ]
    return found


def _of_status(kind: ResourceType, obj: Obj, pods: set[str]) -> Iterator[Leftover]:
    entries = (obj.get("status") or {}).get("gateways") or ()
    for at, entry in enumerate(entries):
        pod = str(entry.get("name") or "")
        if _is_gone(pod, pods):
            path = f"/status/gateways/{at}"
            patch = ({"op": "test", "path": f"{path}/name", "value": pod}, {"op": "remove", "path": path})
            yield Leftover(kind, obj["metadata"]["name"], pod, patch, "status")
            return  # the others have moved when this one has gone


def _is_gone(pod: str, pods: set[str]) -> bool:
    return pod.startswith(POD_PREFIX) and pod not in pods


class Leftovers:
    """``run`` it as a task. ``caches`` are those of the observer; ``stats`` names the one with counters."""

    def __init__(
        self, client: Client, caches: Mapping[str, Cache], *, stats: str, samplings: Samplings, clock: Clock
    ) -> None:
        self._client = client
        self._caches = caches
        self._stats = stats
        self._samplings = samplings
        self._clock = clock
        self._suspects: set[str] = set()  # pods that were missing at the last look

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        pods, stats = self._caches["Pod"], self._caches[self._stats]
        judged = {kind: self._caches[kind.kind] for kind in _JUDGED}
        if not all(cache.synced.is_set() for cache in (pods, stats, *judged.values())):
            return
        found = leftovers(judged, stats, {pod["metadata"]["name"] for pod in pods}, self._samplings.has)
        for one in found:
            if one.pod in self._suspects:
                await self._remove(one)
        self._suspects = {one.pod for one in found}
        self._samplings.keep({pod for one in stats for pod in one.get("data") or {}})

    async def _remove(self, one: Leftover) -> None:
        try:
            await self._client.of(one.kind).patch(
                one.name, list(one.patch), NAMESPACE_SENTINEL, type=PatchType.JSON, subresource=one.subresource,
                field_manager=FIELD_MANAGER_KRANE,
            )  # fmt: skip
        except (NotFound, Conflict, Invalid, BadRequest):
            return  # it has changed meanwhile: the next look sees how
        except (ApiError, TransportError) as error:
            log.debug("an entry of a deleted sentinel was not removed", pod=one.pod, reason=str(error))
