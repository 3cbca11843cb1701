"""Effects of a report on database rows: pure decisions, and the statements that write them.

Reports of one object are ordered by (epoch, sequence); a report that is not newer than the last one is ignored. A
report with the same content as the last one changes only that order. Many rows are written with one statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import orjson
from sqlalchemy import TextClause, text

from shoal.control.database.plain import clean, document
from shoal.control.database.rows import RowQuery
from shoal.control.database.statements import DESIRED_KEY, desired_by_key, json_rows, json_text
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
TOLD = "told"  # in what is stored of a report: which faults users were told of
_PULL, _PULL_FAULTS = "ErrImagePull", ("ErrImagePull", "ImagePullBackOff")
_PAUSE_MS, _MAX_PAUSE_MS, _MAX_CAUSES = 60_000, 3_600_000, 8
_LONG_TEXT = 4096
_MAX_STATS_BYTES = 256 << 10
_MAX_ENTRIES, _MAX_VERDICTS = 16, 20


class ReportedRow(NamedTuple):
    """A row of ``desired`` with what was reported of it; the fields are columns."""

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
    correlation: str
    applied_incarnation: int
    applied_number: int
    applied_at: int
    error: Any  # a document; ``with_documents`` decodes it
    observed: Any
    observed_at: int
    report_epoch: int
    report_sequence: int
    fingerprint: int
    gone_at: int

    @property
    def place(self) -> Place:
        return Place(self.cluster_id, self.shard)

    @property
    def applied(self) -> tuple[int, int]:
        return self.applied_incarnation, self.applied_number

    @property
    def order(self) -> tuple[int, int]:
        """Of the last report: (epoch, sequence)."""
        return self.report_epoch, self.report_sequence

    def with_documents(self) -> ReportedRow:
        return self._replace(error=document(self.error), observed=document(self.observed))


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The change made by a stored report, for the code that acts on it."""

    applied: bool = False  # a version was applied that was not before, and it is the newest
    ready: bool = False  # the newest version came to run in full
    error: str = ""  # a reason that was not there before
    fault: bool = False  # fewer run than desired, for a reason that was not told yet, or not for a while
    drift: bool = False


def judge(row: ReportedRow, order: tuple[int, int], fingerprint: int) -> str:
    """``stored``, ``same`` (as the last one) or ``old``."""
    if order <= row.order:
        return "old"
    return "same" if fingerprint == row.fingerprint else "stored"


def take(
    row: ReportedRow, report: pb.DeploymentReport | pb.SentinelReport, fingerprint: int, incarnation: int, now_ms: int
) -> tuple[ReportedRow, News]:
    """The row after a report, and what is new in it. Its number counts in the database's current incarnation."""
    applied, applied_at = row.applied, row.applied_at
    if report.applied is not None:
        said = (report.applied.incarnation, report.applied.number)
        applied = said if said[0] == incarnation else (said[0], 0)  # numbers of another history do not compare
        applied_at = getattr(report, "applied_ms", 0) or (applied_at if row.applied == applied else now_ms)
    seen = observed(report)
    told, is_news = _told(row, seen, now_ms)
    taken = row._replace(
        applied_incarnation=applied[0],
        applied_number=applied[1],
        applied_at=applied_at,
        error=_error(report.error),
        observed=seen | ({TOLD: told} if told else {}),
        observed_at=now_ms,
        fingerprint=0 if report.gone else fingerprint,
        gone_at=now_ms if report.gone and row.action != "apply" else 0,
    )
    news = _news(row, taken, (incarnation, row.number), is_version_known=report.applied is not None)
    return taken, replace(news, fault=is_news)


def _told(row: ReportedRow, seen: dict[str, Any], now_ms: int) -> tuple[dict[str, Any], bool]:
    """What users were told of the faults of the version that is wanted: by cause, when, and how long it is not told
    again; and whether they are to be told of the one that is seen. A pod that starts and ends again and again shows its
    faults in turn, so one that comes back is told after a pause only, which grows."""
    before = row.observed or {}
    known = before.get(TOLD) or {}
    causes = dict(known.get("causes") or {}) if known.get("version") == row.number else {}
    cause = _cause(seen)
    at, pause_ms = causes.get(cause) or (0, 0)
    is_news = cause not in ("", _cause(before)) and now_ms >= at + pause_ms
    if is_news:
        lately = now_ms < at + 2 * _MAX_PAUSE_MS
        causes.pop(cause, None)  # to the end: the oldest go first
        causes[cause] = (now_ms, min(2 * pause_ms, _MAX_PAUSE_MS) if lately and pause_ms else _PAUSE_MS)
        causes = dict(list(causes.items())[-_MAX_CAUSES:])
    return ({"version": row.number, "causes": causes} if causes else {}), is_news


