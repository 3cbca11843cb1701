"""Effects of a report on database rows: pure decisions, and the statements that write them.

Reports of one object are ordered by (epoch, sequence): what is not newer than the last one taken is old news. A report
that says the same as the last one changes nothing but that order. Many rows are one statement, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import TextClause, text

from shoal.control.database.plain import clean, document
from shoal.control.database.rows import RowQuery
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb

_STATUS = {
    pb.InstanceStatus.PENDING: "pending",
    pb.InstanceStatus.RUNNING: "running",
    pb.InstanceStatus.FAILED: "failed",
}
_HEALTH = {
    pb.SentinelHealth.HEALTHY: "healthy",
    pb.SentinelHealth.UNHEALTHY: "unhealthy",
    pb.SentinelHealth.PAUSED: "paused",
}
_LONG_TEXT = 4096
_MAX_STATS_BYTES = 64 << 10
_MAX_ENTRIES, _MAX_VERDICTS = 16, 20


@dataclass(slots=True, kw_only=True)
class Row:
    """A row of ``desired`` as reports see it."""

    place: Place
    stream: str
    key: str
    kind: str
    object_id: str
    workspace_id: str
    action: str
    number: int
    committed_ms: int
    applied: tuple[int, int]
    applied_ms: int
    error: dict[str, Any] | None
    observed: dict[str, Any] | None
    observed_ms: int
    order: tuple[int, int]  # (epoch, sequence) of the last report
    fingerprint: int
    gone_ms: int

    def values(self) -> list[Any]:
        return [
            self.place.cluster, self.place.shard, self.stream, self.key, *self.applied, self.applied_ms,
            self.observed_ms, *self.order, self.fingerprint, self.gone_ms, self.error, self.observed,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The change made by a stored report, for the code that acts on it."""

    applied: bool = False  # a version was applied that was not before, and it is the newest
    ready: bool = False  # the newest version came to run in full
    error: str = ""  # a reason that was not there before
    drift: bool = False


def judge(row: Row, order: tuple[int, int], fingerprint: int) -> str:
    """``stored``, ``same`` (as the last one) or ``old``."""
    if order <= row.order:
        return "old"
    return "same" if fingerprint == row.fingerprint else "stored"


def take(
    row: Row, report: pb.DeploymentReport | pb.SentinelReport, fingerprint: int, incarnation: int, now_ms: int
) -> News:
    """Write a report into its row. The row's number counts in the database's current incarnation."""
    newest = (incarnation, row.number)
    before, ready_before = row.applied, row.applied == newest and _in_full(row.observed)
    errors = (row.error or {}).get("reason", "")
    drifted = bool((row.observed or {}).get("drift")) and before in (newest, (0, 0))
    if report.applied is not None:
        said = (report.applied.incarnation, report.applied.number)
        row.applied = said if said[0] == incarnation else (said[0], 0)  # numbers of another history do not compare
        row.applied_ms = getattr(report, "applied_ms", 0) or (row.applied_ms if before == row.applied else now_ms)
    row.error = _error(report.error)
    row.observed = observed(report)
    row.observed_ms = now_ms
    row.fingerprint = 0 if report.gone else fingerprint
    row.gone_ms = now_ms if report.gone and row.action != "apply" else 0
    reason = (row.error or {}).get("reason", "")
    # what is on its way there, or away, differs for a moment; that is not drift yet
    settled = row.action == "apply" and (report.applied is None or row.applied == newest)
    return News(
        applied=row.applied == newest and before != newest,
        ready=row.applied == newest and _in_full(row.observed) and not ready_before,
        error=reason if reason != errors else "",
        drift=bool(row.observed.get("drift")) and settled and not drifted,
    )


