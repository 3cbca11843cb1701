"""Loads what is desired, in batches, once for all who ask.

Whoever sends asks for keys; what was already rendered at that version comes from memory, the rest is read from the
database together with what others ask for at the same time, users' changes first. A failure concerns the keys it hit:
a database that is away or a key that cannot be wrapped now means *later*, never *skip*; a row that can never be shown
is *broken*, counted and logged.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.engine import Database, Databases
from shoal.control.database.moments import Rows, rows_of
from shoal.control.domain.model import Sealer
from shoal.control.domain.routing import read_targets
from shoal.control.service import render
from shoal.control.service.directory import Directory, RegionFacts
from shoal.control.service.gateway_specs import policy_spec, route_spec
from shoal.control.service.index import Entry, Index
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.protocol import Failure, Loaded
from shoal.control.service.queries import Queries, document, listed, queries
from shoal.control.service.states import StateCache
from shoal.errors import ShoalError
from shoal.sync.keys import Place, stream_of
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

_BATCH = 500  # rows of one round of reading
_RENDERED = 25  # between two turns of the event loop
_DEPLOYMENTS = "deployment/"
_FAR = 1_000_000  # a region whose distance nobody has said

_log = get_logger("control.service.desired")

Where = tuple[Place, str]  # place and key
Result = Loaded | Failure | None


@dataclass(slots=True)
class _Cached:
    loaded: Loaded
    incarnation: int
    public_key: bytes  # of the agent that the secrets in it are wrapped for


class Loader:
    """``run`` must be running for ``load`` to return."""

    def __init__(
        self,
        databases: Databases,
        index: Index,
        directory: Directory,
        sealer: Sealer,
        metrics: ServiceMetrics,
        *,
        cache_bytes: int,
    ) -> None:
        self._databases = databases
        self._index = index
        self._directory = directory
        self._sealer = sealer
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[Where, _Cached] = OrderedDict()
        self._cached_bytes = 0
        self._urgent: dict[Where, _Asked] = {}
        self._calm: dict[Where, _Asked] = {}
        self._states = StateCache()
        self._asked = asyncio.Event()
        self._counts = {name: metrics.loads.labels(name) for name in ("hit", "read", "gone", "later", "broken")}

    async def load(self, place: Place, keys: Iterable[str], *, urgent: bool = False) -> dict[str, Result]:
        """The state of each key of the place as it is now, or why not."""
        found: dict[str, Result] = {}
        waiting: dict[str, _Asked] = {}
        for key in keys:
            cached = self._fresh(place, key)
            if cached is not None:
                self._counts["hit"].inc()
                found[key] = cached.loaded
            else:
                waiting[key] = self._ask((place, key), urgent=urgent)
        if waiting:
            await _settled(waiting.values())
            for key, asked in waiting.items():
                found[key] = asked.result
        return found

    async def item(self, place: Place, key: str) -> pb.Item | None:
        """One object, read from the database even when it is in memory: None when there is no such row."""
        asked = self._ask((place, key), urgent=True)
        await _settled([asked])
        result = asked.result
        if result is None:
            return None
        if isinstance(result, Failure):
            raise LoadFailed(key, result)
        event = pb.WatchEvent.from_binary(result.data).event
        assert event is not None and event.field == "item"
        return event.value

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            while batch := self._next_batch():
                try:
                    await self._round(batch)
                finally:
                    for asked in batch.values():  # a round that failed or was cancelled leaves nobody waiting
                        asked.settle(Failure.LATER)

    def _fresh(self, place: Place, key: str) -> _Cached | None:
        cached = self._cached.get((place, key))
        if cached is None:
            return None
        entry = self._index.shelf(place, stream_of(key)).entries.get(key)
        if entry is None or entry.number > cached.loaded.number:
            return None
        if cached.public_key != self._directory.public_key(place):
            return None
        if cached.incarnation != self._index.positions[entry.database].incarnation:
            return None
        self._cached.move_to_end((place, key))
        return cached

    def _ask(self, where: Where, *, urgent: bool) -> _Asked:
        asked = self._urgent.get(where) or self._calm.get(where)
        if asked is None:
            asked = _Asked()
            (self._urgent if urgent else self._calm)[where] = asked
            self._asked.set()
        elif urgent and where in self._calm:
            self._urgent[where] = self._calm.pop(where)
        return asked

    def _next_batch(self) -> dict[Where, _Asked]:
        """Whoever asks for a key from here on gets a reading of its own: the one under way may be too old for it."""
        batch: dict[Where, _Asked] = {}
        for queue in (self._urgent, self._calm):
            for where in list(queue)[: _BATCH - len(batch)]:
                batch[where] = queue.pop(where)
            if batch and queue is self._urgent:
                break  # what users wait for is not held up by the rest of a batch
        return batch

    async def _round(self, batch: Mapping[Where, _Asked]) -> None:
        rest = set(batch)
        before = {(place, key): self._entry(place, key) for place, key in rest}
        for database in self._databases.all:
            asked = [where for where in rest if self._may_be_in(database, where)]
            if not asked:
                continue
            try:
                results = await self._read(database, asked)
            except ShoalError as error:
                _log.warning("desired state cannot be read now", database=database.name, error=str(error))
                results = dict.fromkeys(asked, Failure.LATER)
            for where, result in results.items():
                rest.discard(where)
                self._settle(batch[where], result)
        for place, key in rest:
            if self._entry(place, key) is not before[place, key]:
                self._settle(batch[place, key], Failure.LATER)  # it was made while we read: that reading is too old
                continue
            self._index.forget(place, stream_of(key), key)
            self._settle(batch[place, key], None)

    def _entry(self, place: Place, key: str) -> Entry | None:
        return self._index.shelf(place, stream_of(key)).entries.get(key)

    def _may_be_in(self, database: Database, where: Where) -> bool:
        entry = self._entry(*where)
        return entry is None or entry.database == database.name

    def _settle(self, asked: _Asked, result: Result) -> None:
        name = "gone" if result is None else result.value if isinstance(result, Failure) else "read"
        self._counts[name].inc()
        asked.settle(result)

    async def _read(self, database: Database, asked: list[Where]) -> dict[Where, Result]:
        """What of ``asked`` is in this database."""
        incarnation = self._index.positions[database.name].incarnation
        rows, reading = await self._read_once(database, asked)
        if reading.unknown_regions:  # somebody has just made one
            await self._directory.refresh_places(reading.began)
            rows, reading = await self._read_once(database, asked)
        results: dict[Where, Result] = {}
        for count, (where, row) in enumerate(rows.items(), 1):
            if count % _RENDERED == 0:
                await asyncio.sleep(0)  # a large batch must not hold up everybody else
            state = reading.found.get(where)
            if isinstance(state, Failure):
                results[where] = state
                continue
            version = Version(database.name, incarnation, row.number)
            results[where] = self._keep(where, row, version, state, reading.public_key(where[0]))
        return results

    async def _read_once(
        self, database: Database, asked: list[Where]
    ) -> tuple[dict[Where, render.DesiredRow], _Reading]:
        regions = await self._directory.regions()
        statements = queries(database.dialect)

        async def read(ask: Rows, session: AsyncSession | None) -> tuple[dict[Where, render.DesiredRow], _Reading]:
            reading = _Reading(ask, session, statements, self._directory, self._sealer, regions, self._states)
            rows = await _desired_rows(ask, statements, asked)
            reading.found = await reading.states({where: row for where, row in rows.items() if row.action == "apply"})
            return rows, reading

        if all(key.startswith(_DEPLOYMENTS) for _, key in asked):
            async with database.moment() as ask:
                rows, reading = await read(ask, None)
        else:
            async with database.reading() as session:
                rows, reading = await read(rows_of(session), session)
        reading.found |= await reading.deployments()  # may ask for keys, so not while the database waits
        return rows, reading

    def _keep(
        self, where: Where, row: render.DesiredRow, version: Version, state: render.State | None, public_key: bytes
    ) -> Result:
        place, key = where
        try:
            loaded = Loaded(row.number, render.item_event(render.item_bytes(row, version, state)), row.committed_ms)
        except (ValueError, KeyError, TypeError) as error:
            _log.error("a row cannot be shown to agents", key=key, place=str(place), error=error)
            return Failure.BROKEN
        self._uncache(where)
        self._cached[where] = _Cached(loaded, version.incarnation, public_key)
        self._cached_bytes += _cost(loaded)
        while self._cached_bytes > self._cache_bytes and len(self._cached) > 1:
            self._uncache(next(iter(self._cached)))
        entry = Entry(version.database, row.number, row.action, row.by_user, row.gone)
        self._index.put(place, stream_of(key), key, entry)
        return loaded

    def _uncache(self, where: Where) -> None:
        cached = self._cached.pop(where, None)
        if cached is not None:
            self._cached_bytes -= _cost(cached.loaded)


class LoadFailed(ShoalError):
    """A key could not be loaded now."""

    def __init__(self, key: str, failure: Failure) -> None:
        super().__init__(f"{key} cannot be loaded: {failure.value}")
        self.failure = failure


def _cost(loaded: Loaded) -> int:
    return len(loaded.data) + 500  # and the entry around it


class _Asked:
    """A key that somebody waits for: one reading, for all who ask before it begins."""

    __slots__ = ("done", "result", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.result: Result = None
        self.waiting: list[_Waiter] = []

    def settle(self, result: Result) -> None:
        """The first result counts."""
        if self.done:
            return
        self.done, self.result = True, result
        for waiter in self.waiting:
            waiter.missing -= 1
            if not waiter.missing and not waiter.future.done():
                waiter.future.set_result(None)
        self.waiting.clear()


class _Waiter:
    """Wakes once, when the last of its keys is there: a future per key would cost a turn of the loop for each."""

    __slots__ = ("future", "missing")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


async def _settled(asked: Collection[_Asked]) -> None:
    waiter = _Waiter(len(asked))
    for one in asked:
        one.waiting.append(waiter)
    await waiter.future


async def _desired_rows(ask: Rows, statements: Queries, asked: list[Where]) -> dict[Where, render.DesiredRow]:
    rows = [[place.cluster, place.shard, stream_of(key), key] for place, key in asked]
    found: dict[Where, render.DesiredRow] = {}
    for row in await ask(statements.desired, {"rows": listed(rows)}):
        found[Place(row[0], row[1]), row[3]] = render.DesiredRow(
            key=row[3], kind=row[4], object_id=row[5], workspace=row[6], action=row[7], number=row[8],
            by_user=bool(row[9]), committed_ms=row[10], trace=row[11], namespace=row[12], name=row[13],
            gone=row[14] > 0,
        )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What was read of a deployment at a place; ``key`` is the same as it was stored."""

    row: render.DeploymentRow
    topology: render.TopologyRow
    key: Any