def _news(before: ReportedRow, after: ReportedRow, newest: tuple[int, int], *, is_version_known: bool) -> News:
    reason = (after.error or {}).get("reason", "")
    drifted = bool((before.observed or {}).get("drift")) and before.applied in (newest, (0, 0))
    # what is on its way there, or away, differs for a moment; that is not drift yet
    settled = after.action == "apply" and (after.applied == newest or not is_version_known)
    ready_before = before.applied == newest and _in_full(before.observed)
    return News(
        applied=after.applied == newest and before.applied != newest,
        ready=after.applied == newest and _in_full(after.observed) and not ready_before,
        error=reason if reason != (before.error or {}).get("reason", "") else "",
        drift=bool(after.observed.get("drift")) and settled and not drifted,
    )


def hops(row: ReportedRow, news: News, times: pb.HopTimes | None, now_ms: int) -> list[int]:
    """The number of the change, and when it was received, applied, reported and ready; 0 for what is not known."""
    received_at = times.received_ms if times is not None else 0
    applied_at = (times.applied_ms if times is not None else 0) or row.applied_at
    return [row.number, received_at, applied_at, now_ms, now_ms if news.ready else 0]


def observed(report: pb.DeploymentReport | pb.SentinelReport) -> dict[str, Any]:
    """What the cluster shows, as it is stored."""
    found: dict[str, Any] = {
        "desired": report.desired_replicas,
        "available": report.available_replicas,
        "gone": report.gone,
        "seen": report.observed_ms,
    }
    if report.reason:
        found["fault"] = {"reason": clean(report.reason, 64), "message": clean(report.message, _LONG_TEXT)}
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
        "versions": {clean(one.sentinel): _number(one) for one in report.verdicts[:_MAX_VERDICTS] if one.accepted},
        "stale": [clean(pod) for pod in report.stale[:_MAX_VERDICTS]],
        "takenOut": [clean(pod) for pod in report.taken_out[:_MAX_VERDICTS]],
        "waiting": [clean(pod) for pod in report.waiting[:_MAX_VERDICTS]],
        **({"splits": True} if report.splits else {}),
        **({"candidate": _candidate(report.candidate)} if report.candidate is not None else {}),
    }


def _candidate(found: pb.SentinelCandidateReport) -> dict[str, Any]:
    """Of a gateway: the pods of the version that is being rolled out."""
    return {
        "revision": found.revision,
        "pods": found.replicas,
        "ready": found.ready,
        "restarts": found.restarts,
        "reason": clean(found.reason, 64),
        "message": clean(found.message, _LONG_TEXT),
    }


def _number(verdict: pb.Verdict) -> int:
    """Of the version that a gateway has accepted; 0 where its agent is of an earlier release."""
    return verdict.version.number if verdict.version is not None else 0


def health_of(report: pb.SentinelReport) -> str:
    """``stale``: all of its replicas serve, but none has heard of its cluster for a while. One that its Service does
    not lead to does not count."""
    health = _HEALTH.get(report.health, "unknown")
    if health == "unhealthy" and report.candidate is not None and report.candidate.ready:
        health = "healthy"  # the pods of another version serve while the stable ones are replaced
    silent = set(report.stale).difference(report.taken_out)
    return "stale" if health == "healthy" and 0 < report.available_replicas <= len(silent) else health


def uid_of(instance: pb.Instance) -> str:
    return clean(instance.uid or instance.name, 64)


def instance_values(row: ReportedRow, region_id: str, instance: pb.Instance, now_ms: int) -> list[Any]:
    """A row of ``instances``; what is not said to be ready is not."""
    return [
        row.cluster_id, uid_of(instance), row.workspace_id, row.object_id, region_id,
        row.shard, clean(instance.name), clean(instance.address), clean(instance.node), clean(instance.zone),
        _STATUS.get(instance.status, "pending"), clean(instance.reason), clean(instance.message, _LONG_TEXT),
        instance.ready, instance.outdated, instance.restarts, instance.exit_code, instance.cpu_millicores,
        instance.memory_mib, instance.started_ms, now_ms,
    ]  # fmt: skip


def _in_full(observed: dict[str, Any] | None) -> bool:
    return observed is not None and observed["available"] >= observed["desired"] > 0


