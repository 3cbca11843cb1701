"""The proxy as a process: beside a controller that knows nothing of shards, with the pod's own credentials.

It holds the shard's Lease in the controller's stead, and writes a kubeconfig that leads to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import yaml

from shoal import __version__
from shoal.app.pki import Pki
from shoal.base.asgi import Tls, serving
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids, new_token
from shoal.base.logs import get_logger
from shoal.base.settings import setting
from shoal.base.tasks import wait_first
from shoal.client import Client, TransportError, connect, load_inside
from shoal.errors import ApiError
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.proxy.reading import VisibleSlots
from shoal.sharding.proxy.service import make_app
from shoal.sharding.proxy.writing import ProxyWrites
from shoal.sharding.worker import ShardedController, Worker, WorkerConfig

log = get_logger("shard.proxy")

_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProxySettings(WorkerConfig):
    """The settings of ``shoal shard proxy``: those of the worker that it is, and of its process."""

    kubeconfig: Path | None = setting(None, doc="kubeconfig; default: the pod's service account, else kubectl's")
    dir: Path = setting(Path(), doc="directory to write a certificate and the controller's kubeconfig to")
    host: str = setting("127.0.0.1", doc="address to listen on")
    port: int = setting(8061, doc="port to listen on")
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
) -> None:
    """Serve until ``stop``. ``folder`` gets the certificate and ``kubeconfig``, for the controller."""
    clock = RealClock()
    access = load_inside(kubeconfig)
    pki = Pki(folder / "pki", now=clock.now())
    keys = pki.ensure_server((host,))
    token = new_token()
    async with connect(
        access, clock=clock, field_manager=config.config, user_agent=f"shard-proxy/{__version__}"
    ) as client:
        proxy = ShardProxy(client, config, clock=clock, token=token)
        tls = Tls(keys.cert, keys.key)
        async with serving(proxy.app, host=host, port=port, clock=clock, tls=tls):
            write_private(folder / "kubeconfig", _kubeconfig(f"https://{host}:{port}", pki.ca_cert, token))
            on_ready()
            await proxy.run(stop)


class ShardProxy:
    """A worker without handlers; its slots decide which objects pass."""

    def __init__(self, client: Client, config: WorkerConfig, *, clock: Clock, token: str) -> None:
        self._clock = clock
        self._kinds = Kinds(client)
        self._share = VisibleSlots(config.config)
        self._learn = asyncio.Event()
        controller = ShardedController(save=self._over)
        self.worker = Worker(client, controller, config, clock=clock, random=Random().random, new_id=Ids().new_suffix)
        self._writes = ProxyWrites(self.worker, client, self._kinds)
        self.worker.listen(self._changed)
        self.app = make_app(client, self._kinds, self._share, self._writes, token=token)

    async def run(self, stop: asyncio.Event) -> None:
        await wait_first(self.worker.run(stop), self._keep_learning())

    async def _over(self, slot: int) -> bytes | None:
        """A slot is handed over when none of its writes is under way; a foreign controller's state is its own."""
        await self._writes.over(slot)
        return None

    def _changed(self) -> None:
        self._share.set(self.worker.owned)
        self._learn.set()

    async def _keep_learning(self) -> None:
        """The kinds of the ShardConfig; again when it changes."""
        known = None
        while True:
            await self._learn.wait()
            self._learn.clear()
            spec = self.worker.spec
            if spec is None or spec.targets == known:
                continue
            try:
                await self._kinds.update(spec)
                known = spec.targets
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
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return yaml.safe_dump(document, sort_keys=False).encode()
