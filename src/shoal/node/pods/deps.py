"""Dependencies of the pod workers of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.client import ResourceClient
from shoal.kube.objects import Obj
from shoal.node.events import PodEvents
from shoal.node.images import NodeImages
from shoal.node.probes.handlers import Handlers
from shoal.node.probes.service import Prober
from shoal.node.references import References
from shoal.node.runtime.model import Runtime
from shoal.node.volumes.service import Volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorkerDeps:
    """Shared by all workers; made once per agent."""

    runtime: Runtime
    runtime_name: str
    pods: ResourceClient
    volumes: Volumes
    references: References
    images: NodeImages
    prober: Prober
    handlers: Handlers
    events: PodEvents
    clock: Clock
    host_addresses: tuple[str, ...]
    services: Callable[[], Iterable[Obj]]  # of the whole cluster
    dns_servers: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