def _cause(observed: dict[str, Any]) -> str:
    """Of a fault that is seen. A failed pull, and the pause before the next one, are the same."""
    reason = str((observed.get("fault") or {}).get("reason") or "")
    return _PULL if reason in _PULL_FAULTS else reason


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


class PlaceEpoch(NamedTuple):
    cluster_id: str
    shard: str
    epoch: int


class InstanceId(NamedTuple):
    cluster_id: str
    uid: str


_NUMBERS = (
    "applied_incarnation", "applied_number", "applied_at", "observed_at", "report_epoch", "report_sequence",
    "fingerprint", "gone_at",
)  # fmt: skip
_DOCUMENTS = ("error", "observed")
_HOPS = ("received_at", "applied_at", "reported_at", "ready_at")
update_values: Callable[[ReportedRow], tuple[Any, ...]] = attrgetter(*DESIRED_KEY, *_NUMBERS, *_DOCUMENTS)
_INSTANCE_TEXTS = (
    "cluster_id", "uid", "workspace_id", "deployment_id", "region_id", "shard", "name", "address", "node", "zone",
    "status", "reason", "message",
)  # fmt: skip
_INSTANCE_FLAGS = ("ready", "outdated")
_INSTANCE_NUMBERS = ("restarts", "exit_code", "cpu_millicores", "memory_mib", "started_at", "reported_at")


@dataclass(frozen=True, slots=True)
class ReportStatements:
    epochs: RowQuery[PlaceEpoch]  # ids of clusters
    rows: RowQuery[ReportedRow]  # rows: ``DESIRED_KEY``
    seen: RowQuery[PlaceEpoch]  # rows: ``DESIRED_KEY``; the epochs of their last reports
    update: TextClause  # rows: ``update_values``
    hops: TextClause  # rows: ``hops``; a time that is known stays
    instances: RowQuery[InstanceId]  # rows: [workspace, deployment, cluster, shard]
    upsert: TextClause  # rows: ``instance_values``
    remove: TextClause  # rows: [cluster, uid]


def _kept_time(name: str, value: str) -> str:
    return f"{name} = CASE changes.{name} WHEN 0 THEN {value} ELSE changes.{name} END"


def _build(dialect: str) -> ReportStatements:
    sqlite = dialect == "sqlite"
    source = json_rows(dialect)

    def words(n: int) -> str:
        return json_text(dialect, n)

    def number(n: int, kind: str = "bigint") -> str:
        return words(n) if sqlite else f"CAST(r.value->>{n} AS {kind})"

    def json(n: int) -> str:
        return words(n) if sqlite else f"NULLIF(r.value->{n}, CAST('null' AS jsonb))"

    place = " AND ".join(f"desired.{name} = {words(n)}" for n, name in enumerate(DESIRED_KEY))
    settings = [f"{name} = {number(n)}" for n, name in enumerate(_NUMBERS, len(DESIRED_KEY))]
    settings += [f"{name} = {json(n)}" for n, name in enumerate(_DOCUMENTS, len(DESIRED_KEY) + len(_NUMBERS))]
    texts = len(_INSTANCE_TEXTS)
    columns = [*_INSTANCE_TEXTS, *_INSTANCE_FLAGS, *_INSTANCE_NUMBERS]
    values = [
        *(words(n) for n in range(texts)),
        *(number(texts + n, "boolean") for n in range(len(_INSTANCE_FLAGS))),
        *(number(n) for n in range(texts + len(_INSTANCE_FLAGS), len(columns))),
    ]
    kept = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in ("cluster_id", "uid"))
    ids = "SELECT value FROM json_each(:ids)" if sqlite else "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))"
    return ReportStatements(
        epochs=RowQuery(f"SELECT cluster_id, shard, epoch FROM agents WHERE cluster_id IN ({ids})", PlaceEpoch),
        rows=desired_by_key(dialect, ReportedRow),
        seen=RowQuery(
            f"SELECT desired.cluster_id, desired.shard, desired.report_epoch AS epoch FROM {source} "
            f"JOIN desired ON {place}",
            PlaceEpoch,
        ),
        update=text(f"UPDATE desired SET {', '.join(settings)} FROM {source} WHERE {place}"),
        hops=text(
            f"UPDATE changes SET {', '.join(_kept_time(name, number(n)) for n, name in enumerate(_HOPS, 1))} "
            f"FROM {source} WHERE changes.number = {number(0)}"
        ),
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