def observed(report: pb.DeploymentReport | pb.SentinelReport) -> dict[str, Any]:
    """What the cluster shows, as it is stored."""
    found: dict[str, Any] = {
        "desired": report.desired_replicas,
        "available": report.available_replicas,
        "gone": report.gone,
        "seen": report.observed_ms,
    }
    if isinstance(report, pb.DeploymentReport):
        return found | {
            "drift": [clean(path) for path in report.drift],
            "name": clean(report.live_name),
            "ready": sum(instance.ready for instance in report.instances),
        }
    return found | {
        "health": health_of(report),
        "image": clean(report.running_image),
        "address": clean(report.address),
        "entries": [clean(entry) for entry in report.entries[:_MAX_ENTRIES]],
        "stats": _stats(report.stats),
        "refused": [
            {"gateway": clean(one.sentinel), "message": clean(one.message, _LONG_TEXT)}
            for one in report.verdicts[:_MAX_VERDICTS]
            if not one.accepted
        ],
        "accepted": sum(one.accepted for one in report.verdicts),
    }


def health_of(report: pb.SentinelReport) -> str:
    return _HEALTH.get(report.health, "unknown")


def uid_of(instance: pb.Instance) -> str:
    return clean(instance.uid or instance.name, 64)


def instance_values(row: Row, region_id: str, instance: pb.Instance, now_ms: int) -> list[Any]:
    """A row of ``instances``; what is not said to be ready is not."""
    return [
        row.place.cluster, uid_of(instance), row.workspace_id, row.object_id, region_id,
        row.place.shard, clean(instance.name), clean(instance.address), clean(instance.node), clean(instance.zone),
        _STATUS.get(instance.status, "pending"), clean(instance.reason), clean(instance.message, _LONG_TEXT),
        instance.ready, instance.restarts, instance.exit_code, instance.cpu_millicores, instance.memory_mib,
        instance.started_ms, now_ms,
    ]  # fmt: skip


def _in_full(observed: dict[str, Any] | None) -> bool:
    return observed is not None and observed["available"] >= observed["desired"] > 0


def _error(error: pb.ApplyError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "number": error.version.number if error.version is not None else 0,
        "reason": clean(error.reason),
        "message": clean(error.message, _LONG_TEXT),
        "attempts": error.attempts,
        "since": error.since_ms,
    }


def _stats(content: bytes) -> Any:
    """JSON as the sentinel wrote it; what is not JSON or too much of it is left out."""
    if not content or len(content) > _MAX_STATS_BYTES or b"\\u0000" in content:
        return None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


class StoredRow(NamedTuple):
    """A row of ``desired`` with what was reported of it."""

    cluster_id: str
    shard: str
    stream: str
    key: str
    kind: str
    object_id: str
    workspace_id: str
    action: str
    number: int
    committed_at: int
    applied_incarnation: int
    applied_number: int
    applied_at: int
    error: Any
    observed: Any
    observed_at: int
    report_epoch: int
    report_sequence: int
    fingerprint: int
    gone_at: int

    def parsed(self) -> Row:
        return Row(
            place=Place(self.cluster_id, self.shard), stream=self.stream, key=self.key, kind=self.kind,
            object_id=self.object_id, workspace_id=self.workspace_id, action=self.action, number=self.number,
            committed_ms=self.committed_at, applied=(self.applied_incarnation, self.applied_number),
            applied_ms=self.applied_at, error=document(self.error), observed=document(self.observed),
            observed_ms=self.observed_at, order=(self.report_epoch, self.report_sequence),
            fingerprint=self.fingerprint, gone_ms=self.gone_at,
        )  # fmt: skip


class PlaceEpoch(NamedTuple):
    cluster_id: str
    shard: str
    epoch: int


class InstanceId(NamedTuple):
    cluster_id: str
    uid: str


