"""Watch the Deployments of a fleet's clusters, and compare them with the desired state in the database.

    async with FleetRecorder(fleet) as recorder:
        ...                                              # change, break, heal
        rows = await recorder.settled()                  # every cluster equals the desired state, with nothing else
        recorder.assert_nothing_wanted_was_deleted(rows)

The recorder connects to each API server directly, as administrator. After an outage it continues at the last revision
it saw, so it misses no deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from sqlalchemy import select

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, TransportError, builtin
from shoal.control.database import tables
from shoal.control.database.engine import Database
from shoal.errors import ApiError, Expired
from shoal.krane.labels import DEPLOYMENT, FLEET, KRANE, MANAGED_BY, SHARD, VERSION, key_of
from shoal.kube.objects import Obj
from shoal.testing.fleets import LocalFleet
from shoal.testing.waiting import eventually

_AGAIN_S = 0.1
_LOOK_S = 0.25
_DEPLOYED = ("deployment", "sentinel")  # kinds of keys that have a Deployment
OURS = Scope(label_selector=f"{MANAGED_BY}={KRANE}")
KINDS = (
    builtin("deployments", "apps"), builtin("services"), builtin("serviceaccounts"), builtin("secrets"),
    builtin("poddisruptionbudgets", "policy"), builtin("networkpolicies", "networking.k8s.io"),
    builtin("horizontalpodautoscalers", "autoscaling"),
)  # fmt: skip
"""The kinds of objects that an agent creates for a deployment or a gateway."""


@dataclass(frozen=True, slots=True)
class DeletedDeployment:
    """A Deployment with an agent's labels that was deleted in a cluster."""

    cluster: str
    shard: str
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class DesiredRow:
    """A row of desired state, with the name of its cluster."""

    cluster: str
    shard: str
    key: str
    name: str
    number: int
    wanted: bool


