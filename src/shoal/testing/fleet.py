"""The control plane's service for agents in this process: real TLS on loopback, and its own database.

    async with control_plane(tmp_path) as control:
        await control.add_cluster("c1", region="eu")
        token = await control.agent_token("c1", "eu")
        async with control.agent("c1", "eu", token=token) as agent:      # a client that has joined
            ...
        key = await control.deploy("c1", "web")                          # writes desired state to the database

``restart`` stops it and starts it again on the same port and database. ``shoal.testing.fleets`` has the same as
processes.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyqwest

from shoal.app.pki import KeyPair, Pki
from shoal.base.asgi import AsgiListener, Tls, bind
from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import FLEET, App, Cluster, Deployment, Environment, Project, Region, Topology
from shoal.control.database.tokens import ApiTokens
from shoal.control.database.transaction import Tx
from shoal.control.domain.model import Sealed, Sealer
from shoal.control.service.config import ServiceConfig
from shoal.control.service.reports.reports import Consequences
from shoal.control.service.wiring import CONSEQUENCES, ClusterServer
from shoal.sync.keys import Place, key_of
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient

SHARD = "default"
QUICK = ServiceConfig(guard_s=0.1, heartbeat_flush_s=0.2, hello_rate=5000.0, hello_burst=1000, progress_every_s=0.2)
_START_S = 60.0


class PlainSealer:
    """Does not encrypt. For tests that are not about secrets."""

    async def seal(self, values: dict[str, str]) -> Sealed:
        import orjson

        return Sealed(ciphertext=orjson.dumps(values), data_key=b"data-key", master_key="plain")

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        return b"for " + public_key[:4] + b": " + data_key


@dataclass(slots=True)
class AgentClient:
    """An agent of one shard: the generated client with its identity and headers."""

    client: ClusterServiceClient
    identity: pb.Identity
    headers: dict[str, str]
    joined: pb.JoinResponse | None = None

    async def join(self, public_key: bytes = b"k" * 32) -> pb.JoinResponse:
        request = pb.JoinRequest(identity=self.identity, public_key=public_key, software="test/1")
        self.joined = await self.client.join(request, headers=self.headers)
        self.identity = pb.Identity(
            cluster=self.identity.cluster, region=self.identity.region, shard=self.identity.shard,
            agent=self.identity.agent, epoch=self.joined.epoch,
        )  # fmt: skip
        return self.joined


@dataclass(slots=True)
class ControlPlane:
    """A running control plane. ``restart`` replaces ``server``; the other fields stay."""

    databases: Databases
    tokens: ApiTokens
    server: ClusterServer
    port: int
    ca: bytes
    clock: Clock
    ids: Ids
    sealer: Sealer
    _pair: KeyPair
    _make: Callable[[], ClusterServer]
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _listener: AsgiListener | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def database(self) -> Database:
        return self.databases.fleet

    async def start(self) -> None:
        run = asyncio.create_task(self.server.run(), name="control-plane")
        await asyncio.wait_for(self.server.ready(), _START_S)  # accepts no agent before it can answer
        listening = bind("127.0.0.1", self.port)
        self.port = listening.getsockname()[1]
        self._listener = AsgiListener(
            self.server.app, listening, Tls(self._pair.cert, self._pair.key), clock=RealClock()
        )
        self._tasks = [run, asyncio.create_task(self._listener.run(), name="control-plane-listener")]

    async def stop(self) -> None:
        """Stop in order: streams end with UNAVAILABLE."""
        run, listener = self._tasks
        await cancel_all(run)
        assert self._listener is not None
        self._listener.stop()
        await asyncio.wait_for(listener, _START_S)

    async def restart(self) -> None:
        await self.stop()
        await self.start_again()

    async def start_again(self) -> None:
        """Start a new server after ``stop``."""
        self.server = self._make()
        await self.start()

    # clusters and agents

    async def add_cluster(self, name: str, *, region: str, shards: tuple[str, ...] = (SHARD,)) -> str:
        """Create a cluster, and its region if it is new; returns the cluster's id."""
        region_id, cluster_id = f"reg_{region}", f"clu_{name}"
        async with self.database.transaction() as tx:
            if await tx.session.get(Region, region_id) is None:
                tx.session.add(Region(**_named(tx, region_id, FLEET, region), platform="", can_schedule=True))
                await tx.session.flush()
            row = _named(tx, cluster_id, FLEET, name, {"region": region, "shards": list(shards)})
            tx.session.add(Cluster(**row, region_id=region_id, can_schedule=True))
        return cluster_id

    async def agent_token(self, cluster: str, region: str, shard: str = "") -> str:
        name = f"{cluster}-{shard or 'all'}-{self.ids.new_suffix()}"
        text, _ = await self.tokens.create(kind="agent", name=name, cluster=cluster, region=region, shard=shard)
        return text

    @asynccontextmanager
    async def agent(
        self, cluster: str, region: str, *, shard: str = SHARD, token: str = "", name: str = "a1", join: bool = True
    ) -> AsyncIterator[AgentClient]:
        """A client for a shard, joined unless ``join`` is False."""
        token = token or await self.agent_token(cluster, region)
        transport = pyqwest.HTTPTransport(tls_ca_cert=self.ca, http_version=pyqwest.HTTPVersion.HTTP2)
        async with transport:
            agent = AgentClient(
                ClusterServiceClient(self.url, http_client=pyqwest.Client(transport)),
                pb.Identity(cluster=cluster, region=region, shard=shard, agent=name),
                {"authorization": f"Bearer {token}"},
            )
            if join:
                await agent.join()
            yield agent

    # desired state

    async def deploy(
        self,
        cluster: str,
        name: str,
        *,
        shard: str = SHARD,
        by_user: bool = False,
        image: str = "nginx:1",
        template: Mapping[str, Any] | None = None,
        replicas: int = 1,
    ) -> str:
        """Desire a deployment in a cluster, created if there is none of that name; returns its key."""
        async with self.database.transaction(by_user=by_user, trace="00-trace-span-01") as tx:
            return await want_deployment(
                tx, cluster, name, shard=shard, image=image, template=template or {}, replicas=replicas
            )

    async def remove(self, cluster: str, key: str, *, shard: str = SHARD, by_user: bool = False) -> None:
        async with self.database.transaction(by_user=by_user) as tx:
            await tx.unwant(Place(f"clu_{cluster}", shard), key)


