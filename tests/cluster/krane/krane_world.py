"""A cluster in this process with an agent's cluster side in it, which acts under its own account and its own rules.

Every request of the agent is remembered as (verb, group, resource, namespace): what it needed, it was allowed.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from protobuf import Oneof

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, builtin
from shoal.controllers.deployment import wiring as deployment_wiring
from shoal.controllers.endpointslice import wiring as slices_wiring
from shoal.controllers.garbagecollector import wiring as garbage_wiring
from shoal.controllers.replicaset import wiring as replicaset_wiring
from shoal.errors import AlreadyExists, Invalid
from shoal.krane import rbac
from shoal.krane.deployments.apply import PARTS
from shoal.krane.handlers import make_handlers
from shoal.krane.model import StreamHandlers
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.sync.keys import StreamKind
from shoal.sync.sealing import new_key, seal_values, wrap_for
from shoal.testing.controllers import PodPlayer, running
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

Use = tuple[str, str, str, str]  # verb, group, resource, namespace

OWNER = Owner(fleet="flt_1", cluster="c1", region="eu", shard="default")
KEY = "deployment/dep_1"
NAMESPACE, NAME = "shop-live", "web-1-abc"
ACCOUNT = User(
    f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}",
    ("system:serviceaccounts", f"system:serviceaccounts:{rbac.NAMESPACE}", "system:authenticated"),
)
PRIVATE_KEY = bytes(range(32))
PUBLIC_KEY = X25519PrivateKey.from_private_bytes(PRIVATE_KEY).public_key().public_bytes_raw()
CONTROLLERS = (deployment_wiring.add, replicaset_wiring.add, slices_wiring.add, garbage_wiring.add)

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Recording:
    """A transport that remembers what was asked for."""

    def __init__(self, inner: InProcessTransport, *, old: bool = False) -> None:
        self._inner = inner
        self._old = old  # the server cannot begin a watch with the objects that exist
        self.uses: list[Use] = []

    async def request(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
        _, *what = self._note(method, target)
        reply = await self._inner.request(method, target, headers=headers, body=body)
        if method == "PATCH" and reply.status == 201:  # an apply that creates needs both
            self.uses.append(("create", what[0], what[1], what[2]))
        return reply

    async def stream(self, method: str, target: str, *, headers: Any = None) -> Any:
        if self._old and "sendInitialEvents" in target:
            raise Invalid("sendInitialEvents: Forbidden: is not known")
        self._note(method, target)
        return await self._inner.stream(method, target, headers=headers)

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, method: str, target: str) -> Use:
        path, _, query = target.partition("?")
        found = _PATH.fullmatch(path)
        assert found is not None, f"{target} is no path of the published API"
        verb = _VERBS.get(method) or ("watch" if "watch=true" in query else "get" if found["name"] else "list")
        plural = found["plural"] + (f"/{found['sub']}" if found["sub"] else "")
        self.uses.append((verb, found["group"] or "", plural, found["namespace"] or ""))
        return self.uses[-1]

    def written(self) -> list[str]:
        """The resources that were written since the last call, in order."""
        found = [plural for verb, _, plural, _ in self.uses if verb in ("patch", "update", "delete")]
        self.uses.clear()
        return found


def deployment(number: int, *, key: str = KEY, **fields: Any) -> pb.Item:
    given: Obj = {
        "deployment": "dep_1", "workspace": "ws_1", "project": "prj_1", "environment": "env_1", "app": "app_1",
        "namespace": NAMESPACE, "name": NAME, "app_name": "web", "image": "shoal/echo:1", "port": 8080,
        "replicas": 2, "running": True, "revision": 1, "region": "eu",
    }  # fmt: skip
    return item(key, number, "deployment", pb.DeploymentState(**{**given, **fields}))


def sentinel(number: int, **fields: Any) -> pb.Item:
    given: Obj = {
        "sentinel": "snt_1", "workspace": "ws_1", "environment": "env_1", "name": "sentinel-eu-x", "replicas": 1,
        "image": "shoal/sentinel:1", "region": "eu", "peers": [pb.Peer(region="us", addresses=["192.0.2.1:8040"])],
    }  # fmt: skip
    return item("sentinel/snt_1", number, "sentinel", pb.SentinelState(**{**given, **fields}))


def custom(key: str, number: int, name: str, spec: bytes) -> pb.Item:
    return item(key, number, "custom", pb.CustomState(workspace="ws_1", environment="env_1", name=name, spec=spec))


def item(key: str, number: int, field: str, value: Any) -> pb.Item:
    version = pb.Version(database="main", incarnation=1, number=number)
    return pb.Item(key=key, version=version, action=Oneof(field, value))


def sealed(version: int, public_key: bytes, **values: str) -> pb.SealedSecret:
    data_key = new_key()
    return pb.SealedSecret(
        secret="sec_1", version=version, wrapped_key=wrap_for(data_key, public_key),
        ciphertext=seal_values(values, data_key), variables=sorted(values),
    )  # fmt: skip


class World:
    """The cluster, its administrator and the agent's two sides."""

    def __init__(
        self, server: LocalServer, player: PodPlayer, recording: Recording, namespaces: Sequence[str] = ()
    ) -> None:
        self._namespaces = namespaces
        self.server = server
        self.player = player
        self.requests = recording
        self.admin = Client(server.transport, clock=RealClock(), field_manager="administrator")
        self.client = Client(recording, clock=RealClock(), field_manager="not-krane")
        self.changed: list[str] = []
        handlers = self.handlers(OWNER)
        self.deployments, self.sentinels = handlers[StreamKind.DEPLOYMENTS], handlers[StreamKind.SENTINELS]

    def handlers(self, owner: Owner) -> dict[StreamKind, StreamHandlers]:
        make = make_handlers(self.client, clock=RealClock(), random=random.random, namespaces=self._namespaces)
        return make(owner, PRIVATE_KEY)

    async def apply(self, *items: pb.Item) -> None:
        for each in items:
            side = self.deployments if each.key.startswith("deployment/") else self.sentinels
            await side.applier.apply(each)

    @property
    def report(self) -> pb.DeploymentReport:
        found = self.deployments.observer.report(KEY)
        assert isinstance(found, pb.DeploymentReport), "nothing is seen of it"
        return found

    def gateway(self, key: str = "sentinel/snt_1") -> pb.SentinelReport:
        found = self.sentinels.observer.report(key)
        assert isinstance(found, pb.SentinelReport), "nothing is seen of it"
        return found

    async def ready(self, replicas: int = 2, *, key: str = KEY) -> None:
        def check() -> bool:
            found = self.deployments.observer.report(key)
            assert isinstance(found, pb.DeploymentReport)
            assert found.available_replicas == replicas, found.available_replicas
            assert [each.ready for each in found.instances] == [True] * replicas
            return True

        await eventually(check)

    def of(self, plural: str, group: str = "") -> Any:
        return self.admin.of(builtin(plural, group))

    async def get(self, plural: str, group: str = "", name: str = NAME, namespace: str = NAMESPACE) -> Obj:
        found: Obj = await self.of(plural, group).get(name, namespace)
        return found

    async def objects(self) -> dict[str, Obj]:
        """Those of the deployment, by kind."""
        found: dict[str, Obj] = {}
        for kind in PARTS:
            for obj in (await self.admin.of(kind).list(Scope(namespace=NAMESPACE))).items:
                if obj["metadata"]["name"] == NAME:
                    found[kind.kind] = obj
        return found

    async def left(self, namespace: str = NAMESPACE) -> list[str]:
        """The kinds of which something that krane made is there."""
        found = []
        for kind in PARTS:
            listed = await self.admin.of(kind).list(Scope(namespace=namespace))
            found += [kind.kind for obj in listed.items if "krane" in repr(obj["metadata"].get("labels"))]
        return found


