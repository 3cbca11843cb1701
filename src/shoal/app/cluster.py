"""One cluster, or a part of one, as a process: builds the object graph, runs it, stops it in order."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from shoal.apiserver.authn.service import Authority
from shoal.apiserver.context import ServerConfig
from shoal.apiserver.front_proxy import CLIENT_NAME, FrontProxyConfig
from shoal.apiserver.http import HttpLimits
from shoal.apiserver.node_access import NodesConfig
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.app.certificates import CertificateKeeper
from shoal.app.config import LOOPBACK, ClusterConfig
from shoal.app.connect import Connect, in_process, over_network
from shoal.app.credentials import ensure_admin
from shoal.app.health import health_app
from shoal.app.pki import Pki, changing, server_context, service_account_keys
from shoal.app.processes import hand_over_often, say_ready, say_runtime
from shoal.app.reload import as_credentials, follow_credentials
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.front_limits import connections_within_files
from shoal.base.http1.asgi import small_serving
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.supervision import SupervisedLoops
from shoal.base.tasks import wait_first
from shoal.client import load
from shoal.errors import ConfigError
from shoal.kube.kinds.bootstrap_rbac import KUBELET_CLIENT, KUBELET_CLIENT_GROUP
from shoal.store import open_store

if TYPE_CHECKING:
    from shoal.app.components import Component, ComponentDeps, Part
    from shoal.node.proxy.model import SharedNetwork
    from shoal.node.runtime.process.addresses import Network

_OWN_FILES = 320  # store, logs, connections that are refused


_RUNTIMES = {
    "process": "pods share this machine's network and processes (--runtime sandbox isolates them)",
    "docker": "pods are containers of the engine",
    "simulated": "nothing runs, pods only say so",
}


async def run_cluster(config: ClusterConfig) -> None:
    """Run until SIGTERM or SIGINT; prints ``ready URL`` once clients are served, or the components have begun, and the
    nodes of this process are registered."""
    hand_over_often()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config.runs_nodes:
        await _say_runtime(config)
    await run_until(stop, config, lambda: say_ready(config.server or config.url))


async def _say_runtime(config: ClusterConfig) -> None:
    """The first line on standard error: how pods run here, and why."""
    text = _RUNTIMES.get(config.runtime, "")
    if config.runtime == "sandbox":
        from shoal.app.sandboxes import sandbox_line

        text = await sandbox_line(RealClock())
    elif config.runtime == "docker":
        from shoal.app.container_network import container_reach

        await container_reach(config, RealClock())  # without an engine the error is the first line
    say_runtime(f"runtime {config.runtime}: {text}")


async def run_until(stop: asyncio.Event, config: ClusterConfig, on_ready: Callable[[], None]) -> None:
    """Run a cluster until ``stop``; a process may run several. ``config`` comes from ``opened_config``."""
    clock, ids, metrics = RealClock(), Ids(), Metrics()
    shared: SharedNetwork | None = None
    if config.runs_nodes and config.runtime == "docker":
        from shoal.app.container_network import share_network

        shared = await share_network(config, clock)
    async with AsyncExitStack() as stack:
        server: ApiServer | None = None
        if "apiserver" in config.components:
            server = await stack.enter_async_context(serving(config, clock, ids, metrics))
            connect = in_process(server.handler, clock)
        else:
            connect = await _connect(config, clock, stack, stop)
        if stop.is_set():
            return
        if not config.runs_nodes:
            on_ready()
        if config.components == ("apiserver",):
            await stop.wait()
            return
        # imported late: clients need not wait for it
        from shoal.app import components

        deps = _deps(config, connect, clock, ids, metrics)
        makers = {"scheduler": components.scheduler, "controllers": components.controllers}
        parts: list[components.Part] = [make(deps) for name, make in makers.items() if name in config.components]
        if config.runs_nodes:
            parts += _nodes(config, deps, stack, shared)
        if config.join is not None:
            from shoal.app.fleet.part import AgentPart

            parts.append(AgentPart(deps, config.join, config.dir))
        if config.edge is not None:
            from shoal.app.navigator.part import EdgePart

            parts.append(EdgePart(deps, config.edge, config.dir.name))
        if config.sharding:
            from shoal.app.sharding.part import ShardPart

            parts.append(ShardPart(deps))

        if server is not None:
            for part in parts:
                server.handler.pages.health.add_part(part.name, part.problem)
        elif config.health_port:
            app = health_app(lambda: (True, {"process": "ok"}), partial(readiness, parts), metrics)
            await stack.enter_async_context(
                small_serving(app, host=config.health_host, port=config.health_port, clock=clock)
            )

        async def until_stopped() -> None:
            if config.runs_nodes:
                await wait_first(components.until_registered(deps, config), stop.wait())
                if not stop.is_set():
                    on_ready()
            await stop.wait()

        await components.run_all(parts, until_stopped())


def readiness(parts: Sequence[Part]) -> tuple[bool, dict[str, str]]:
    """Whether all parts of a process are ready, and what each says."""
    found: dict[str, str] = {}
    for part in parts:
        said = part.problem() or "ok"
        found[part.name] = said if found.get(part.name, "ok") == "ok" else f"{found[part.name]}; {said}"
    return all(text == "ok" for text in found.values()), found


def _deps(config: ClusterConfig, connect: Connect, clock: Clock, ids: Ids, metrics: Metrics) -> ComponentDeps:
    """What all components of this process share."""
    from shoal.app.components import ComponentDeps
    from shoal.reconcile import ResyncConfig, ResyncMetrics

    return ComponentDeps(
        connect=connect,
        clock=clock,
        ids=ids,
        random=Random(),
        metrics=metrics,
        identity=identity_of(config.dir, ids),
        volumes=(config.dir / "volumes").absolute(),
        resync=ResyncConfig(metrics=ResyncMetrics(metrics), period_s=config.resync_s) if config.resync_s else None,
        election=config.election,
        lock=config.lock,
        lifecycle=config.node_lifecycle,
        profiles=config.profiles,
    )


def _nodes(
    config: ClusterConfig, deps: ComponentDeps, stack: AsyncExitStack, shared_network: SharedNetwork | None
) -> list[Component]:
    """The nodes of this process; pods that run on this machine are ended with the cluster."""
    own = "apiserver" in config.components
    if config.runtime == "simulated":
        from shoal.app.simulated import SimulatedNodeKeys, simulated_nodes

        keys = None
        if own:
            keeper = CertificateKeeper(config.pki_dir, clock=deps.clock, metrics=deps.metrics)
            _start_keeping(keeper, deps.clock, stack)
            keys = SimulatedNodeKeys(config.dir, keeper)
        return [simulated_nodes(deps, config.nodes, keys, config.node)]
    from shoal.app.container_network import api_listener
    from shoal.app.nodes import NodeDeps, end_pods, local_nodes
    from shoal.app.runtimes import runtimes_of

    network = _network(config)
    assert network is not None
    keeper = CertificateKeeper(config.pki_dir, clock=deps.clock, metrics=deps.metrics)
    _start_keeping(keeper, deps.clock, stack)
    fixed = api_listener(config, network) if shared_network else ()
    inside = None
    if config.runtime == "sandbox":
        from shoal.app.sandbox_network import inside_network, outside_api

        inside, fixed = inside_network(config), outside_api(config)
    shared = NodeDeps(
        config.dir, network, keeper, runtimes_of(config, network), config.node, shared_network, fixed, inside
    )
    if own:
        stack.push_async_callback(end_pods, deps, shared, config.nodes)
    return local_nodes(deps, shared, config.nodes)


def _start_keeping(keeper: CertificateKeeper, clock: Clock, stack: AsyncExitStack) -> None:
    loops = SupervisedLoops(clock)
    loops.start("certificates", keeper.run, detail="nodes")
    stack.push_async_callback(loops.stop)


async def _connect(config: ClusterConfig, clock: Clock, stack: AsyncExitStack, stop: asyncio.Event) -> Connect:
    """How components reach the kubeconfig's API server."""
    from shoal.app.components import users_of

    access = load(config.kubeconfig)
    if config.server:
        access = replace(access, url=config.server)
    users = users_of(config.components, simulated=config.runtime == "simulated")
    return await over_network(access, users, clock=clock, stack=stack, stop=stop)


