"""A gateway process: Envoy, its configuration, and the status it reports.

    informers ──▶ Inputs ──▶ Isolation ──▶ Translator ──▶ Machine ──▶ Envoy
                                 ▲                           │
                                 └──── what Envoy refuses ◀──┘ ──▶ status of routes and policies

The first snapshot is published when all inputs have been read, or when the cluster cannot be read but a saved state
exists (``shoal.sentinel.snapshot``). After that the gateway has no hard dependency: during any outage Envoy serves its
last configuration, and a restarted Envoy gets the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from shoal.base.clock import Clock
from shoal.base.files import own_private_dir
from shoal.base.http1.asgi import small_serving
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import OwnedTasks, beside
from shoal.client import Client, connect, load_inside
from shoal.crds.sentinel import under_test
from shoal.sentinel import snapshot
from shoal.sentinel.arrivals import is_early
from shoal.sentinel.bootstrap import SOCKET_PATH_MAX, Bootstrap
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.cut_off import CutOff
from shoal.sentinel.folders import gateway_folder
from shoal.sentinel.health import health_app, metrics_app
from shoal.sentinel.inputs import POLICY_TYPE, ROUTE_TYPE, InputKeeper
from shoal.sentinel.isolation import REFUSED, Isolation
from shoal.sentinel.issuers import IssuerFinder
from shoal.sentinel.metrics import GatewayMetrics
from shoal.sentinel.model import Inputs, ServiceKey, Settings
from shoal.sentinel.stats import StatsKeeper, define_stats_metrics
from shoal.sentinel.status import AcceptanceStatus, StatusKind, StatusWriter
from shoal.sentinel.supervisor import Supervisor, find_envoy
from shoal.sentinel.translate.translator import Translator
from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, SECRET, ResourceRef
from shoal.sentinel.xds.protocol import XdsLimits, XdsMachine
from shoal.sentinel.xds.resources import Packager
from shoal.sentinel.xds.server import DiscoveryServer
from shoal.sentinel.zone import find_zone

log = get_logger("sentinel")

LIMITS_SOCKET = "limits.sock"
_COALESCE_S = 0.05
_EARLY_S = 1.0  # how long a new version of a route waits for its instances
_REASON_MAX = 500
_LONGEST_NAME = len("/limits.sock")


async def run_sentinel(
    config: SentinelConfig,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    *,
    clock: Clock,
    random: Callable[[], float],
    metrics: Metrics,
    client: Client | None = None,
) -> None:
    """Serve until ``stop``; ``on_ready`` is called when Envoy first has everything. Without a ``client`` the cluster is
    the one that this process runs in, else that of the kubeconfig."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(_folder(config))
        if client is None:
            agent = f"sentinel/{config.name}"
            client = await stack.enter_async_context(connect(load_inside(), clock=clock, user_agent=agent))
        known = snapshot.read(config)
        zone = await find_zone(client, config, known=known.zone if known is not None else "", clock=clock)
        config = replace(config, zone=zone)
        gateway = Gateway(
            config, client, folder, clock=clock, random=random, metrics=metrics, on_ready=on_ready, saved=known
        )
        await stack.enter_async_context(gateway.running())
        await gateway.until(stop)


