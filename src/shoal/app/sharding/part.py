"""The shard manager as a part of a cluster's process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from shoal.app.demo import websites
from shoal.app.embedded import EmbeddedPart
from shoal.app.settings import SHARD_MANAGER, read_settings
from shoal.app.sharding.manager import ShardService
from shoal.sharding.manager.config import ManagerConfig
from shoal.sharding.manifests import manifests
from shoal.sharding.rbac import MANAGER, NAMESPACE, TargetKind

USER = f"system:serviceaccount:{NAMESPACE}:{MANAGER}"

# The kinds it may shard by default: the sample. For others apply the output of `shoal shard manifests`.
_KINDS = (
    TargetKind(websites.GROUP, "websites"),
    TargetKind("", "configmaps", controlled=True),
    TargetKind("apps", "deployments", controlled=True),
)


_NETWORKS = ("127.0.0.0/8",)  # Services and pods of a cluster on this machine have loopback addresses


def embedded_config(identity: str, environ: Mapping[str, str]) -> ManagerConfig:
    """The settings of the manager in a cluster's process: SHOAL_SHARD_MANAGER_* variables apply to it too."""
    read: ManagerConfig = read_settings(SHARD_MANAGER, {}, environ=environ)
    return replace(read, name=read.name or identity, webhook_networks=read.webhook_networks or _NETWORKS)


class ShardPart(EmbeddedPart):
    name = "sharding"

    def manifests(self) -> Iterable[dict[str, Any]]:
        return [websites.definition(), *manifests(_KINDS)]

    async def act(self) -> None:
        deps = self.deps
        config = embedded_config(deps.identity, os.environ)
        client, lock_client = deps.connect(USER), deps.connect(USER)  # renewals do not queue behind the work
        service = ShardService(
            config, client, lock_client, clock=deps.clock, ids=deps.ids, random=deps.random, metrics=deps.metrics
        )
        self.readyz = service.readyz
        await service.run()
