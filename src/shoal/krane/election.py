"""Leader election of a shard's agents: a Lease in the cluster, so that a standby takes over when this agent is gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.base.clock import Clock
from shoal.client import Client, builtin
from shoal.errors import AlreadyExists, Forbidden, NotFound
from shoal.reconcile.leader import Elector, LeaseLock, LockRecord

_NAME_LENGTH = 63


def lease_name(cluster: str, shard: str) -> str:
    return f"krane-{cluster}-{shard}"[:_NAME_LENGTH].rstrip("-.")


def make_elector(
    client: Client, *, namespace: str, cluster: str, shard: str, agent: str, clock: Clock, random: Callable[[], float]
) -> Elector:
    """``client`` must be one without a fence; give the elector's fence to the client that writes workloads."""
    lock = EnsuringLock(client, namespace, lease_name(cluster, shard))
    return Elector(lock, agent, clock=clock, random=random)


class EnsuringLock(LeaseLock):
    """Makes the namespace of the Lease when it is missing, also when somebody deletes it later. An agent that may not
    make namespaces has it from its manifests."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        super().__init__(client, namespace, name)
        self._namespaces = client.of(builtin("namespaces", ""))

    async def create(self, record: LockRecord) -> LockRecord:
        try:
            return await super().create(record)
        except NotFound:
            with suppress(AlreadyExists, Forbidden):
                await self._namespaces.create({"metadata": {"name": self.namespace}})
            return await super().create(record)
