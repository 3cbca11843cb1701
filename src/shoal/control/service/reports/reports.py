"""Takes the agents' reports and commits many of them together.

Reports that arrive during a commit wait for the next one, which takes them all. There is no timer, and a thousand
agents that report at once cost a few commits. A report and its consequences (a ready revision, a ready gateway) are
stored in one transaction. If a batch cannot be stored, its requests are stored one by one, so that only the faulty one
fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sqlalchemy import select

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.control.database.engine import Database, Databases
from shoal.control.database.plain import listed
from shoal.control.database.rows import RowQuery
from shoal.control.database.tables import Sentinel
from shoal.control.database.transaction import DesiredObject, Tx
from shoal.control.domain import gateways
from shoal.control.domain.model import Answers
from shoal.control.service.agents.agents import Member
from shoal.control.service.agents.auth import Caller
from shoal.control.service.config import ServiceConfig
from shoal.control.service.desired.directory import Directory
from shoal.control.service.desired.index import DesiredIndex
from shoal.control.service.desired.reported import Reported
from shoal.control.service.metrics import ServiceMetrics
from shoal.control.service.reports import counting
from shoal.control.service.reports import rows as report_rows
from shoal.control.service.reports.check_jobs import write_results
from shoal.control.service.reports.rows import News, PlaceEpoch, ReportedRow, report_statements, update_values
from shoal.control.service.reports.traffic import CountedTraffic, write_traffic
from shoal.control.service.stream.opened import fenced
from shoal.errors import ServiceUnavailable
from shoal.sync.fingerprint import fingerprint
from shoal.sync.keys import Place, StreamKind, key_of, split_key, stream_of
from shoal.wire.fleet.v1 import cluster_pb as pb

After = Callable[[Tx, set[str]], Awaitable[None]]
AfterAnswers = Callable[[Tx, Mapping[str, Answers]], Awaitable[None]]
Report = pb.DeploymentReport | pb.SentinelReport
_Epochs = dict[Place, int]

_WAITING = 20  # times ``report_batch``: more reports than that are refused
_MAX_KEY = 96

_log = get_logger("control.service.reports")


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows from reports, in the transaction that stores them."""

    deployments: After  # ids
    sentinels: After  # keys
    answers: AfterAnswers | None = None  # by id of the deployment, what gateways counted


@dataclass(slots=True)
class _Request:
    member: Member
    stream: StreamKind
    sequence: int
    reports: list[Report]
    caller: Caller
    done: asyncio.Future[list[str]]
    times: dict[str, pb.HopTimes] = field(default_factory=dict)

    def wheres(self) -> Iterable[tuple[Place, str]]:
        return ((self.member.place, report.key) for report in self.reports)

    def unknown(self, known: set[tuple[Place, str]]) -> list[str]:
        return [key for place, key in self.wheres() if (place, key) not in known]


@dataclass(slots=True)
class _Outcome:
    """What a batch did, to be acted on once it is committed."""

    known: set[tuple[Place, str]] = field(default_factory=set)
    counted: list[tuple[StreamKind, str]] = field(default_factory=list)
    touched: dict[tuple[Place, str], ReportedRow] = field(default_factory=dict)
    news: list[tuple[ReportedRow, News, int]] = field(default_factory=list)
    fenced: list[tuple[_Request, int]] = field(default_factory=list)
    sentinels: list[str] = field(default_factory=list)  # outcomes


