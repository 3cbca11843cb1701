"""A worker as a process: a controller from a module, or the built-in one, on the shard that its flags or environment
name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random

from shoal import __version__
from shoal.app.health import health_app
from shoal.base.clock import RealClock
from shoal.base.http1.asgi import small_serving
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.settings import setting
from shoal.client import connect, load_inside
from shoal.errors import ConfigError
from shoal.sharding.worker import ShardedController, Worker, WorkerConfig
from shoal.sharding.worker.builtin import BuiltinController
from shoal.sharding.worker.webhook import WebhookCaller, read_networks


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorkerSettings(WorkerConfig):
    """The settings of ``shoal shard worker``: those of the worker and of its process."""

    kubeconfig: Path | None = setting(None, doc="of the cluster; default: the pod's service account, else kubectl's")
    host: str = setting("127.0.0.1", doc="address for health and metrics")
    port: int = setting(0, doc="of health and metrics; 0: none")
    webhook_networks: tuple[str, ...] = setting(
        (), doc="networks of loopback and link-local addresses that the built-in worker's webhook may have, as CIDR"
    )
    log_level: str = setting("info", doc="debug, info, warning, error or off")


def builtin_controller(config: WorkerConfig, webhook_networks: Sequence[str]) -> ShardedController:
    """The controller of ShardedResources."""
    clock = RealClock()
    caller = WebhookCaller(clock=clock, networks=read_networks(webhook_networks))
    return BuiltinController(config.shard, caller, clock=clock).app


def controller_of(place: str) -> ShardedController:
    """``package.module:name``."""
    module, colon, name = place.partition(":")
    if not colon:
        raise ConfigError(f"controller is {place!r}: use MODULE:NAME, for example websites:app")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"controller is {place!r}: {module} cannot be imported: {error}") from error
    except AttributeError:
        raise ConfigError(f"controller is {place!r}: {module} has no {name}") from None
    if not isinstance(found, ShardedController):
        raise ConfigError(f"controller is {place!r}: it is a {type(found).__name__}, not a ShardedController")
    if not found.handlers:
        raise ConfigError(f"controller is {place!r}: it has no handlers; add one with @{name}.reconcile(GROUP, KIND)")
    return found


async def run_worker(
    config: WorkerConfig,
    controller: ShardedController,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    *,
    kubeconfig: Path | None = None,
    health: tuple[str, int] | None = None,
) -> None:
    """Work until ``stop``; ``health`` is where /livez, /readyz and /metrics are answered."""
    clock, random, metrics = RealClock(), Random(), Metrics()
    access = load_inside(kubeconfig)
    async with connect(
        access, clock=clock, field_manager=config.config, user_agent=f"shard-worker/{__version__}"
    ) as client:
        worker = Worker(
            client, controller, config, clock=clock, random=random.random, new_id=Ids().new_suffix, metrics=metrics
        )

        def alive() -> tuple[bool, dict[str, str]]:
            return True, {"slots": str(len(worker.owned))}

        def ready() -> tuple[bool, dict[str, str]]:
            said = worker.report()
            good = worker.ready and said.healthy
            return good, {"lease": "held" if worker.ready else "not held", "controller": said.message or "healthy"}

        async def working() -> None:
            on_ready()
            await worker.run(stop)

        if health is None:
            await working()
            return
        host, port = health
        async with small_serving(health_app(alive, ready, metrics), host=host, port=port, clock=clock):
            await working()
