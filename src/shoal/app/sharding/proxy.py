"""The proxy as a process: beside a controller that knows nothing of shards, with the pod's own credentials.

It holds the shard's Lease in the controller's stead, and writes a kubeconfig that leads to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import yaml

from shoal import __version__
from shoal.app.certificates import CertificateKeeper
from shoal.app.health import health_app
from shoal.base.asgi import serving
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.http1.asgi import small_serving
from shoal.base.ids import Ids, new_token
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.base.settings import setting
from shoal.base.supervision import supervise
from shoal.base.tasks import wait_first
from shoal.client import Client, TransportError, connect, load_inside
from shoal.errors import ApiError
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.proxy.load import ProxyLoad, QueueSource
from shoal.sharding.proxy.reading import VisibleSlots
from shoal.sharding.proxy.service import make_app
from shoal.sharding.proxy.writing import ProxyWrites
from shoal.sharding.worker import ShardedController, Worker, WorkerConfig
from shoal.sharding.worker.config import limits_of
from shoal.sharding.worker.gauges import Gauges

log = get_logger("shard.proxy")

_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProxySettings(WorkerConfig):
    """The settings of ``shoal shard proxy``: those of the worker that it is, and of its process."""

    kubeconfig: Path | None = setting(None, doc="kubeconfig; default: the pod's service account, else kubectl's")
    dir: Path = setting(Path(), doc="directory to write a certificate and the controller's kubeconfig to")
    host: str = setting("127.0.0.1", doc="address to listen on")
    port: int = setting(8061, doc="port to listen on")
    health_host: str = setting("127.0.0.1", doc="address for health and metrics of the proxy")
    health_port: int = setting(0, doc="port for health and metrics of the proxy; 0: none")
    metrics_url: str = setting("", doc="URL of the controller's metrics, to report its queue; empty: it has none")
    queue_metric: str = setting("workqueue_depth", doc="metric of the controller whose sum is its queue's length")
    log_level: str = setting("info", doc="debug, info, warning, error or off")


async def run_proxy(
    config: WorkerConfig,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    *,
    folder: Path,
    host: str,
    port: int,
    kubeconfig: Path | None = None,
    health: tuple[str, int] | None = None,
    queue: QueueSource | None = None,
) -> None:
    """Serve until ``stop``. ``folder`` gets the certificate and ``kubeconfig``, for the controller. ``health`` is where
    the proxy answers /livez, /readyz and /metrics; ``queue`` where the controller tells its queue's length."""
    clock, metrics = RealClock(), Metrics()
    access = load_inside(kubeconfig)
    keeper = CertificateKeeper(folder / "pki", clock=clock, metrics=metrics)
    tls = keeper.keep_tls("server", lambda pki: pki.ensure_server((host,)))
    token = new_token()
    async with connect(
        access, clock=clock, field_manager=config.config, user_agent=f"shard-proxy/{__version__}"
    ) as client:
        proxy = ShardProxy(client, config, clock=clock, token=token, metrics=metrics, queue=queue)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(proxy.app, host=host, port=port, clock=clock, tls=tls))
            if health is not None:
                answers = health_app(proxy.alive, proxy.ready, metrics)
                await stack.enter_async_context(small_serving(answers, host=health[0], port=health[1], clock=clock))
            authorities = folder / "pki" / "ca.crt"
            write_private(folder / "kubeconfig", _kubeconfig(f"https://{host}:{port}", authorities, token))
            on_ready()
            await wait_first(proxy.run(stop), supervise("certificates", keeper.run, clock=clock))


class ShardProxy:
    """A worker without handlers; its slots decide which objects pass."""

    def __init__(
        self,
        client: Client,
        config: WorkerConfig,
        *,
        clock: Clock,
        token: str,
        metrics: Metrics,
        queue: QueueSource | None = None,
    ) -> None:
        self._clock = clock
        self._config = config
        self._kinds = Kinds(client)
        self._share = VisibleSlots(config.config)
        self._learn = asyncio.Event()
        self._load = ProxyLoad(
            client, self._kinds, config.config, slots=lambda: self.worker.owned, source=queue,
            gauges=Gauges(
                clock, handlers=limits_of(config, None).concurrency, cpus=config.cpus,
                memory_limit_bytes=config.memory_limit_bytes,
            ),
            clock=clock, metrics=metrics,
        )  # fmt: skip
        controller = ShardedController(save=self._over, adjust=self._load.report)
        self.worker = Worker(
            client, controller, config, clock=clock, random=Random().random, new_id=Ids().new_suffix, metrics=metrics
        )
        self._writes = ProxyWrites(self.worker, client, self._kinds)
        self.worker.listen(self._changed)
        self.app = make_app(client, self._kinds, self._share, self._writes, self._load, token=token)

    async def run(self, stop: asyncio.Event) -> None:
        await wait_first(
            self.worker.run(stop),
            supervise("proxy/kinds", self._keep_learning, clock=self._clock),
            supervise("proxy/load", self._load.run, clock=self._clock),
        )

    def alive(self) -> tuple[bool, dict[str, str]]:
        return True, {"slots": str(len(self.worker.owned))}

    def ready(self) -> tuple[bool, dict[str, str]]:
        return self.worker.ready, {"lease": "held" if self.worker.ready else "not held"}

    async def _over(self, slot: int) -> bytes | None:
        """A slot is handed over when none of its writes is under way; a foreign controller's state is its own."""
        await self._writes.over(slot)
        return None

    def _changed(self) -> None:
        self._share.set(self.worker.owned)
        self._load.gauges.handlers = limits_of(self._config, self.worker.spec).concurrency
        self._load.changed()
        self._learn.set()

    async def _keep_learning(self) -> None:
        """The kinds of the ShardConfig; again when it changes."""
        known = None
        self._learn.set()
        while True:
            await self._learn.wait()
            self._learn.clear()
            spec = self.worker.spec
            if spec is None or spec.targets == known:
                continue
            try:
                await self._kinds.update(spec)
                known = spec.targets
                self._load.changed()
            except (ApiError, TransportError) as error:
                log.warning("reading the server's kinds failed", reason=str(error))
                await self._clock.sleep(_AGAIN_S)
                self._learn.set()


def _kubeconfig(url: str, ca: Path, token: str) -> bytes:
    name = "shard"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(ca.absolute())}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return yaml.safe_dump(document, sort_keys=False).encode()