class Reports:
    """``run`` must be running for reports to be answered."""

    def __init__(
        self,
        databases: Databases,
        directory: Directory,
        index: DesiredIndex,
        reported: Reported,
        config: ServiceConfig,
        metrics: ServiceMetrics,
        consequences: Consequences,
        *,
        clock: Clock,
    ) -> None:
        self._databases = databases
        self._directory = directory
        self._index = index
        self._reported = reported
        self._config = config
        self._metrics = metrics
        self._consequences = consequences
        self._clock = clock
        self._queue: deque[_Request] = deque()
        self._count = 0  # reports that wait
        self._arrived = asyncio.Event()

    def use(self, config: ServiceConfig) -> None:
        """Replace the settings."""
        self._config = config

    async def take(
        self,
        caller: Caller,
        member: Member,
        stream: StreamKind,
        sequence: int,
        reports: Iterable[Report],
        *,
        times: Iterable[pb.HopTimes] = (),
    ) -> pb.ReportResponse:
        """Returns once the reports are committed."""
        started = self._clock.monotonic()
        request = _Request(member, stream, sequence, list(reports), caller, asyncio.get_running_loop().create_future())
        request.times = {one.key: one for one in times}
        for report in request.reports:
            _check_key(report.key, stream)
        if self._count + len(request.reports) > _WAITING * self._config.report_batch:
            raise ConnectError(Code.RESOURCE_EXHAUSTED, "too many reports are waiting to be stored: try again later")
        result = "failed"
        try:
            if request.reports:
                self._queue.append(request)
                self._count += len(request.reports)
                self._arrived.set()
            else:
                request.done.set_result([])
            unknown = await request.done
            result = "ok"
            if unknown:
                self._metrics.reports.labels(stream, "unknown").inc(len(unknown))
        finally:
            self._metrics.report_s.labels(stream, result).observe(self._clock.monotonic() - started)
        return pb.ReportResponse(unknown=unknown)

    async def run(self) -> None:
        self._arrived.set()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._next_batch():
                try:
                    await self._commit(batch)
                finally:
                    for request in batch:
                        if not request.done.done():
                            request.done.set_exception(ConnectError(Code.UNAVAILABLE, "reports cannot be stored now"))

    def _next_batch(self) -> list[_Request]:
        batch: list[_Request] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].reports) <= self._config.report_batch):
            request = self._queue.popleft()
            size += len(request.reports)
            if not request.done.done():  # the caller is still connected
                batch.append(request)
        self._count -= size
        return batch

    async def _commit(self, batch: list[_Request]) -> None:
        self._metrics.report_batch.observe(len(batch))
        outcome = _Outcome()
        try:
            allowed = await self._allowed(batch, outcome) if len(self._databases.all) > 1 else batch
            for database in self._databases.all:
                allowed = await self._commit_in(database, allowed, outcome)
        except ServiceUnavailable as error:
            _fail(batch, ConnectError(Code.UNAVAILABLE, str(error)))
            return
        except Exception as error:  # a fault in what follows from one report must not stop the reports of all
            _log.error("reports cannot be stored", error=error, requests=len(batch))
            if len(batch) == 1:
                _fail(batch, ConnectError(Code.INTERNAL, "the report cannot be stored"))
                return
            for request in batch:
                await self._commit([request])
            return
        self._record(outcome)
        for request, newest in outcome.fenced:
            _fail([request], fenced(request.member.place, request.member.epoch, newest))
        for request in batch:
            if not request.done.done():
                request.done.set_result(request.unknown(outcome.known))

    async def _allowed(self, batch: list[_Request], outcome: _Outcome) -> list[_Request]:
        """Before anything is stored: without the requests that some database would refuse."""
        seen: _Epochs = {}
        for database in self._databases.all:
            wheres = self._wheres(database, batch)
            async with database.moment() as ask:
                if database is self._databases.fleet:
                    _note(seen, await ask(*_epochs_of(batch, database.dialect)))
                if wheres:
                    _note(seen, await ask(report_statements(database.dialect).seen, {"rows": _keys(wheres)}))
        return self._unfenced(batch, seen, outcome)

    async def _commit_in(self, database: Database, batch: list[_Request], outcome: _Outcome) -> list[_Request]:
        """Store what belongs to a database; returns the requests that are not fenced.

        The epochs are read while no other report can be stored in this database, so a report of a newer epoch is
        stored after the last one of an older epoch, in every database."""
        wheres = self._wheres(database, batch)
        if not wheres:
            return batch
        trace = batch[0].caller.trace if len(batch) == 1 else ""
        done = _Outcome()
        async with database.transaction(actor="agents", trace=trace, short=True) as tx:
            rows = await _read_rows(tx, wheres)
            batch = self._unfenced(batch, await self._epochs(tx, database, batch, rows.values()), done)
            writer = _Writer(tx, rows, done)
            for request in batch:
                writer.take(request)
            if done.touched:
                touched = [update_values(row) for row in done.touched.values()]
                await tx.ask(report_statements(tx.dialect).update, {"rows": listed(touched)})
            await writer.write_instances()
            await writer.write_check_jobs()
            await writer.write_hops()
            await writer.write_traffic()
            with tx.caused_by(writer.cause):
                if writer.deployments:
                    await self._consequences.deployments(tx, writer.deployments)
                if writer.sentinel_keys:
                    done.sentinels = await self._sentinels(tx, writer)
        outcome.known |= done.known
        outcome.counted += done.counted
        outcome.touched |= done.touched
        outcome.news += done.news
        outcome.fenced += done.fenced
        outcome.sentinels += done.sentinels
        return batch

    async def _sentinels(self, tx: Tx, writer: _Writer) -> list[str]:
        """Let gateways become ready, and count which did."""
        ids = {split_key(key)[1] for key in writer.sentinel_keys if key.startswith("sentinel/")}
        before = await _deploy_statuses(tx, ids)
        await self._consequences.sentinels(tx, writer.sentinel_keys)
        if writer.answers and self._consequences.answers is not None:
            await self._consequences.answers(tx, writer.answers)
        await writer.tell_peers()
        after = await _deploy_statuses(tx, ids)
        return [_sentinel_outcome(before.get(id_, ""), after.get(id_, "")) for id_ in sorted(ids)]

    def _wheres(self, database: Database, batch: list[_Request]) -> set[tuple[Place, str]]:
        return {where for request in batch for where in request.wheres() if self._may_be_in(database, where)}

    def _may_be_in(self, database: Database, where: tuple[Place, str]) -> bool:
        entry = self._index.of(where[0], stream_of(where[1])).entries.get(where[1])
        return entry is None or entry.database == database.name

    async def _epochs(self, tx: Tx, database: Database, batch: list[_Request], rows: Iterable[ReportedRow]) -> _Epochs:
        """The newest epoch of each place: of those that the fleet's database issued, and those that reported here."""
        seen: _Epochs = {}
        if database is self._databases.fleet:
            _note(seen, await tx.ask(*_epochs_of(batch, tx.dialect)))
        else:
            async with self._databases.fleet.moment() as ask:
                _note(seen, await ask(*_epochs_of(batch, self._databases.fleet.dialect)))
        _note(seen, (PlaceEpoch(row.cluster_id, row.shard, row.report_epoch) for row in rows))
        return seen

    def _unfenced(self, batch: list[_Request], seen: _Epochs, outcome: _Outcome) -> list[_Request]:
        """Without those whose place has a newer epoch by now. The directory learns of it, so that the next join is
        above what any database has seen."""
        kept = []
        for request in batch:
            newest = seen.get(request.member.place, 0)
            if request.member.epoch < newest:
                self._directory.saw_epoch(request.member.place, newest)
                outcome.fenced.append((request, newest))
            else:
                kept.append(request)
        return kept

    def _record(self, outcome: _Outcome) -> None:
        """Update the memory and the metrics of this process after the commit."""
        for (place, key), row in outcome.touched.items():
            self._reported.put(place, row.stream, key, row.fingerprint)
            if row.gone_at:
                self._index.confirm_gone(place, row.stream, key)
        for stream, result in outcome.counted:
            self._metrics.reports.labels(stream, result).inc()
        for result in outcome.sentinels:
            self._metrics.sentinels_ready.labels(result).inc()
        for row, news, now_ms in outcome.news:
            if news.applied:
                if row.correlation:
                    _log.info("change applied in a cluster", correlation=row.correlation, key=row.key,
                              number=row.number, place=str(row.place))  # fmt: skip
                self._metrics.hops.labels(row.stream, "applied").observe(
                    max(0, (row.applied_at or now_ms) - row.committed_at) / 1000
                )
            if news.ready:
                self._metrics.hops.labels(row.stream, "ready").observe(max(0, now_ms - row.committed_at) / 1000)


