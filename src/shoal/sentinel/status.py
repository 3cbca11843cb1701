"""Writes to the status of each route and policy whether this gateway applied it, and if not why.

Each replica owns one entry of ``status.gateways``, by server-side apply with its own field manager. It is compared
with the object and written if it differs, at a low rate: status never competes with traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, ResourceType, TransportError
from shoal.errors import ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Cache

log = get_logger("sentinel.status")

_PER_SECOND = 20.0
_MESSAGE_MAX = 1024
_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class StatusKind:
    """Where objects are read and written, and how faults name them."""

    type: ResourceType
    cache: Cache
    prefix: str


@dataclass(frozen=True, slots=True)
class AcceptanceStatus:
    """Whether one generation of an object is applied; ``fault`` is empty if it is."""

    generation: int
    fault: str = ""


class StatusWriter:
    """``run`` it as a task; ``look`` makes it compare everything again."""

    def __init__(
        self,
        client: Client,
        replica: str,
        kinds: tuple[StatusKind, ...],
        verdicts: Callable[[], Mapping[str, AcceptanceStatus]],
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._replica = replica
        self._kinds = kinds
        self._verdicts = verdicts
        self._clock = clock
        self._wake = asyncio.Event()

    def look(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for kind in self._kinds:
                if not await self._write_all(kind):
                    self._clock.call_later(_RETRY_S, self._wake.set)
            await self._clock.sleep(1 / _PER_SECOND)

    async def _write_all(self, kind: StatusKind) -> bool:
        good = True
        for obj in kind.cache:
            about = obj["metadata"]
            verdict = self._verdicts().get(f"{kind.prefix}/{about['name']}")
            if verdict is None or verdict.generation != about.get("generation"):
                continue  # the next acceptance status is for this generation
            entry = self._entry(verdict)
            if entry != self._shown(obj):
                good = await self._write(kind, obj, entry) and good
                await self._clock.sleep(1 / _PER_SECOND)
        return good

    def _entry(self, verdict: AcceptanceStatus) -> dict[str, Any]:
        made = {"name": self._replica, "accepted": not verdict.fault, "generation": verdict.generation}
        return made | {"message": verdict.fault[:_MESSAGE_MAX]} if verdict.fault else made

    def _shown(self, obj: Obj) -> dict[str, Any] | None:
        entries = (obj.get("status") or {}).get("gateways") or ()
        return next((one for one in entries if one.get("name") == self._replica), None)

    async def _write(self, kind: StatusKind, obj: Obj, entry: dict[str, Any]) -> bool:
        about = {"name": obj["metadata"]["name"], "namespace": obj["metadata"]["namespace"]}
        wanted = {
            "apiVersion": kind.type.api_version, "kind": kind.type.kind, "metadata": about,
            "status": {"gateways": [entry]},
        }  # fmt: skip
        try:
            await self._client.of(kind.type).apply(
                wanted, field_manager=f"sentinel-{self._replica}", force=True, subresource="status"
            )
        except NotFound:
            return True
        except (ApiError, TransportError) as error:
            log.debug("writing a status failed", name=about["name"], reason=str(error))
            return False
        return True