def _network(config: ClusterConfig) -> Network | None:
    """The addresses of a cluster whose nodes are this machine."""
    if not config.runs_nodes or config.runtime == "simulated":
        return None
    from shoal.node.runtime.process.addresses import claim_network

    network = claim_network(config.dir, config.node.network)
    if network.reaches_containers and config.runtime != "docker" and not config.node.network:
        raise ConfigError(
            f"runtime is {config.runtime!r}: the cluster in {config.dir} has the network {network.cidr}, for "
            "containers; use --runtime docker, or another --dir"
        )
    return network


def _service_cidr(config: ClusterConfig, network: Network | None) -> str:
    """Where pods have no network of their own, addresses of Services are those of the machine."""
    return config.service_cidr if network is None or config.runtime == "sandbox" else network.service_cidr


def _api_address(config: ClusterConfig, network: Network | None) -> str:
    """Where pods reach the API server."""
    if config.runs_nodes and config.runtime == "sandbox":
        from shoal.node.runtime.sandbox.network import API_ADDRESS

        return API_ADDRESS
    return LOOPBACK if network is None else network.api_address


def identity_of(folder: Path, ids: Ids) -> str:
    """The identity of this process in leader elections. The directory's lock allows one process per directory, so after
    a crash it can resume its own lease at once instead of waiting until it expires. The identity covers the path of
    the file as well as its content: a copy of the directory is another candidate."""
    path = folder / "identity"
    if not path.exists():
        write_private(path, f"{ids.new_uid()}\n".encode())
    here = hashlib.sha256(f"{path.resolve()}:{path.stat().st_ino}".encode()).hexdigest()[:8]
    return f"{socket.gethostname()}_{path.read_text().strip()}_{here}"


