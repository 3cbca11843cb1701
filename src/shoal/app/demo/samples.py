"""The samples that ``shoal up`` applies to the clusters: a sharded controller with some work, and Istio objects.

They are applied once; later changes and deletions by the user stay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from shoal.app.demo import mesh, websites
from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError, builtin, connect, load
from shoal.errors import AlreadyExists, ApiError, NotFound
from shoal.kube.objects import Obj

log = get_logger("up")


_MARK = {"name": "shoal-samples", "namespace": "default"}
_MARKED: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _MARK}
_TRY_S, _AGAIN_S = 30.0, 0.25
_APP = "shoal.dev/app"
_SITES = 12


async def ensure_samples(kubeconfigs: Mapping[str, Path], *, clock: Clock) -> None:
    """By region; the sharded controller runs in the first."""
    first = next(iter(kubeconfigs), "")
    await asyncio.gather(*(_ensure(path, clock, sharded=region == first) for region, path in kubeconfigs.items()))


async def _ensure(kubeconfig: Path, clock: Clock, *, sharded: bool) -> None:
    async with connect(load(str(kubeconfig)), clock=clock, field_manager="shoal-up") as client:
        marks = client.of(builtin("configmaps"))
        try:
            await marks.get(_MARK["name"], _MARK["namespace"])
            return
        except NotFound:
            pass
        try:
            for document in (
                *(websites.sample(_SITES, tracing.environment(os.environ)) if sharded else ()),
                *mesh.definitions(),
            ):
                await _patiently(partial(_create, client, document), clock)
            for document in await _mesh(client):
                await _patiently(partial(_create, client, document), clock)
            await _patiently(partial(_create, client, _MARKED), clock)
        except (ApiError, TransportError) as error:
            log.warning("applying a sample failed", kubeconfig=str(kubeconfig), reason=str(error))


async def _mesh(client: Client) -> list[Obj]:
    """About the demo's service, if it is there."""
    found = (await client.of(builtin("services")).list(Scope(label_selector=_APP))).items
    return [
        it
        for service in found[:1]
        for it in mesh.objects(service["metadata"]["namespace"], service["metadata"]["name"])
    ]


async def _create(client: Client, document: Obj) -> object:
    return await (await client.by_kind(document["kind"], document["apiVersion"])).create(document)


async def _patiently(work: Callable[[], Awaitable[object]], clock: Clock) -> None:
    """Retry: CustomResourceDefinitions are served shortly after creation, and RBAC objects appear during the start."""
    until_s = clock.monotonic() + _TRY_S
    while True:
        try:
            await work()
            return
        except AlreadyExists:
            return  # by an earlier start that did not get to its end
        except (ApiError, TransportError):
            if clock.monotonic() > until_s:
                raise
            await clock.sleep(_AGAIN_S)