class _Reading:
    """Reads the objects behind rows of ``desired``, a statement per kind."""

    def __init__(
        self,
        ask: Rows,
        session: AsyncSession | None,  # for what is more than a few short statements
        statements: Queries,
        directory: Directory,
        sealer: Sealer,
        regions: Mapping[str, RegionFacts],
        states: StateCache,
    ) -> None:
        self._ask = ask
        self._session = session
        self._queries = statements
        self._states = states
        self._regions = regions
        self.began = directory.now()
        self.unknown_regions = False
        self.found: dict[Where, render.State | Failure] = {}
        self._deployments: dict[Where, _Deployment] = {}
        self._encoded: dict[Where, render.EncodedDeployment] = {}
        self._sealed: dict[tuple[str, str], Any] = {}  # by environment and name
        self._public_keys: dict[Place, bytes] = {}
        self._directory = directory
        self._sealer = sealer

    async def states(self, wanted: Mapping[Where, render.DesiredRow]) -> dict[Where, render.State | Failure]:
        by_kind: dict[str, dict[Where, str]] = {}
        for where, row in wanted.items():
            by_kind.setdefault(row.kind, {})[where] = row.object_id
        names = {where: row.name for where, row in wanted.items()}
        states: dict[Where, render.State | Failure] = {}
        for kind, asked in by_kind.items():
            if kind == "deployment":
                await self._read_deployments(asked)
            elif kind == "sentinel":
                states |= await self._sentinels(asked)
            elif kind in self._queries.custom:
                states |= await self._custom(kind, asked, names)
        return states

    def public_key(self, place: Place) -> bytes:
        """Of the agent of a place, the same one during the whole reading: another one may join meanwhile."""
        return self._public_keys.setdefault(place, self._directory.public_key(place))

    async def _rows(self, statement: Any, ids: Iterable[str]) -> list[Any]:
        return await self._ask(statement, {"ids": listed(sorted(set(ids)))})

    async def _read_deployments(self, asked: Mapping[Where, str]) -> None:
        rows = {row[0]: tuple(row) for row in await self._rows(self._queries.deployments, asked.values())}
        topology = await self._topology(asked)
        parsed: dict[str, render.DeploymentRow] = {}
        for where, id_ in asked.items():
            row, topo = rows.get(id_), topology.get((id_, where[0]))
            if row is None or topo is None:
                continue  # wanted without being there: ``render.item`` refuses it
            encoded = self._states.get((row, topo))
            if encoded is not None:
                self._encoded[where] = encoded
                continue
            if id_ not in parsed:
                parsed[id_] = _deployment(row)
            self._deployments[where] = _Deployment(parsed[id_], _topology(topo), (row, topo))
        self._sealed = await self._secrets({row.environment for row in parsed.values() if row.template.get("secrets")})

    async def deployments(self) -> dict[Where, render.State | Failure]:
        """Those that were read, with their secrets wrapped. The database is not needed any more."""
        states: dict[Where, render.State | Failure] = dict(self._encoded)
        for count, (where, read) in enumerate(self._deployments.items(), 1):
            if count % _RENDERED == 0:
                await asyncio.sleep(0)
            secrets = await self._wrapped(where[0], read.row, self._sealed)
            try:
                states[where] = Failure.LATER if secrets is None else self._encode(read, secrets)
            except (ValueError, KeyError, TypeError) as error:
                _log.error("a deployment cannot be shown to agents", deployment=read.row.id, error=error)
                states[where] = Failure.BROKEN
        return states

    def _encode(self, read: _Deployment, secrets: list[render.SecretRow]) -> render.State:
        if read.row.template.get("secrets"):
            return render.deployment_state(read.row, read.topology, secrets)
        known = self._states.get(read.key)  # made for another place a moment ago
        if known is None:
            known = render.EncodedDeployment(render.deployment_state(read.row, read.topology, []).to_binary())
            self._states.put(read.key, known)
        return known

    async def _topology(self, asked: Mapping[Where, str]) -> dict[tuple[str, Place], tuple[Any, ...]]:
        """Region, replicas, autoscaling, overrides, desired status, as they are stored."""
        rows = [[id_, place.cluster, place.shard] for (place, _), id_ in asked.items()]
        found: dict[tuple[str, Place], tuple[Any, ...]] = {}
        for row in await self._ask(self._queries.topology, {"rows": listed(rows)}):
            where = row[0], Place(row[1], row[2])
            if row[7] == "gone" and where in found:
                continue
            found[where] = (self._region(row[3]), row[4], row[5], row[6], row[7])
        return found

    async def _secrets(self, environments: set[str]) -> dict[tuple[str, str], Any]:
        if not environments:
            return {}
        return {(row[0], row[1]): row for row in await self._rows(self._queries.secrets, environments)}

    async def _wrapped(
        self, place: Place, row: render.DeploymentRow, sealed: Mapping[tuple[str, str], Any]
    ) -> list[render.SecretRow] | None:
        """The secrets of a deployment for the agent of a place; None when they cannot be wrapped now."""
        found: list[render.SecretRow] = []
        for name in row.template.get("secrets") or ():
            secret = sealed.get((row.environment, name))
            if secret is None:
                continue  # deleted since: the agent cannot be given what is not there, and says what is missing
            public_key = self.public_key(place)
            try:
                wrapped = await self._sealer.rewrap(secret[5], secret[6], public_key) if public_key else b""
            except Exception as error:  # whatever keeps the keys has its own errors, and none may stop other objects
                _log.warning("a secret cannot be wrapped now", secret_id=secret[2], place=str(place), error=str(error))
                return None
            found.append(
                render.SecretRow(
                    id=secret[2],
                    revision=secret[3],
                    wrapped_key=wrapped,
                    ciphertext=secret[4],
                    variables=_variables(document(secret[7])),
                )
            )
        return found

    async def _sentinels(self, asked: Mapping[Where, str]) -> dict[Where, render.State | Failure]:
        rows = {row[0]: row for row in await self._rows(self._queries.sentinels, asked.values())}
        environments = {row[3] for row in rows.values()}
        peers: dict[str, list[Any]] = {}
        for peer in await self._rows(self._queries.peers, environments):
            peers.setdefault(peer[0], []).append(peer)
        states: dict[Where, render.State | Failure] = {}
        for where, id_ in asked.items():
            if id_ not in rows:
                continue
            try:
                states[where] = render.sentinel_state(self._sentinel(rows[id_], peers))
            except (ValueError, KeyError, TypeError) as error:
                _log.error("a gateway cannot be shown to agents", sentinel=id_, error=error)
                states[where] = Failure.BROKEN
        return states

    def _sentinel(self, row: Any, peers: Mapping[str, list[Any]]) -> render.SentinelRow:
        spec = document(row[7]) or {}
        others = [peer for peer in peers.get(row[3], ()) if peer[1] != row[0] and peer[2] != row[8]]
        here = self._regions.get(row[8])
        distances = here.distances if here is not None else {}
        return render.SentinelRow(
            id=row[0], workspace=row[1], project=row[2], environment=row[3], name=row[4], image=row[5],
            replicas=row[6] if row[9] == "running" else 0, resources=spec.get("resources") or {},
            region=self._region(row[8]),
            peers=[
                render.PeerRow(
                    region=self._region(peer[2]),
                    address=peer[3],
                    distance=distances.get(self._region(peer[2]), _FAR),
                    healthy=peer[4] == "healthy",
                )
                for peer in others
            ],
        )  # fmt: skip

    def _region(self, region_id: str) -> str:
        region = self._regions.get(region_id)
        if region is None:
            self.unknown_regions = True
            return ""
        return region.name

    async def _custom(
        self, kind: str, asked: Mapping[Where, str], names: Mapping[Where, str]
    ) -> dict[Where, render.State | Failure]:
        rows = await self._rows(self._queries.custom[kind], asked.values())
        targets: Mapping[str, Any] = {}
        if kind == "route" and rows:
            assert self._session is not None
            targets = await read_targets(self._session, {row[2] for row in rows})
        made = _keys(rows) if kind == "keys" else {}
        states: dict[Where, render.State | Failure] = {}
        if kind != "keys":
            for row in rows:
                try:
                    made[row[0]] = _custom(kind, row, targets)
                except (ValueError, KeyError, TypeError) as error:
                    _log.error("a setting of gateways cannot be shown to agents", key=f"{kind}/{row[0]}", error=error)
                    states |= {where: Failure.BROKEN for where, id_ in asked.items() if id_ == row[0]}
        return states | {
            where: render.custom_state(made[id_], names[where]) for where, id_ in asked.items() if id_ in made
        }