class _Writer:
    """The reports of a batch, gathered row by row and then written."""

    def __init__(self, tx: Tx, rows: dict[tuple[Place, str], ReportedRow], outcome: _Outcome) -> None:
        self._tx = tx
        self._statements = report_statements(tx.dialect)
        self._rows = rows
        self._outcome = outcome
        self._instances: dict[tuple[Place, str], tuple[ReportedRow, str, list[pb.Instance]]] = {}
        self._check_jobs: dict[tuple[Place, str], list[pb.CheckJobResult]] = {}
        self.deployments: set[str] = set()  # ids, about which something new was said
        self.sentinel_keys: set[str] = set()
        self.answers: dict[str, Answers] = {}  # by deployment
        self._counted: list[CountedTraffic] = []
        self._moved: set[str] = set()  # gateways whose entries or health are others
        self._hops: list[list[int]] = []  # of changes that requests led to, as ``ReportStatements.hops`` takes them
        self._causes: set[str] = set()  # the requests that what was reported follows from
        outcome.known |= rows.keys()

    def take(self, request: _Request) -> None:
        place = request.member.place
        for report in request.reports:
            where = (place, report.key)
            row = self._rows.get(where)
            if row is None:
                continue
            order = (request.member.epoch, request.sequence)
            print_ = fingerprint(report)
            result = report_rows.judge(row, order, print_)
            self._outcome.counted.append((request.stream, result))
            if result == "old":
                continue
            last, before = row.observed, _reachable(row)
            row = row._replace(report_epoch=order[0], report_sequence=order[1])
            self._rows[where] = self._outcome.touched[where] = row
            if result == "same":
                continue
            row, news = report_rows.take(row, report, print_, self._tx.incarnation, self._tx.now)
            if row.kind == "sentinel":
                row = self._count(request, row, last)
            self._rows[where] = self._outcome.touched[where] = row
            self._outcome.news.append((row, news, self._tx.now))
            self._causes.add(row.correlation)
            if row.correlation and (news.applied or news.ready):
                self._hops.append(report_rows.hops(row, news, request.times.get(row.key), self._tx.now))
            with self._tx.caused_by(row.correlation):
                self._tell(request, row, news)
            if isinstance(report, pb.DeploymentReport):
                instances = [] if report.gone else list(report.instances)
                self._instances[where] = (row, request.member.cluster.region_id, instances)
                self.deployments.add(row.object_id)
                if report.check_jobs:
                    self._check_jobs[where] = list(report.check_jobs)
                continue
            self.sentinel_keys.add(row.key)
            if row.kind == "sentinel" and _reachable(row) != before:
                self._moved.add(row.object_id)

    def _count(self, request: _Request, row: ReportedRow, last: Any) -> ReportedRow:
        """Note what a gateway counted since its last report."""
        assert row.observed is not None
        counted = counting.count(last, row.observed["stats"], self._tx.now)
        for id_, found in counted.answers().items():
            self.answers[id_] = Answers(request.member.cluster.region, *found)
        if counted.parts:
            region_id = request.member.cluster.region_id
            self._counted.append(CountedTraffic(row.workspace_id, row.object_id, region_id, counted.parts))
        return row._replace(observed={**row.observed, "counted": counted.memory})

    async def write_traffic(self) -> None:
        await write_traffic(self._tx, self._counted)

    @property
    def cause(self) -> str:
        """The one request that the news follow from; empty if there are several."""
        return next(iter(self._causes)) if len(self._causes) == 1 else ""

    async def write_hops(self) -> None:
        if self._hops:
            await self._tx.ask(self._statements.hops, {"rows": listed(self._hops)})

    async def write_instances(self) -> None:
        if not self._instances:
            return
        scopes, values, kept = [], [], set()
        for row, region_id, instances in self._instances.values():
            scopes.append([row.workspace_id, row.object_id, row.cluster_id, row.shard])
            for instance in instances:
                uid = report_rows.uid_of(instance)
                if (row.cluster_id, uid) not in kept:
                    kept.add((row.cluster_id, uid))
                    values.append(report_rows.instance_values(row, region_id, instance, self._tx.now))
        ask = self._tx.ask
        known = await ask(self._statements.instances, {"rows": listed(scopes)})
        removed = [[one.cluster_id, one.uid] for one in known if (one.cluster_id, one.uid) not in kept]
        if removed:
            await ask(self._statements.remove, {"rows": listed(removed)})
        if values:
            await ask(self._statements.upsert, {"rows": listed(values)})

    async def write_check_jobs(self) -> None:
        """Add what agents say of the jobs of rollouts' checks to the rows that they were told in."""
        for (place, key), results in self._check_jobs.items():
            await write_results(self._tx, place, split_key(key)[1], results)

    async def tell_peers(self) -> None:
        """Gateways send traffic to those of the same environment in other regions: they need a new address."""
        if not self._moved:
            return
        here = select(Sentinel.workspace_id, Sentinel.environment_id).where(Sentinel.id.in_(sorted(self._moved)))
        wanted: dict[str, DesiredObject] = {}
        for home in (await self._tx.session.execute(here)).all():
            peers = await gateways.peers_of(self._tx.session, home.workspace_id, home.environment_id)
            wanted |= {one.key: one for one in peers}
        if len(self._moved) == 1:  # what it says of itself changes nothing for itself
            wanted.pop(key_of("sentinel", next(iter(self._moved))), None)
        await self._tx.want_many([wanted[key] for key in sorted(wanted)])

    def _tell(self, request: _Request, row: ReportedRow, news: News) -> None:
        region = request.member.cluster.region
        kind = row.kind.capitalize()
        if news.error and row.error is not None:
            self._tx.event(
                workspace_id=row.workspace_id, kind=kind, object_id=row.object_id, name=row.key, reason="ApplyFailed",
                type="Warning", message=f"{row.error['reason']}: {row.error['message']}", region=region,
            )  # fmt: skip
        if news.fault and row.observed is not None:
            fault = row.observed["fault"]
            self._tx.event(
                workspace_id=row.workspace_id, kind=kind, object_id=row.object_id, name=row.key, type="Warning",
                reason=fault["reason"], message=fault["message"], region=region,
            )  # fmt: skip
        if news.drift and row.observed is not None:
            self._tx.event(
                workspace_id=row.workspace_id, kind=kind, object_id=row.object_id, name=row.key, reason="Drifted",
                type="Warning", region=region,
                message=f"changed in the cluster: {', '.join(row.observed['drift'][:10])}",
            )  # fmt: skip


