"""Async Kubernetes client for any cluster: over the network or in process, the same calls and the same errors.

async with connect(load(), clock=clock) as client:
    pods = client.of(builtin("pods"))
    for pod in (await pods.list(Scope(namespace="default"))).items: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.base.clock import Clock
from shoal.client.client import Client, RetryAfter
from shoal.client.config import AccessConfig, explicit, in_cluster, load, load_inside
from shoal.client.credentials import Credentials
from shoal.client.errors import Disconnected, LostLease, TransportError, Unreachable
from shoal.client.fence import Fence
from shoal.client.reach import Reach
from shoal.client.resource import ResourceType, builtin
from shoal.client.verbs import EVERYTHING, Listed, MetadataClient, Page, PatchType, Propagation, ResourceClient, Scope
from shoal.client.watch import Watch, WatchEvent
from shoal.kube.objects import Obj

__all__ = [
    "EVERYTHING", "AccessConfig", "Client", "Disconnected", "Fence", "Listed", "LostLease", "MetadataClient", "Obj",
    "Page", "PatchType", "Propagation", "Reach", "ResourceClient", "ResourceType", "RetryAfter", "Scope",
    "TransportError", "Unreachable", "Watch", "WatchEvent", "builtin", "connect", "explicit", "in_cluster", "load",
    "load_inside",
]  # fmt: skip


@asynccontextmanager
async def connect(
    config: AccessConfig,
    *,
    clock: Clock,
    field_manager: str = "shoal",
    user_agent: str = "shoal",
    credentials: Credentials | None = None,
    reach: Reach | None = None,
) -> AsyncIterator[Client]:
    """A client over the network, closed at the end. ``credentials`` are those of ``config`` if not given; ``reach``
    learns whether the server answers."""
    from shoal.client.http import HttpTransport

    transport = HttpTransport(config, clock=clock, user_agent=user_agent, credentials=credentials, reach=reach)
    try:
        yield Client(transport, clock=clock, field_manager=field_manager)
    finally:
        await transport.close()