class FleetRecorder:
    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self.clients: dict[str, Client] = {}
        self.live: dict[str, dict[str, Obj]] = {}  # Deployments with an agent's labels, by cluster and name
        self.deleted: list[DeletedDeployment] = []
        self.on_delete: Callable[[DeletedDeployment], None] | None = None

    async def __aenter__(self) -> Self:
        for name, cluster in self._fleet.clusters.items():
            client: Client = await self._stack.enter_async_context(cluster.client())
            self.clients[name] = client
            revision = await self._list(name, client)
            self._tasks.append(asyncio.create_task(self._follow(name, client, revision), name=f"witness/{name}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel_all(*self._tasks)
        await self._stack.aclose()

    async def until(self, check: Callable[[], Any], *, timeout_s: float = 30.0, what: str = "") -> Any:
        """Wait until ``check`` returns something true, and return it. It is called at every event."""
        async with asyncio.timeout(timeout_s) as limit:
            try:
                while not (found := check()):
                    changed = self._changed
                    await changed.wait()
                return found
            except asyncio.CancelledError:
                if limit.expired():
                    raise AssertionError(f"{what or 'it'} not met within {timeout_s} s") from None
                raise

    def of_app(self, app: str, cluster: str) -> list[Obj]:
        """The Deployments of an app, any revision."""
        return [obj for name, obj in self.live[cluster].items() if name.rpartition("-")[0].rpartition("-")[0] == app]

    # against the database

    async def desired(self) -> list[DesiredRow]:
        """All rows of desired state in the database, with tombstones."""
        database = await Database.open(self._fleet.database, clock=RealClock(), ids=Ids())
        try:
            async with database.reading() as session:
                rows = await session.execute(
                    select(tables.Cluster.name, tables.Desired.shard, tables.Desired.key, tables.Desired.name,
                           tables.Desired.number, tables.Desired.action)
                    .join(tables.Cluster, tables.Cluster.id == tables.Desired.cluster_id)
                )  # fmt: skip
                return [DesiredRow(*row[:5], wanted=row[5] == "apply") for row in rows]
        finally:
            await database.close()

    async def settled(self, *, timeout_s: float = 60.0) -> list[DesiredRow]:
        """Wait until every cluster equals the desired state, in versions and set of objects; returns its rows."""

        async def desired_and_live() -> list[DesiredRow]:
            rows = await self.desired()
            faults = await self.differences(rows)
            assert not faults, f"not settled: {faults}"
            return rows

        rows: list[DesiredRow] = await eventually(
            desired_and_live, until=lambda _: True, timeout_s=timeout_s, every_s=_LOOK_S, explain=self._fleet.logs
        )
        return rows

    async def differences(self, rows: list[DesiredRow]) -> list[str]:
        """Deployments that are missing or of another version, and objects that are not desired."""
        faults: list[str] = []
        for cluster, client in self.clients.items():
            wanted = {(row.shard, row.key): row for row in rows if row.cluster == cluster and row.wanted}
            found: dict[tuple[str, str], Obj] = {}
            try:
                for kind in KINDS:
                    for obj in (await client.of(kind).list(OURS)).items:
                        labels = obj["metadata"]["labels"]
                        at = (labels.get(SHARD, ""), key_of(obj) or "")
                        if FLEET in labels and at[1] and at not in wanted:
                            faults.append(f"{cluster}: {kind.kind} {obj['metadata']['name']} of {at} is not wanted")
                        elif FLEET in labels and kind.kind == "Deployment":
                            found[at] = obj
            except (ApiError, TransportError) as error:
                faults.append(f"{cluster}: {error}")
                continue
            for at, row in wanted.items():
                if row.key.partition("/")[0] not in _DEPLOYED:
                    continue
                live = found.get(at)
                shown = live["metadata"]["annotations"].get(VERSION, "") if live else "missing"
                if live is None or int(shown.rpartition(":")[2]) != row.number:
                    faults.append(f"{cluster}: {at} is {shown}, not {row.number}")
        return faults

    def assert_nothing_wanted_was_deleted(self, rows: list[DesiredRow]) -> None:
        wanted = {(row.cluster, row.shard, row.key) for row in rows if row.wanted}
        lost = [each for each in self.deleted if (each.cluster, each.shard, each.key) in wanted]
        assert not lost, f"deleted although wanted: {lost}"

    # watching

    async def _list(self, cluster: str, client: Client) -> str:
        listed = await client.of(builtin("deployments", "apps")).list(OURS)
        now = {obj["metadata"]["name"]: obj for obj in listed.items}
        before = self.live.get(cluster, {})
        self.live[cluster] = now
        for name in before.keys() - now.keys():
            self._gone(cluster, before[name])
        self.wake()
        return str(listed.resource_version)

    async def _follow(self, cluster: str, client: Client, revision: str) -> None:
        while True:
            try:
                watch = await client.of(builtin("deployments", "apps")).watch(OURS, resource_version=revision)
                async with watch:
                    async for event in watch:
                        revision = event.resource_version or revision
                        self._take(cluster, event.type, event.object)
            except Expired:
                revision = await self._list(cluster, client)
            except (ApiError, TransportError):
                await asyncio.sleep(_AGAIN_S)

    def _take(self, cluster: str, type_: str, obj: Obj) -> None:
        if type_ not in ("ADDED", "MODIFIED", "DELETED"):
            return
        name = obj["metadata"]["name"]
        if type_ == "DELETED":
            self.live[cluster].pop(name, None)
            self._gone(cluster, obj)
        else:
            self.live[cluster][name] = obj
        self.wake()

    def _gone(self, cluster: str, obj: Obj) -> None:
        labels = obj["metadata"]["labels"]
        deleted = DeletedDeployment(cluster, labels.get(SHARD, ""), key_of(obj) or "", obj["metadata"]["name"])
        self.deleted.append(deleted)
        if self.on_delete is not None and DEPLOYMENT in labels:
            self.on_delete(deleted)

    def wake(self) -> None:
        """Let ``until`` look again: something that is no event has changed."""
        self._changed.set()
        self._changed = asyncio.Event()


def marker_of(obj: Obj) -> str:
    """The variable ``MARKER`` of a Deployment."""
    variables = obj["spec"]["template"]["spec"]["containers"][0].get("env") or []
    return str(next((each.get("value", "") for each in variables if each["name"] == "MARKER"), ""))
