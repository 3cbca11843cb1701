"""The statements that every change needs, on ``counters``, ``desired``, ``changes``, ``events`` and ``audit``, for both
kinds of database.

Any number of rows is one statement with one parameter, a JSON array. With ``executemany`` SQLite releases the
interpreter at each row, and a busy event loop takes milliseconds to give it back; PostgreSQL would answer each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import TextClause, text

from shoal.control.database.position import Position
from shoal.control.database.rows import R, RowQuery

CHANNEL = "shoal_changes"

DESIRED_KEY = ("cluster_id", "shard", "stream", "key")  # the primary key of ``desired``
_OBJECT = ("workspace_id", "kind", "object_id", "namespace", "name")
_APPLIED = ("applied_incarnation", "applied_number", "applied_at", "observed_at", "fingerprint")
_REPORTED = ("report_epoch", "report_sequence")
_EVENT = ("workspace_id", "at", "type", "reason", "kind", "object_id", "name", "region", "message",
          "correlation")  # fmt: skip
_AUDIT = ("workspace_id", "at", "actor", "action", "kind", "object_id", "name", "correlation", "accepted_at")


class Unwanted(NamedTuple):
    """A row of ``desired`` that is not wanted any more."""

    cluster_id: str
    shard: str
    stream: str
    key: str
    workspace_id: str
    number: int


class NumberOf(NamedTuple):
    number: int


@dataclass(frozen=True, slots=True)
class Statements:
    claim: RowQuery[Position]  # the counter; its row is ours until the transaction ends
    advance: TextClause  # number
    want: TextClause  # rows: cluster, shard, stream, key, workspace, kind, object, namespace, name, number, correlation
    unwant: RowQuery[Unwanted]  # rows: cluster, shard, stream, key, number; answers those that changed
    record: TextClause  # rows: number, workspace, stream, cluster, shard, key, correlation
    number_of: RowQuery[NumberOf]  # cluster, shard, stream, key
    events: TextClause  # rows: workspace, at, type, reason, kind, object, name, region, message, correlation
    audit: TextClause  # rows: workspace, at, actor, action, kind, object, name, correlation, accepted, diff


def desired_by_key(dialect: str, row: type[R]) -> RowQuery[R]:
    """Rows of ``desired``: the fields of ``row`` are the columns, the parameter ``rows`` a list of ``DESIRED_KEY``."""
    columns = ", ".join(f"d.{name}" for name in getattr(row, "_fields"))  # noqa: B009 - of every NamedTuple
    place = " AND ".join(f"d.{name} = {json_text(dialect, n)}" for n, name in enumerate(DESIRED_KEY))
    return RowQuery(f"SELECT {columns} FROM {json_rows(dialect)} JOIN desired AS d ON {place}", row)


def json_rows(dialect: str) -> str:
    """The parameter ``rows``, a JSON array of arrays, as a table ``r``."""
    return "json_each(:rows) AS r" if dialect == "sqlite" else "jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value)"


def json_text(dialect: str, n: int) -> str:
    """The nth value of a row of ``json_rows``: a text with PostgreSQL, of its own type with SQLite."""
    return f"json_extract(r.value, '$[{n}]')" if dialect == "sqlite" else f"(r.value->>{n})"


def _sqlite_field(place: int, kind: str) -> str:
    return f"CAST(json_extract(r.value, '$[{place}]') AS {kind})"


def _postgres_field(place: int, kind: str) -> str:
    return f"CAST(r.value->>{place} AS {kind})"


def _fields(dialect: str, kinds: str) -> list[str]:
    field = _sqlite_field if dialect == "sqlite" else _postgres_field
    return [field(n, "bigint" if kind == "n" else "text") for n, kind in enumerate(kinds)]


def _want(dialect: str) -> str:
    columns = [*DESIRED_KEY, *_OBJECT, "number", "correlation", "action", "by_user", "committed_at", "trace"]
    stated = ["'apply'", "CAST(:by_user AS boolean)", "CAST(:now AS bigint)", "CAST(:trace AS text)"]
    zeros = [*_APPLIED, *_REPORTED, "gone_at"]
    kept = {name: f"CASE excluded.{name} WHEN '' THEN desired.{name} ELSE excluded.{name} END"
            for name in ("namespace", "name")}  # fmt: skip
    # Whose it is and what it is never changes for a key, and to set it would touch an index for every change.
    same = {*DESIRED_KEY, "workspace_id", "kind", "object_id"}
    taken = {name: f"excluded.{name}" for name in columns if name not in same and name not in kept}
    # It was removed and is wanted again: what was said of it then says nothing now.
    fresh = {name: f"CASE WHEN desired.gone_at > 0 THEN 0 ELSE desired.{name} END" for name in _APPLIED}
    fresh |= {
        name: f"CASE WHEN desired.gone_at > 0 THEN NULL ELSE desired.{name} END" for name in ("error", "observed")
    }
    changed = {**taken, **kept, **fresh, "gone_at": "0"}
    return (
        f"INSERT INTO desired ({', '.join([*columns, *zeros])}) "
        f"SELECT {', '.join([*_fields(dialect, 'tttttttttnt'), *stated, *('0' for _ in zeros)])} "
        f"FROM {json_rows(dialect)} WHERE true "
        f"ON CONFLICT ({', '.join(DESIRED_KEY)}) DO UPDATE SET {', '.join(f'{n} = {v}' for n, v in changed.items())}"
    )


def _unwant(dialect: str) -> str:
    fields = _fields(dialect, "ttttn")
    place = " AND ".join(f"desired.{name} = {field}" for name, field in zip(DESIRED_KEY, fields, strict=False))
    return (
        f"UPDATE desired SET action = :action, number = {fields[4]}, by_user = CAST(:by_user AS boolean), "
        "committed_at = CAST(:now AS bigint), trace = CAST(:trace AS text), "
        "correlation = CAST(:correlation AS text) "
        f"FROM {json_rows(dialect)} WHERE {place} AND desired.gone_at = 0 AND (desired.action <> :action "
        # a person asks for what was decided without one: that is told, since it is done with less caution
        "OR (CAST(:by_user AS boolean) AND NOT desired.by_user)) "
        "RETURNING desired.cluster_id, desired.shard, desired.stream, desired.key, desired.workspace_id, desired.number"
    )


def _record(dialect: str) -> str:
    return (
        "INSERT INTO changes (number, workspace_id, stream, cluster_id, shard, key, correlation, created_at) "
        f"SELECT {', '.join(_fields(dialect, 'ntttttt'))}, CAST(:now AS bigint) FROM {json_rows(dialect)}"
    )


def _insert(dialect: str, table: str, kinds: str, columns: tuple[str, ...], document: str = "") -> str:
    """``document`` is a last column that takes JSON as it is."""
    fields = _fields(dialect, kinds)
    if document:
        at = len(columns)
        null = f"NULLIF(r.value->{at}, CAST('null' AS jsonb))"
        fields.append(f"json_extract(r.value, '$[{at}]')" if dialect == "sqlite" else null)
        columns = (*columns, document)
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(fields)} FROM {json_rows(dialect)}"


def statements(dialect: str, *, notify: bool) -> Statements:
    """``notify``: whether to tell those who listen at the database, when the transaction is committed."""
    lock = "" if dialect == "sqlite" else " FOR UPDATE"
    told = f" RETURNING pg_notify('{CHANNEL}', CAST(number AS text))" if notify else ""
    return Statements(
        claim=RowQuery(f"SELECT incarnation, number, oldest FROM counters WHERE name = 'changes'{lock}", Position),
        advance=text(f"UPDATE counters SET number = CAST(:number AS bigint) WHERE name = 'changes'{told}"),
        want=text(_want(dialect)),
        unwant=RowQuery(_unwant(dialect), Unwanted),
        record=text(_record(dialect)),
        number_of=RowQuery(
            f"SELECT number FROM desired WHERE {' AND '.join(f'{name} = :{name}' for name in DESIRED_KEY)}", NumberOf
        ),
        events=text(_insert(dialect, "events", "tntttttttt", _EVENT)),
        audit=text(_insert(dialect, "audit", "tnttttttn", _AUDIT, "diff")),
    )