@asynccontextmanager
async def world(
    controllers: Sequence[Any] = CONTROLLERS,
    *,
    manifests: list[Obj] | None = None,
    observe: bool = True,
    old: bool = False,
    namespaces: Sequence[str] = (),
) -> AsyncIterator[World]:
    """``manifests`` are what an administrator prepared; those that an agent needs if not given. ``old``: on a server
    that begins no watch with the objects that exist. ``namespaces``: the only ones that the agent may use."""
    async with local_server() as server:
        player = PodPlayer()
        async with running(server, [*controllers, player.add]):
            recording = Recording(InProcessTransport(server.server.handler, ACCOUNT), old=old)
            made = World(server, player, recording, namespaces)
            await prepare(made.admin, rbac.manifests() if manifests is None else manifests)
            await made.of("nodes").create({"metadata": {"name": "node-1"}})  # where the player puts pods
            tasks = []
            if observe:
                for side in (made.deployments, made.sentinels):
                    tasks.append(asyncio.create_task(side.observer.run(made.changed.append), name="observer"))
                await eventually(lambda: _synced(made, tasks))
            try:
                yield made
            finally:
                await cancel_all(*tasks)


async def prepare(admin: Client, manifests: list[Obj]) -> None:
    for obj in manifests:
        group = obj["apiVersion"].rpartition("/")[0]
        try:
            await admin.of(builtin(obj["kind"], group)).create(obj)
        except AlreadyExists:
            continue


def _synced(made: World, tasks: list[asyncio.Task[None]]) -> bool:
    for task in tasks:
        if task.done():
            task.result()
    return made.deployments.observer.synced and made.sentinels.observer.synced