_PLACE = ("cluster_id", "shard", "stream", "key")
_NUMBERS = (
    "applied_incarnation", "applied_number", "applied_at", "observed_at", "report_epoch", "report_sequence",
    "fingerprint", "gone_at",
)  # fmt: skip
_INSTANCE_TEXTS = (
    "cluster_id", "uid", "workspace_id", "deployment_id", "region_id", "shard", "name", "address", "node", "zone",
    "status", "reason", "message",
)  # fmt: skip
_INSTANCE_NUMBERS = ("restarts", "exit_code", "cpu_millicores", "memory_mib", "started_at", "reported_at")


@dataclass(frozen=True, slots=True)
class ReportStatements:
    epochs: RowQuery[PlaceEpoch]  # ids of clusters
    rows: RowQuery[StoredRow]  # rows: [cluster, shard, stream, key]
    update: TextClause  # rows: ``Row.values``
    instances: RowQuery[InstanceId]  # rows: [workspace, deployment, cluster, shard]
    upsert: TextClause  # rows: ``instance_values``
    remove: TextClause  # rows: [cluster, uid]


def _build(dialect: str) -> ReportStatements:
    sqlite = dialect == "sqlite"
    source = "json_each(:rows) AS r" if sqlite else "jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value)"

    def words(n: int) -> str:
        return f"json_extract(r.value, '$[{n}]')" if sqlite else f"(r.value->>{n})"

    def number(n: int, kind: str = "bigint") -> str:
        return words(n) if sqlite else f"CAST(r.value->>{n} AS {kind})"

    def json(n: int) -> str:
        return words(n) if sqlite else f"NULLIF(r.value->{n}, CAST('null' AS jsonb))"

    place = " AND ".join(f"d.{name} = {words(n)}" for n, name in enumerate(_PLACE))
    plain_place = place.replace("d.", "desired.")
    settings = [f"{name} = {number(n)}" for n, name in enumerate(_NUMBERS, len(_PLACE))]
    after = len(_PLACE) + len(_NUMBERS)
    settings += [f"error = {json(after)}", f"observed = {json(after + 1)}"]
    texts = len(_INSTANCE_TEXTS)
    columns = [*_INSTANCE_TEXTS, "ready", *_INSTANCE_NUMBERS]
    values = [
        *(words(n) for n in range(texts)),
        number(texts, "boolean"),
        *(number(n) for n in range(texts + 1, len(columns))),
    ]
    kept = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in ("cluster_id", "uid"))
    ids = "SELECT value FROM json_each(:ids)" if sqlite else "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))"
    return ReportStatements(
        epochs=RowQuery(f"SELECT cluster_id, shard, epoch FROM agents WHERE cluster_id IN ({ids})", PlaceEpoch),
        rows=RowQuery(
            "SELECT d.cluster_id, d.shard, d.stream, d.key, d.kind, d.object_id, d.workspace_id, d.action, d.number, "
            "d.committed_at, d.applied_incarnation, d.applied_number, d.applied_at, d.error, d.observed, "
            "d.observed_at, d.report_epoch, d.report_sequence, d.fingerprint, d.gone_at "
            f"FROM {source} JOIN desired AS d ON {place}",
            StoredRow,
        ),
        update=text(f"UPDATE desired SET {', '.join(settings)} FROM {source} WHERE {plain_place}"),
        instances=RowQuery(
            f"SELECT i.cluster_id, i.uid FROM {source} JOIN instances AS i ON i.workspace_id = {words(0)} "
            f"AND i.deployment_id = {words(1)} AND i.cluster_id = {words(2)} AND i.shard = {words(3)}",
            InstanceId,
        ),
        upsert=text(
            f"INSERT INTO instances ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source} WHERE true "
            f"ON CONFLICT (cluster_id, uid) DO UPDATE SET {kept}"
        ),
        remove=text(f"DELETE FROM instances WHERE (cluster_id, uid) IN (SELECT {words(0)}, {words(1)} FROM {source})"),
    )


_BUILT = {dialect: _build(dialect) for dialect in ("sqlite", "postgresql")}


def report_statements(dialect: str) -> ReportStatements:
    return _BUILT[dialect]
