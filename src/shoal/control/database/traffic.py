"""The table of traffic: what gateways counted, per environment, region and span of time.

Samples of 5 s are written with the reports they come from, all of a batch with one statement. After an hour they are
added up to minutes, which are kept for a day. A request is in one row only: the transaction that adds samples to a
minute removes them. Both are done in transactions that run one after the other, so that a row that was read is not
changed by others before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text

from shoal.control.database.engine import Database
from shoal.control.database.plain import document, listed
from shoal.control.database.rows import RowQuery
from shoal.control.database.statements import json_rows, json_text
from shoal.control.database.transaction import Tx
from shoal.sync.counters import NOTHING, ORIGINS, Counts, as_json, plus, read_counts

SAMPLE_MS, MINUTE_MS = 5_000, 60_000  # spans of rows
_FOLD_ROWS = 500

ByOrigin = Mapping[str, Counts]


def gateway_version(revision: int) -> str:
    """In place of a deployment: everything that pods of one revision of a gateway counted while it was rolled out; 0:
    the stable one's."""
    return f"gateway/{revision}"


class TrafficKey(NamedTuple):
    """The primary key; ``from_at`` is a multiple of the span."""

    environment_id: str
    from_at: int
    span_ms: int
    region_id: str


class TrafficRow(NamedTuple):
    environment_id: str
    from_at: int
    span_ms: int
    region_id: str
    workspace_id: str
    deployments: Any

    @property
    def key(self) -> TrafficKey:
        return TrafficKey(*self[:4])


class TrafficTotals:
    """Counts of several rows, to be added to what the table has."""

    def __init__(self) -> None:
        self._rows: dict[TrafficKey, tuple[str, dict[str, dict[str, Counts]]]] = {}

    def add(self, key: TrafficKey, workspace_id: str, deployment: str, counted: ByOrigin) -> None:
        _, found = self._rows.setdefault(key, (workspace_id, {}))
        known = found.setdefault(deployment, {})
        for origin, counts in counted.items():
            known[origin] = plus(known.get(origin, NOTHING), counts)

    def add_row(self, key: TrafficKey, row: TrafficRow) -> None:
        """What a row has, under another key or its own."""
        for deployment, told in document(row.deployments).items():
            self.add(key, row.workspace_id, deployment, read_origins(told))

    async def write(self, tx: Tx) -> None:
        if not self._rows:
            return
        asked = _BUILT[tx.dialect]
        for row in await tx.ask(asked.rows, {"rows": listed([*map(list, self._rows)])}):
            self.add_row(row.key, row)
        values = [
            [*key, workspace_id, {id_: shown_origins(told) for id_, told in sorted(found.items())}]
            for key, (workspace_id, found) in sorted(self._rows.items())
        ]
        await tx.ask(asked.upsert, {"rows": listed(values)})


def shown_origins(counted: ByOrigin) -> dict[str, Any]:
    """The counts of a deployment, as they are stored: those of users beside objects with the others."""
    made = as_json(counted.get("entry", NOTHING))
    return made | {
        origin: as_json(counted[origin]) for origin in ORIGINS[1:] if origin in counted and not counted[origin].is_empty
    }


def read_origins(stored: Any, bounds: Any = None) -> dict[str, Counts]:
    """The opposite; also for an entry of a gateway, whose earlier versions had other bounds. What cannot be read is
    left out."""
    if not isinstance(stored, Mapping):
        return {}
    parts = {"entry": stored, **{origin: stored[origin] for origin in ORIGINS[1:] if origin in stored}}
    found = {origin: read_counts(part, bounds) for origin, part in parts.items()}
    return {origin: counts for origin, counts in found.items() if counts is not None}


async def fold_samples(database: Database, before_ms: int) -> int:
    """Add the samples that began before a moment up to minutes, in steps. Returns how many samples there were."""
    count = 0
    while True:
        async with database.transaction() as tx:
            asked = _BUILT[tx.dialect]
            old = await tx.ask(asked.oldest, {"span": SAMPLE_MS, "before": before_ms, "limit": _FOLD_ROWS})
            totals = TrafficTotals()
            for row in old:
                minute = row.from_at - row.from_at % MINUTE_MS
                totals.add_row(TrafficKey(row.environment_id, minute, MINUTE_MS, row.region_id), row)
            if old:
                await totals.write(tx)
                await tx.ask(asked.remove, {"rows": listed([list(row.key) for row in old])})
        count += len(old)
        if len(old) < _FOLD_ROWS:
            return count


class _Statements(NamedTuple):
    rows: RowQuery[TrafficRow]  # rows: ``TrafficKey``
    oldest: RowQuery[TrafficRow]
    upsert: TextClause  # rows: ``TrafficRow``
    remove: TextClause  # rows: ``TrafficKey``


def _build(dialect: str) -> _Statements:
    sqlite = dialect == "sqlite"
    numbers = {"from_at", "span_ms"}

    def value(n: int, name: str) -> str:
        return f"CAST({json_text(dialect, n)} AS bigint)" if name in numbers else json_text(dialect, n)

    keys, columns = TrafficKey._fields, TrafficRow._fields
    place = " AND ".join(f"t.{name} = {value(n, name)}" for n, name in enumerate(keys))
    listed_columns = ", ".join(f"t.{name}" for name in columns)
    at = len(columns) - 1
    values = [value(n, name) for n, name in enumerate(columns[:-1])]
    values.append(json_text(dialect, at) if sqlite else f"r.value->{at}")
    return _Statements(
        rows=RowQuery(f"SELECT {listed_columns} FROM {json_rows(dialect)} JOIN traffic AS t ON {place}", TrafficRow),
        oldest=RowQuery(
            f"SELECT {listed_columns} FROM traffic AS t WHERE t.span_ms = :span AND t.from_at < :before "
            "ORDER BY t.from_at LIMIT :limit",
            TrafficRow,
        ),
        upsert=text(
            f"INSERT INTO traffic ({', '.join(columns)}) SELECT {', '.join(values)} FROM {json_rows(dialect)} "
            f"WHERE true ON CONFLICT ({', '.join(keys)}) DO UPDATE SET deployments = excluded.deployments"
        ),
        remove=text(
            f"DELETE FROM traffic WHERE ({', '.join(keys)}) IN "
            f"(SELECT {', '.join(value(n, name) for n, name in enumerate(keys))} FROM {json_rows(dialect)})"
        ),
    )


_BUILT = {dialect: _build(dialect) for dialect in ("sqlite", "postgresql")}
