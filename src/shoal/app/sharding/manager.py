"""The shard manager: as a separate process for any cluster, or embedded in a cluster's process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any

from shoal import __version__
from shoal.app.certificates import follow_certificate
from shoal.app.health import health_app
from shoal.app.ports import any_free
from shoal.base import tracing
from shoal.base.asgi import Tls, serving
from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.settings import setting
from shoal.base.supervision import SupervisedLoops, supervise
from shoal.base.tasks import beside, wait_first
from shoal.client import Client, LostLease, builtin, connect, load
from shoal.crds.shard import definitions
from shoal.reconcile import Elector, EventRecorder, LeaseLock, Manager, RecorderConfig
from shoal.sharding.manager import wiring
from shoal.sharding.manager.admission import Assigner, webhook_app
from shoal.sharding.manager.config import ManagerConfig
from shoal.sharding.manager.pods import BuiltinWorker
from shoal.sharding.rbac import MANAGER
from shoal.sharding.reflector_config import REFLECTOR_CONFIG

log = get_logger("sharding")

# a ShardConfig has an event for each of its shards and each decision; none of them may be missing
_EVENTS = RecorderConfig(burst=500, refill_s=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardManagerSettings(ManagerConfig):
    """The settings of ``shoal shard manager``: those of the manager and of its process."""

    log_level: str = setting("info", doc="debug, info, warning, error or off")


async def run_manager(config: ManagerConfig, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
    """One manager as a process: acts on the cluster of the kubeconfig until ``stop``."""
    clock = RealClock()
    access = load(config.kubeconfig, context=config.context)
    port = config.port or any_free(config.host)
    agent = f"shard-manager/{__version__}"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(access, clock=clock, field_manager=MANAGER, user_agent=agent))
        lock_client = await stack.enter_async_context(  # renewals do not queue behind the work
            connect(access, clock=clock, field_manager=MANAGER, user_agent=agent)
        )
        if config.install:
            await install(client)
        service = ShardService(config, client, lock_client, clock=clock, ids=Ids(), random=Random(), metrics=Metrics())
        app = health_app(service.livez, service.readyz, service.metrics, service.status)
        await stack.enter_async_context(serving(app, host=config.host, port=port, clock=clock))
        if config.webhook_port and config.webhook_certificate is not None and config.webhook_key is not None:
            tls = Tls(config.webhook_certificate, config.webhook_key)
            loops = SupervisedLoops(clock)
            loops.start("certificates", partial(follow_certificate, tls, clock), detail="webhook")
            stack.push_async_callback(loops.stop)
            hook = webhook_app(service.assigner)
            await stack.enter_async_context(
                serving(hook, host=config.host, port=config.webhook_port, clock=clock, tls=tls)
            )
        on_ready()
        async with beside(service.run(), name="sharding/manager") as running:
            try:
                await wait_first(asyncio.wait({running}), stop.wait())
            finally:
                service.stop()
                await running


async def install(client: Client) -> None:
    """Apply the definitions of the kinds."""
    resource = client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io"))
    for definition in definitions():
        await resource.apply(definition, force=True)


class ShardService:
    """A manager that rejoins the leader election after losing it; ``run`` it until ``stop``."""

    name = "sharding"

    def __init__(
        self,
        config: ManagerConfig,
        client: Client,
        lock_client: Client,
        *,
        clock: Clock,
        ids: Ids,
        random: Random,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._client = client
        self._lock_client = lock_client
        self._clock = clock
        self._ids = ids
        self._random = random
        self.metrics = metrics
        self.identity = config.name or f"{socket.gethostname()}-{os.getpid()}-{ids.new_suffix()}"
        self._manager: Manager | None = None
        self._components: wiring.ManagerComponents | None = None
        self._stopping = asyncio.Event()
        self._failure = ""

    async def run(self) -> None:
        """Until ``stop``."""
        await supervise("sharding/manager", self._terms, clock=self._clock, until=self._stopping)

    def stop(self) -> None:
        self._stopping.set()
        if self._manager is not None:
            self._manager.stop()

    async def _terms(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._term()
                self._failure = ""
            except LostLease:
                log.warning("lost the lease; trying to acquire it again")
            except Exception as error:
                self._failure = str(error) or type(error).__name__
                raise

    async def _term(self) -> None:
        config, random = self._config, self._random.random
        elector = None
        if config.elect:
            elector = Elector(
                LeaseLock(self._lock_client, config.namespace, MANAGER), self.identity, clock=self._clock,
                random=random, config=config.election(),
            )  # fmt: skip
        self._manager = manager = Manager(
            self._client, clock=self._clock, random=random, elector=elector, reflector=REFLECTOR_CONFIG
        )
        events = EventRecorder(
            self._client, MANAGER, self.identity, clock=self._clock, new_suffix=self._ids.new_suffix, config=_EVENTS
        )
        numbers = count(1)
        deps = wiring.ManagerDeps(
            clock=self._clock, random=random, new_id=lambda: str(next(numbers)), new_suffix=self._ids.new_suffix,
            metrics=self.metrics,
            builtin=BuiltinWorker(
                image=config.worker_image, webhook_networks=config.webhook_networks, env=tracing.environment(os.environ)
            ),
        )  # fmt: skip
        self._components = wiring.add(manager, events, deps, before=self._components)
        manager.add(events)
        if not self._stopping.is_set():
            await manager.run()

    def assigner(self) -> Assigner | None:
        """Assigns slots at admission; None until the caches are synced."""
        ready = self._manager is not None and self._manager.health().ready
        return self._components.assigner if ready and self._components is not None else None

    # health

    def livez(self) -> tuple[bool, dict[str, str]]:
        return True, {"process": "ok"}

    def readyz(self) -> tuple[bool, dict[str, str]]:
        """A standby with warm caches is ready."""
        manager = self._manager
        if manager is None or self._failure:
            return False, {"manager": self._failure or "not started"}
        health = manager.health()
        if not health.ready:
            return False, {"caches": f"not synced: {', '.join(health.unsynced) or 'starting'}"}
        return True, {"caches": "ok", "election": "leading" if health.leading else "standing by"}

    def status(self) -> dict[str, Any]:
        """Everything about this manager, for people."""
        found = self._components.manager.memory if self._components is not None else {}
        health = self._manager.health() if self._manager is not None else None
        return {
            "name": self.identity,
            "leading": health is not None and health.leading,
            "failing": dict(health.failing) if health is not None else {},
            "configs": {
                str(key): {
                    "phases": memory.figures.phases,
                    "healthy": memory.figures.healthy,
                    "unownedSlots": memory.figures.unowned,
                    "movingSlots": memory.figures.moving,
                    "objects": memory.objects.total,
                }
                for key, memory in found.items()
                if memory.figures is not None
            },
        }
