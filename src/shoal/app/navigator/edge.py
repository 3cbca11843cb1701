"""An edge: as a process of its own beside any cluster, or as a part of a cluster's process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

from shoal import __version__
from shoal.app.fleet.reloading import Reloading
from shoal.app.health import health_app
from shoal.app.ports import any_free
from shoal.base.clock import Clock, RealClock
from shoal.base.http1.asgi import small_serving
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.settings import setting
from shoal.base.tasks import wait_first
from shoal.client import AccessConfig, Client, Reach, connect, load
from shoal.client.client import error_of
from shoal.client.credentials import RereadCredentials
from shoal.client.http import HttpTransport
from shoal.client.reach import Outage
from shoal.navigator.edge.config import EdgeConfig, EdgeJoinFile, RequestConfig, read_join_file
from shoal.navigator.edge.edge import Edge, EdgeDeps
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.requests.connections import Connections, Fetch
from shoal.navigator.edge.requests.forwarding import PortForward
from shoal.navigator.edge.requests.proxies import PodPorts

log = get_logger("navigator.edge")

_NAME_CHARACTERS = 40  # part of every message
_AGENT = f"shoal-navigator-edge/{__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings(EdgeConfig):
    """The settings of ``shoal navigator edge``: those of the edge and of its process."""

    log_level: str = setting("info", doc="debug, info, warning, error or off")


@dataclass(frozen=True, slots=True)
class EdgeProcessDeps:
    """Dependencies of an edge on its process."""

    clock: Clock
    ids: Ids
    random: Random
    metrics: EdgeMetrics


async def run_edge(
    config: EdgeConfig, stop: asyncio.Event, on_ready: Callable[[], None], reloading: Reloading[EdgeSettings]
) -> None:
    """One edge as a process: reports the cluster of the kubeconfig until ``stop``. It follows ``reloading``."""
    metrics = Metrics()
    process = EdgeProcessDeps(RealClock(), Ids(), Random(), EdgeMetrics(metrics))
    access = load(config.kubeconfig, context=config.context)
    reach = Reach(access.url, clock=process.clock)
    credentials = RereadCredentials(
        access, lambda: load(config.kubeconfig, context=config.context), clock=process.clock
    )
    config = replace(config, port=config.port or any_free(config.host))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            connect(access, clock=process.clock, user_agent=_AGENT, credentials=credentials, reach=reach)
        )
        ports = PortForward(access, clock=process.clock, random_bytes=process.random.randbytes, credentials=credentials)
        edge = await stack.enter_async_context(opened_edge(config, client, ports, process, reach))

        def reload(settings: EdgeSettings) -> None:
            edge.configure(settings)
            credentials.reread()

        reloading.apply = reload
        app = health_app(edge.livez, edge.readyz, metrics, edge.status)
        await stack.enter_async_context(small_serving(app, host=config.host, port=config.port, clock=process.clock))
        on_ready()
        await wait_first(edge.run(), stop.wait())


@asynccontextmanager
async def opened_edge(
    config: EdgeConfig, client: Client, ports: PodPorts, process: EdgeProcessDeps, outage: Outage
) -> AsyncIterator[Edge]:
    """An edge that is ready to ``run``; its connections are closed on exit."""
    join = read_join_file(config.join)
    name = config.edge or f"{socket.gethostname()[:20]}-{os.getpid()}-{process.ids.new_suffix()}"
    async with AsyncExitStack() as stack:
        prometheus = None
        if config.requests.prometheus:
            transport = HttpTransport(
                AccessConfig(url=config.requests.prometheus, token=config.requests.prometheus_token),
                clock=process.clock,
                user_agent=_AGENT,
            )
            stack.push_async_callback(transport.close)
            prometheus = Connections(_fetching(transport), cluster=_cluster_label(config.requests))
        yield Edge(
            EdgeDeps(
                config=config,
                join=lambda: _reread(config, join),
                client=client,
                ports=ports,
                prometheus=prometheus,
                name=name[:_NAME_CHARACTERS],
                software=f"shoal/{__version__}",
                metrics=process.metrics,
                outage=outage,
                clock=process.clock,
                random=process.random.random,
            )
        )


def _fetching(transport: HttpTransport) -> Fetch:
    async def fetch(target: str) -> bytes:
        reply = await transport.request("GET", target, headers={"accept": "application/json"})
        if reply.status >= 500:
            raise error_of(reply.status, reply.headers, reply.body)
        return reply.body

    return fetch


def _cluster_label(config: RequestConfig) -> tuple[str, str] | None:
    label, equals, value = config.prometheus_cluster_label.partition("=")
    return (label, value) if equals else None


def _reread(config: EdgeConfig, last: EdgeJoinFile) -> EdgeJoinFile:
    """The current join file, so that its token can be replaced; ``last`` if it cannot be read."""
    try:
        return read_join_file(config.join)
    except Exception as error:
        log.warning("the join file cannot be read; keeping its last contents", path=str(config.join), reason=str(error))
        return last
