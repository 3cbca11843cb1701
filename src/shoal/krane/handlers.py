"""Builds the applier and the observer of both streams from a client of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shoal.base.clock import Clock
from shoal.client import Client
from shoal.krane.deployments.apply import DeploymentApplier
from shoal.krane.deployments.observe import DeploymentObserver
from shoal.krane.deployments.running_jobs import CheckJobs
from shoal.krane.model import MakeHandlers, StreamHandlers
from shoal.krane.objects.memory import Memory
from shoal.krane.owner import Owner
from shoal.krane.sentinels.apply import SentinelApplier
from shoal.krane.sentinels.images import GatewaySettings
from shoal.krane.sentinels.install import Installation
from shoal.krane.sentinels.observe import SentinelObserver
from shoal.krane.unsealing import unseal
from shoal.sync.keys import StreamKind


def make_handlers(
    client: Client, *, clock: Clock, random: Callable[[], float], gateways: GatewaySettings | None = None,
    namespaces: Sequence[str] = (),
) -> MakeHandlers:  # fmt: skip
    """What an agent needs to know its fleet for. Nothing is read or written before the controllers run.
    ``gateways`` are the agent's own settings of gateways; ``namespaces`` the only ones for apps, none: all."""
    installation = Installation(client, clock=clock)

    def build(owner: Owner, private_key: bytes) -> dict[StreamKind, StreamHandlers]:
        # The Secrets of sentinels are watched, and so in memory anyway: digests, and the certificate of the gateways.
        deployments, sentinels = Memory(), Memory(keeps_secrets=True)
        jobs = CheckJobs(client, owner, clock=clock, namespaces=namespaces)
        open_secret = partial(unseal, private_key=private_key)
        return {
            StreamKind.DEPLOYMENTS: StreamHandlers(
                DeploymentApplier(client, owner, deployments, open_secret, jobs, namespaces=namespaces),
                DeploymentObserver(client, owner, deployments, jobs, clock=clock, random=random, namespaces=namespaces),
            ),
            StreamKind.SENTINELS: StreamHandlers(
                SentinelApplier(client, owner, sentinels, installation, open_secret, settings=gateways),
                SentinelObserver(client, owner, sentinels, installation, clock=clock, random=random),
            ),
        }

    return build