async def want_deployment(
    tx: Tx,
    cluster: str,
    name: str,
    *,
    shard: str = SHARD,
    image: str,
    template: Mapping[str, Any],
    replicas: int,
    region_id: str = "",
) -> str:
    """Write the rows of a deployment as the domain does. ``region_id`` is needed only for a further database, which
    does not hold the cluster."""
    deployment_id, place = f"dep_{name}", Place(f"clu_{cluster}", shard)
    region_id = region_id or (await tx.session.get_one(Cluster, place.cluster)).region_id
    found = await tx.session.get(Deployment, deployment_id)
    if found is None:
        await _environment(tx)
        app = App(**_named(tx, f"app_{name}", "ws_1", name, {"drift": "correct"}), project_id="prj_1",
                  environment_id="env_1", deployment_id=deployment_id, revision=1)  # fmt: skip
        tx.session.add(app)
        await tx.session.flush()
        found = Deployment(
            id=deployment_id, workspace_id="ws_1", project_id="prj_1", environment_id="env_1", app_id=app.id,
            revision=1, k8s_name=name, namespace="shop-live", image=image, template={"port": 8080, **template},
            template_hash="", git=None, desired_state="running", status="deploying", created_at=tx.now,
            updated_at=tx.now,
        )  # fmt: skip
        tx.session.add(found)
        await tx.session.flush()
    found.image = image
    topology_id = f"top_{name}_{cluster}_{shard}"
    row = await tx.session.get(Topology, topology_id)
    if row is None:
        row = Topology(
            id=topology_id, workspace_id="ws_1", deployment_id=deployment_id, region_id=region_id,
            cluster_id=place.cluster, shard=shard, reason={}, replicas=replicas, autoscaling=None, overrides=None,
            desired_status="running", revision=1, updated_at=tx.now,
        )  # fmt: skip
        tx.session.add(row)
    row.replicas = replicas
    await tx.session.flush()
    key = key_of("deployment", deployment_id)
    await tx.want(place, key, workspace_id="ws_1", namespace="shop-live", name=name)
    return key


async def _environment(tx: Tx) -> None:
    if await tx.session.get(Project, "prj_1") is None:
        tx.session.add(Project(**_named(tx, "prj_1", "ws_1", "shop")))
        await tx.session.flush()
        row = _named(tx, "env_1", "ws_1", "live")
        tx.session.add(Environment(**row, project_id="prj_1", namespace="shop-live"))
        await tx.session.flush()


def _named(tx: Tx, id_: str, workspace: str, name: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "id": id_, "workspace_id": workspace, "name": name, "labels": {}, "annotations": {}, "spec": dict(spec or {}),
        "generation": 1, "version": 1, "created_at": tx.now, "updated_at": tx.now,
    }  # fmt: skip


@asynccontextmanager
async def control_plane(
    folder: Path | None = None,
    *,
    url: str = "",
    config: ServiceConfig = QUICK,
    clock: Clock | None = None,
    consequences: Consequences = CONSEQUENCES,
    port: int = 0,
    others: Sequence[str] = (),
    sealer: Sealer | None = None,
) -> AsyncIterator[ControlPlane]:
    """Start a control plane. ``url`` is its database, by default a new SQLite file in ``folder``; ``others`` are
    names of further SQLite databases."""
    with tempfile.TemporaryDirectory(prefix="shoal-control-") as temporary:
        base = folder or Path(temporary)
        pki = Pki(base / "pki", now=datetime.now(UTC))
        pair = pki.ensure_server(["127.0.0.1", "localhost"])
        clock, ids = clock or RealClock(), Ids()
        urls = {"main": url or f"sqlite:///{base / 'control.db'}"}
        urls |= {name: f"sqlite:///{base / f'{name}.db'}" for name in others}
        databases = await Databases.open(urls, clock=clock, ids=ids)
        tokens = ApiTokens(databases, clock)
        sealer = sealer or PlainSealer()

        def make() -> ClusterServer:
            return ClusterServer(
                databases, tokens, sealer, clock=clock, random=random.Random(7).random, config=config,
                metrics=Metrics(), consequences=consequences,
            )  # fmt: skip

        control = ControlPlane(
            databases, tokens, make(), port, pki.ca_cert.read_bytes(), clock, ids, sealer, pair, make
        )  # fmt: skip
        try:
            await control.start()
            try:
                yield control
            finally:
                await control.stop()
        finally:
            await databases.close()
