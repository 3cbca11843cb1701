"""An agent: as a process of its own beside any cluster, or as a part of a cluster's process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shoal import __version__
from shoal.app.fleet.reloading import Reloading
from shoal.app.health import health_app
from shoal.app.ports import any_free
from shoal.base import tracing
from shoal.base.clock import Clock, RealClock
from shoal.base.http1.asgi import small_serving
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.settings import setting
from shoal.base.tasks import wait_first
from shoal.client import Client, Reach, connect, load
from shoal.client.credentials import RereadCredentials
from shoal.client.reach import Outage
from shoal.krane.agent import Agent, AgentDeps
from shoal.krane.config import KraneConfig
from shoal.krane.election import make_elector
from shoal.krane.handlers import make_handlers
from shoal.krane.joining import JoinFileReader
from shoal.krane.labels import FIELD_MANAGER_KRANE
from shoal.krane.metrics import KraneMetrics
from shoal.krane.sentinels.images import GatewaySettings
from shoal.krane.stream import Connection, Times
from shoal.krane.upgrade import DeploymentUpgrade, NoUpgrade, Upgrade


@dataclass(frozen=True, slots=True)
class AgentProcessDeps:
    """Dependencies of an agent on its process."""

    clock: Clock
    ids: Ids
    random: Random
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class KraneSettings(KraneConfig):
    """The settings of ``shoal krane start``, by file, environment and flags."""

    dir: Path = setting(
        Path(), doc="state directory, for the agent's key and the last known state; default `krane` in $SHOAL_HOME"
    )
    log_level: str = setting("info", doc="debug, info, warning, error or off")


DYNAMIC = frozenset({"rpc_timeout_s", "idle_s", "return_s"})  # settings that SIGHUP changes


async def run_krane(
    config: KraneConfig,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    reloading: Reloading[KraneSettings] | None = None,
) -> None:
    """One agent as a process: acts on the cluster of the kubeconfig until ``stop``."""
    process = AgentProcessDeps(RealClock(), Ids(), Random(), Metrics())
    access = load(config.kubeconfig, context=config.context)
    port = config.port or any_free(config.host)
    reach = Reach(access.url, clock=process.clock)
    credentials = RereadCredentials(
        access, lambda: load(config.kubeconfig, context=config.context), clock=process.clock
    )

    def connected() -> AbstractAsyncContextManager[Client]:
        return connect(
            access, clock=process.clock, field_manager=FIELD_MANAGER_KRANE, user_agent=f"krane/{__version__}",
            credentials=credentials, reach=reach,
        )  # fmt: skip

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected())
        lease_client = await stack.enter_async_context(connected())  # renewals do not queue behind the work
        agent, connection = make_agent(config, client, lease_client, process, reach)
        stack.push_async_callback(connection.close)

        def reload(settings: KraneSettings) -> None:
            connection.use(_times(settings))
            credentials.reread()

        if reloading is not None:
            reloading.apply = reload
        app = health_app(agent.livez, agent.readyz, process.metrics, agent.status)
        await stack.enter_async_context(small_serving(app, host=config.host, port=port, clock=process.clock))
        on_ready()
        await wait_first(agent.run(), stop.wait())


def make_agent(
    config: KraneConfig, client: Client, lease_client: Client, process: AgentProcessDeps, outage: Outage
) -> tuple[Agent, Connection]:
    """``lease_client`` renews the lease; ``client`` does everything else, fenced by it."""
    join_file = JoinFileReader(config.join)
    join = join_file()
    name = config.agent or f"{socket.gethostname()}-{os.getpid()}-{process.ids.new_suffix()}"
    elector = None
    if config.elect:
        elector = make_elector(
            lease_client, namespace=config.lease_namespace, cluster=join.cluster, shard=join.shard, agent=name,
            clock=process.clock, random=process.random.random,
        )  # fmt: skip
        client = client.fenced(elector.fence)
    connection = Connection(
        join_file,
        clock=process.clock,
        correlation=name,
        times=_times(config),
    )
    parts = AgentDeps(
        config=config,
        join=join,
        plane=connection,
        handlers=make_handlers(
            client,
            clock=process.clock,
            random=process.random.random,
            gateways=gateway_settings(config, os.environ),
            namespaces=config.namespaces,
        ),
        elector=elector,
        outage=outage,
        upgrade=_upgrade(config, lease_client, process.clock),
        name=name,
        software=f"shoal/{__version__}",
        metrics=KraneMetrics(process.metrics),
        clock=process.clock,
        random=process.random.random,
    )
    return Agent(parts), connection


def gateway_settings(config: KraneConfig, environ: Mapping[str, str]) -> GatewaySettings:
    return GatewaySettings(
        image=config.gateway_image, pull_secret=config.gateway_pull_secret, env=gateway_env(config, environ)
    )


def _upgrade(config: KraneConfig, client: Client, clock: Clock) -> Upgrade:
    if not config.deployment:
        return NoUpgrade()
    namespace, _, name = config.deployment.partition("/")
    return DeploymentUpgrade(client, namespace, name, config.beside, config.own_image, clock=clock)


def gateway_env(config: KraneConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of gateways that make them send traces; none unless traces are asked for."""
    own = tracing.environment(environ).get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    url = config.gateway_traces_url or own
    if not url or not config.gateway_traces_percent:
        return {}
    percent = f"{config.gateway_traces_percent:g}"
    return {"SHOAL_SENTINEL_TRACES_URL": url, "SHOAL_SENTINEL_TRACES_PERCENT": percent}


def _times(config: KraneConfig) -> Times:
    return Times(call_s=config.rpc_timeout_s, idle_s=config.idle_s, return_s=config.return_s)
