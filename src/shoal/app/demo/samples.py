"""What ``shoal up`` puts into the clusters themselves: a sharded controller with some work, and a piece of a mesh.

Applied once: what people have made of it since, also that they deleted it, is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from shoal.app.demo import mesh, websites
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError, builtin, connect, load
from shoal.errors import AlreadyExists, ApiError

log = get_logger("up")

Obj = dict[str, Any]

_MARK = {"name": "shoal-samples", "namespace": "default"}
_TRY_S, _AGAIN_S = 30.0, 0.25
_APP = "shoal.dev/app"
_SITES = 12


async def ensure_samples(kubeconfigs: Mapping[str, Path], *, clock: Clock) -> None:
    """By region; the sharded controller runs in the first."""
    first = next(iter(kubeconfigs), "")
    await asyncio.gather(*(_ensure(path, clock, sharded=region == first) for region, path in kubeconfigs.items()))


async def _ensure(kubeconfig: Path, clock: Clock, *, sharded: bool) -> None:
    async with connect(load(str(kubeconfig)), clock=clock, field_manager="shoal-up") as client:
        try:
            await _patiently(lambda: client.of(builtin("configmaps")).create({"metadata": _MARK}), clock)
            if sharded:
                for document in websites.sample(_SITES):
                    await _patiently(lambda document=document: _create(client, document), clock)  # type: ignore[misc]
            await _mesh(client, clock)
        except AlreadyExists:
            return
        except (ApiError, TransportError) as error:
            log.warning("a sample could not be applied", kubeconfig=str(kubeconfig), reason=str(error))


async def _mesh(client: Client, clock: Clock) -> None:
    services = client.of(builtin("services"))
    for definition in mesh.definitions():
        await _create(client, definition)
    found = (await services.list(Scope(label_selector=_APP))).items
    for service in found[:1]:
        about = service["metadata"]
        for document in mesh.objects(about["namespace"], about["name"]):
            await _patiently(lambda document=document: _create(client, document), clock)  # type: ignore[misc]


async def _create(client: Client, document: Obj) -> object:
    return await (await client.by_kind(document["kind"], document["apiVersion"])).create(document)


async def _patiently(work: Callable[[], Awaitable[object]], clock: Clock) -> None:
    """Definitions are served a moment after they were made, and rights come as the parts of the cluster start."""
    until_s = clock.monotonic() + _TRY_S
    while True:
        try:
            await work()
            return
        except AlreadyExists:
            raise
        except (ApiError, TransportError):
            if clock.monotonic() > until_s:
                raise
            await clock.sleep(_AGAIN_S)
