"""The shard manager as a part of a cluster's process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.app.demo import websites
from shoal.app.embedded import EmbeddedPart
from shoal.app.sharding.manager import ShardService
from shoal.base.metrics import Metrics
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


class ShardPart(EmbeddedPart):
    name = "sharding"

    def manifests(self) -> Iterable[dict[str, Any]]:
        return [websites.definition(), *manifests(_KINDS)]

    async def act(self) -> None:
        deps = self.deps
        # one manager per cluster process: no other candidate
        config = ManagerConfig(name=deps.identity, elect=False)
        client = deps.connect(USER)
        service = ShardService(
            config, client, client, clock=deps.clock, ids=deps.ids, random=deps.random, metrics=Metrics()
        )
        await service.run()