def _epochs_of(batch: list[_Request], dialect: str) -> tuple[RowQuery[PlaceEpoch], dict[str, Any]]:
    """The question for the epochs that the places of a batch were given last."""
    clusters = {request.member.place.cluster for request in batch}
    return report_statements(dialect).epochs, {"ids": listed(sorted(clusters))}


def _note(seen: _Epochs, found: Iterable[PlaceEpoch]) -> None:
    for row in found:
        place = Place(row.cluster_id, row.shard)
        seen[place] = max(seen.get(place, 0), row.epoch)


def _keys(wheres: set[tuple[Place, str]]) -> str:
    return listed([[place.cluster, place.shard, stream_of(key), key] for place, key in sorted(wheres)])


async def _read_rows(tx: Tx, wheres: set[tuple[Place, str]]) -> dict[tuple[Place, str], ReportedRow]:
    found: dict[tuple[Place, str], ReportedRow] = {}
    for row in await tx.ask(report_statements(tx.dialect).rows, {"rows": _keys(wheres)}):
        found[Place(row.cluster_id, row.shard), row.key] = row.with_documents()
    return found


async def _deploy_statuses(tx: Tx, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    await tx.session.flush()
    found = await tx.session.execute(select(Sentinel.id, Sentinel.deploy_status).where(Sentinel.id.in_(sorted(ids))))
    return {row.id: row.deploy_status for row in found}


def _sentinel_outcome(before: str, after: str) -> str:
    if not before:
        return "not_found"
    if after != "ready":
        return "not_converged"
    return "ready" if before != "ready" else "superseded"


def _reachable(row: ReportedRow) -> tuple[Any, Any]:
    observed = row.observed or {}
    return observed.get("entries"), observed.get("health")


def _check_key(key: str, stream: StreamKind) -> None:
    try:
        split_key(key)
    except ValueError as error:
        raise ConnectError(Code.INVALID_ARGUMENT, f"reports.key: {error}") from None
    if stream_of(key) != stream or len(key) > _MAX_KEY:
        raise ConnectError(Code.INVALID_ARGUMENT, f"reports.key: {key[:_MAX_KEY]!r} does not belong to {stream}")


def _fail(batch: list[_Request], error: ConnectError) -> None:
    for request in batch:
        if not request.done.done():
            request.done.set_exception(error)