class Gateway:
    """The parts of one gateway; publishes changes of the cluster to Envoy."""

    def __init__(
        self,
        config: SentinelConfig,
        client: Client,
        folder: Path,
        *,
        clock: Clock,
        random: Callable[[], float],
        metrics: Metrics,
        on_ready: Callable[[], None] = lambda: None,
        saved: snapshot.SavedState | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._on_ready = on_ready
        self._folder = folder
        self._dirty = asyncio.Event()
        self._leaving = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._was_ready = False
        self._decided = False  # whether Envoy has answered a whole snapshot
        self.machine = XdsMachine(XdsLimits(drain_s=config.drain_s))
        self.discovery = DiscoveryServer(self.machine, clock=clock, on_change=self._on_change)
        settings = settings_of(config, folder)
        self.inputs = InputKeeper(client, config, settings, clock=clock, random=random, changed=self._dirty.set)
        self.restored = snapshot.RestoredState(saved, settings, clock=clock)
        self._keeper = snapshot.SnapshotWriter(config, clock=clock)
        self.issuers = IssuerFinder(self.inputs.set_issuers, clock=clock, random=random)
        self.supervisor = Supervisor(
            find_envoy(), folder, _bootstrap(config, folder), clock=clock, random=random,
            concurrency=config.concurrency, drain_s=config.drain_s, drained=lambda: self.stats.look_last(),
        )  # fmt: skip
        self.stats = StatsKeeper(
            config,
            self.supervisor.admin,
            client,
            clock=clock,
            starts=lambda: self.supervisor.starts,
            peers_map=self.inputs.peers_map,
            refused=self._refused_pieces,
            under_test=self._under_test,
        )
        self._cut_off = CutOff(
            self.supervisor.admin, clock=clock, silent_s=lambda: self.stats.silent_s, replicas=self._replicas
        )
        kinds = tuple(
            StatusKind(one.type, one.cache, prefix)
            for prefix, type_ in (("route", ROUTE_TYPE), ("policy", POLICY_TYPE))
            for one in self.inputs.informers
            if one.type == type_
        )
        self.status = StatusWriter(client, config.replica, kinds, lambda: self._acceptance, clock=clock)
        self._isolation = Isolation()
        self._translator = Translator()
        self._packager = Packager()
        self._known: Inputs | None = None  # inputs of the newest snapshot, as in the cluster
        self._published_inputs: Inputs | None = None  # the same without refused versions
        self._settled: Inputs | None = None  # the newest inputs that Envoy has answered completely
        self._reasons: Mapping[ResourceRef, str] = {}  # Envoy's reasons for refusals, as of its last complete answer
        self._acceptance: Mapping[str, AcceptanceStatus] = {}
        self._judged: tuple[object, set[str]] = (None, set())  # routes, and their deployments that a rollout judges
        counts = GatewayMetrics(metrics)
        self._published, self._failed = counts.published, counts.failed
        counts.starts.follow(lambda: float(self.supervisor.starts))
        counts.refusals.follow(lambda: float(len(self.machine.refusals) + len(self._isolation.reasons)))
        define_stats_metrics(metrics, self.stats, config.region)

    @property
    def ready(self) -> Mapping[str, bool]:
        return {
            "inputs": self.inputs.synced or self.restored.inputs is not None,
            "envoy": self.machine.complete and self.supervisor.pid is not None,
            "routes": self._decided,
            "staying": not self._leaving,
        }

    @property
    def notes(self) -> Mapping[str, str]:
        """Further notes for ``/readyz``."""
        if self.restored.inputs is None:
            return {}
        return {"inputs": f"saved {self.restored.age_s} s ago: the cluster cannot be read"}

    def _replicas(self) -> int:
        """How many this gateway has, as far as it knows."""
        key = ServiceKey(self._config.namespace, self._config.name)
        own = self._known.endpoints.get(key) if self._known is not None else None
        return len(own.endpoints) if own is not None else 0

    def leave(self) -> None:
        """Not ready any more; Envoy is drained and ends."""
        self._leaving = True
        self.supervisor.stop()

    async def until(self, stop: asyncio.Event) -> None:
        """Return when ``stop`` is set; raise when a part of the gateway has failed."""
        async with beside(stop.wait(), name="gateway/stop") as stopping:
            await asyncio.wait({stopping, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Entered when the ports for health and metrics answer; on leaving, Envoy has been drained."""
        config = self._config
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.discovery.serving(self._folder / "xds.sock"))
            await self._serve_policies(stack)
            fronts = {
                config.health_port: health_app(lambda: {"process": True}, lambda: self.ready, lambda: self.notes),
                config.metrics_port: metrics_app(self._metrics),
            }
            for port, app in fronts.items():
                await stack.enter_async_context(small_serving(app, host=config.host, port=port, clock=self._clock))
            tasks = OwnedTasks()
            envoy = tasks.start(self.supervisor.run(), name="envoy", awaited=True)
            loops: dict[str, Run] = {
                "gateway/inputs": self.inputs.run,
                "gateway/issuers": self.issuers.run,
                "gateway/publish": self._publish,
                "gateway/stats": self.stats.run,
                "gateway/cut-off": self._cut_off.run,
                "gateway/status": self.status.run,
                "gateway/keeper": self._keeper.run,
            }
            for name, loop in loops.items():
                tasks.start(supervise(name, loop, clock=self._clock), name=name)
            restore = self.restored.run(lambda: self.inputs.synced, config.restore_s, self._dirty.set)
            tasks.start(restore, name="gateway/restore")
            self._tasks = (envoy,)
            try:
                yield
            finally:
                self.leave()
                await asyncio.wait([envoy])
                await tasks.close()
                await self.stats.write_last()
                await self._keeper.write()

    async def _serve_policies(self, stack: AsyncExitStack) -> None:
        """Start the rate-limit service; ``stack`` stops it."""
        clock, metrics = self._clock, self._metrics
        if self._config.redis_url:
            from shoal.sentinel.policies.server import serving_limits, strict_redis

            redis = strict_redis(self._config.redis_url)
            stack.push_async_callback(redis.aclose)
            limits = serving_limits(str(self._folder / LIMITS_SOCKET), redis, clock=clock, metrics=metrics)
            await stack.enter_async_context(limits)

    # from the cluster to Envoy

    async def _publish(self) -> None:
        early_until = 0.0  # until when to wait for the instances of a route; 0: not waiting
        self._dirty.set()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self.inputs.synced:
                self.restored.end()
            known = self.restored.inputs or (self.inputs.current() if self.inputs.synced else None)
            if known is not None:
                now = self._clock.monotonic()
                if is_early(self._known, known) and now < (early_until := early_until or now + _EARLY_S):
                    self._dirty.set()
                else:
                    early_until = 0.0
                    self._publish_once(known)
                await self._clock.sleep(_COALESCE_S)  # changes in the meantime are published together

    def _publish_once(self, known: Inputs) -> None:
        if self._known is None or known.policies is not self._known.policies:
            self.issuers.look_for(known.policies.values())
        inputs = self._isolation.apply(known)
        try:
            messages = self._translator.resources(inputs)
            snapshot = self._packager.package(messages)
        except Exception as error:  # one route must not keep the others from Envoy
            self._failed.inc()
            log.error("translating the inputs failed", error=error)
            self._translator = Translator()
            if self._isolation.settled(f"it cannot be translated: {error}"):
                self._dirty.set()
            return
        self._known, self._published_inputs = known, inputs
        self._published.inc()
        self.discovery.publish(snapshot)

    def _on_change(self) -> None:
        """Envoy accepted or refused a part of the configuration."""
        if self.machine.idle and self._known is not self._settled:
            self._settle()
        if not self._was_ready and all(self.ready.values()):
            self._was_ready = True
            log.info("envoy is configured", routes=len(self._known.routes) if self._known is not None else 0)
            self._on_ready()

    def _settle(self) -> None:
        before, self._settled = self._settled, self._known
        assert self._known is not None and self._published_inputs is not None
        reasons = {one.ref: one.reason for one in self.machine.refusals}
        if before is not None and _alike(before, self._known) and reasons == self._reasons:
            self._keep(self._published_inputs)
            return  # only endpoints or keys changed
        self._reasons = reasons
        refused = [reason for ref, reason in reasons.items() if ref.type not in (CLUSTER, ENDPOINTS, SECRET)]
        if self._isolation.settled(refused[0] if refused else None):
            self._settled = None
            self._dirty.set()
            return
        self._decided = True
        self._keep(self._published_inputs)
        self._acceptance = self._statuses(self._known)
        self.status.look()

    def _refused_pieces(self) -> list[dict[str, str]]:
        """The routes, policies and other resources that Envoy refuses, with its reasons."""
        found = [(key.partition("/"), reason) for key, reason in sorted(self._isolation.reasons.items())]
        made = [{"type": kind, "name": name, "reason": reason} for (kind, _, name), reason in found]
        for one in sorted(self.machine.refusals, key=lambda each: each.ref):
            kind = one.ref.type.rpartition(".")[2]
            made.append({"type": kind, "name": one.ref.name, "reason": one.reason})
        return [{**one, "reason": one["reason"][:_REASON_MAX]} for one in made]

    def _under_test(self) -> set[str]:
        """The deployments that a rollout may be judged by."""
        routes = self._known.routes if self._known is not None else {}
        if routes is not self._judged[0]:
            specs = (msgspec.to_builtins(route.spec) for route in routes.values() if route.spec is not None)
            self._judged = (routes, under_test(specs))
        return self._judged[1]

    def _keep(self, inputs: Inputs) -> None:
        """Save the state that Envoy accepted for the next start, unless it was restored from there."""
        if self.restored.inputs is None:
            self._keeper.keep(inputs)

    def _statuses(self, inputs: Inputs) -> dict[str, AcceptanceStatus]:
        faults = dict(self._translator.faults)
        faults |= {key: REFUSED + reason for key, reason in self._isolation.reasons.items()}
        beside = {one.ref.name: one.reason for one in self.machine.refusals}
        found: dict[str, AcceptanceStatus] = {}
        for route in inputs.routes.values():
            fault = faults.get(f"route/{route.name}", "")
            if not fault and beside and route.spec is not None:
                named = (name for one in route.spec.backends for name in beside if name.endswith(f"/{one.deployment}"))
                fault = next((REFUSED + beside[name] for name in named), "")
            found[f"route/{route.name}"] = AcceptanceStatus(route.generation, fault)
        for policy in inputs.policies.values():
            found[f"policy/{policy.name}"] = AcceptanceStatus(
                policy.generation, faults.get(f"policy/{policy.name}", "")
            )
        return found


def _alike(one: Inputs, other: Inputs) -> bool:
    """Whether the inputs that a status depends on are the same."""
    same = one.routes is other.routes and one.policies is other.policies
    return same and one.tls is other.tls and one.issuers is other.issuers


def settings_of(config: SentinelConfig, folder: Path) -> Settings:
    """The gateway's settings that the translation uses."""
    return Settings(
        name=config.name,
        region=config.region,
        zone=config.zone,
        host=config.host,
        port=config.port,
        tls_port=config.tls_port,
        entry_port=config.entry_port,
        entry_secret=config.entry_secret,
        trusted_hops=config.trusted_hops,
        drain_s=config.drain_s,
        limits_socket=str(folder / LIMITS_SOCKET) if config.redis_url else "",
        log_percent=config.log_percent,
        traces_url=config.traces_url.rstrip("/"),
        traces_percent=config.traces_percent,
        replicas=ServiceKey(config.namespace, config.name),
    )


def _bootstrap(config: SentinelConfig, folder: Path) -> Bootstrap:
    return Bootstrap(
        node=config.replica,
        cluster=config.name,
        region=config.region,
        zone=config.zone,
        xds_socket=folder / "xds.sock",
        admin_socket=folder / "admin.sock",
        max_connections=config.max_connections,
        max_heap_bytes=config.max_heap_mib * 1024 * 1024,
        traces_url=config.traces_url,
    )


@contextmanager
def _folder(config: SentinelConfig) -> Iterator[Path]:
    """The folder for sockets; a temporary one is removed at the end."""
    if config.directory is not None:
        own_private_dir(config.directory)
        yield config.directory
        return
    with gateway_folder(SOCKET_PATH_MAX - _LONGEST_NAME) as made:
        yield made