def _topology(row: tuple[Any, ...]) -> render.TopologyRow:
    region, replicas, autoscaling, overrides, status = row
    return render.TopologyRow(
        region=region,
        replicas=replicas,
        autoscaling=document(autoscaling),
        overrides=document(overrides) or {},
        desired_status=status,
    )


def _deployment(row: Any) -> render.DeploymentRow:
    spec, template = document(row[15]) or {}, document(row[12])
    return render.DeploymentRow(
        id=row[0], workspace=row[1], project=row[2], environment=row[3], app=row[4], namespace=row[5], name=row[6],
        app_name=row[7] or "", project_name=row[8] or "", environment_name=row[9] or "", revision=row[10],
        image=row[11], template=template, git=document(row[13]) or template.get("git") or {}, desired_state=row[14],
        drift=spec.get("drift") or "",
    )  # fmt: skip


def _custom(kind: str, row: Any, targets: Mapping[str, Any]) -> render.CustomRow:
    spec = document(row[4])
    made = route_spec(spec, row[2], *targets[row[2]]) if kind == "route" else policy_spec(spec, row[2])
    return render.CustomRow(kind=kind, workspace=row[1], environment=row[2], name=row[3], spec=made)


def _keys(rows: list[Any]) -> dict[str, render.CustomRow]:
    """The keys of an environment are one object: digests, never the keys."""
    found: dict[str, render.CustomRow] = {}
    for row in rows:
        known = found.get(row[0])
        if known is None:
            known = found[row[0]] = render.CustomRow(
                kind="keys", workspace=row[1], environment=row[2], name=row[3], spec={"keys": []}
            )
        if row[4] is not None:
            known.spec["keys"].append(
                {"id": row[4], "name": row[5], "digest": row[6], "prefix": row[7], "expiresAt": row[8],
                 "spec": document(row[9])}
            )  # fmt: skip
    return found


def _variables(spec: Any) -> list[str]:
    names = (spec or {}).get("variables") or ()
    return sorted(names)
