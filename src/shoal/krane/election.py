"""Leader election of a shard's agents: a Lease in the cluster, so that a standby takes over when this agent is gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.base.clock import Clock
from shoal.client import Client, builtin
from shoal.errors import AlreadyExists, Forbidden
from shoal.reconcile.leader import Elector, LeaseLock

_NAME_LENGTH = 63


def lease_name(cluster: str, shard: str) -> str:
    return f"krane-{cluster}-{shard}"[:_NAME_LENGTH].rstrip("-.")


def make_elector(
    client: Client, *, namespace: str, cluster: str, shard: str, agent: str, clock: Clock, random: Callable[[], float]
) -> Elector:
    """``client`` must be one without a fence; give the elector's fence to the client that writes workloads."""
    lock = LeaseLock(client, namespace, lease_name(cluster, shard))
    return Elector(lock, agent, clock=clock, random=random)


async def ensure_namespace(client: Client, name: str) -> None:
    """The Lease needs its namespace. An agent that may not make namespaces has it from its manifests."""
    with suppress(AlreadyExists, Forbidden):
        await client.of(builtin("namespaces", "")).create({"metadata": {"name": name}})