@asynccontextmanager
async def serving(config: ClusterConfig, clock: Clock, ids: Ids, metrics: Metrics) -> AsyncIterator[ApiServer]:
    """The API server of a directory, listening."""
    keeper = CertificateKeeper(config.pki_dir, clock=clock, metrics=metrics)
    network = _network(config)
    # pods reach it as the Service `kubernetes`, by the first address of whichever range Services have here
    service_cidr = _service_cidr(config, network)
    advertised = _api_address(config, network)
    own = (str(ipaddress.ip_network(service_cidr)[1]), advertised)
    hosts = (*config.certificate_hosts, *own)
    tls = keeper.keep_context(
        "server",
        lambda pki: pki.ensure_server(hosts, config.server_name),
        partial(server_context, http2=config.offers_http2),
    )
    kubelet_client = keeper.keep(
        "apiserver-kubelet-client",
        lambda pki: pki.ensure_client("apiserver-kubelet-client", KUBELET_CLIENT, (KUBELET_CLIENT_GROUP,)),
        lambda: server.renew_certificates(),
    )
    proxy_client = keeper.keep(
        "front-proxy-client", lambda pki: pki.ensure_front_proxy(CLIENT_NAME)[1], lambda: server.renew_certificates()
    )
    with changing(config.pki_dir):  # after the keeper, whose changes this must see
        pki = Pki(config.pki_dir, now=clock.now())
        pki.ensure_service_account_key()
        authority = pki.ensure_ca()
        proxy_ca = pki.ensure_front_proxy(CLIENT_NAME)[0]
    signing_keys = service_account_keys(config.pki_dir)
    tokens = ensure_admin(config, pki.ca_cert)
    # where containers reach Services, an endpoint on the loopback interface would let them into this machine
    registry = Registry(loopback_endpoints=config.runs_nodes and advertised == LOOPBACK)
    store = open_store(config.store.url, attrs_of=registry.attrs_of, clock=clock.monotonic, events=config.events)
    await store.start()
    server = ApiServer(
        store,
        registry,
        clock=clock,
        ids=ids,
        config=ServerConfig(
            service_cidr=service_cidr,
            nodes=NodesConfig(
                ca=pki.ca_cert,
                certificate=kubelet_client.cert,
                key=kubelet_client.key,
                loopback=() if network is None else (network.cidr,),
            ),
            front_proxy=FrontProxyConfig(ca=proxy_ca.cert, certificate=proxy_client.cert, key=proxy_client.key),
            advertise_address=advertised,
            advertise_port=config.port,
            ca_certificate=pki.ca_cert.read_text(),
            anonymous=config.anonymous,
            event_ttl_s=config.event_ttl_s,
            empties_namespaces="controllers" not in config.components,
            flow=config.flow,
            audit=config.audit,
        ),
        tokens=as_credentials(tokens),
        signing_key=signing_keys.signing,
        verification_keys=signing_keys.older,
        authority=Authority(authority.cert.read_bytes(), authority.key.read_bytes()),
        metrics=metrics,
    )
    keeper.on_authority(partial(_trust, config, server))
    loops = SupervisedLoops(clock)
    loops.start("credentials", lambda: follow_credentials(config, server.authentication, clock))
    loops.start("certificates", keeper.run)
    try:
        await server.start()
        limits = HttpLimits(connections=connections_within_files(HttpLimits().connections, _OWN_FILES))
        await server.listen(config.host, config.port, tls=tls, limits=limits, listening=config.listening)
        yield server
    finally:
        await loops.stop()
        await server.stop()
        await store.stop()


def _trust(config: ClusterConfig, server: ApiServer, pki: Pki) -> None:
    """The authorities have changed: tell pods, aggregated servers and the administrator's kubeconfig."""
    pair = pki.ensure_ca()
    server.replace_authority(Authority(pair.cert.read_bytes(), pair.key.read_bytes()), pki.ca_cert.read_text())
    ensure_admin(config, pki.ca_cert)
