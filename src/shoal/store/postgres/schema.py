"""Tables and functions of the store in PostgreSQL; the first server creates them.

    counter   one row: the newest revision, the mark of the batch that wrote it, the incarnation, why writes are refused
    current   per object: its revision in the log, the revision of its creation, and its fence; no value
    log       per operation: the value without its revision and where that goes (hole); a deletion has no value
    floor     per resource: the revision up to which the log is no longer complete
    server    per server: its position in the log; nothing above the slowest is deleted
    event_key the keys that seal what servers tell each other through Redis

A value is written once, into the log; ``current`` is small and hot. Rows of the log chain: each carries the mark of its
batch, and of the batch before in ``prior``, so that a reader who applies them in order detects a changed history.
Marks are random.

All work of a batch is done by ``commit_batch``, in one call. Its transactions come in *rounds*: within a round no
transaction reads or writes what another one writes, so a round is checked by one statement and written by another; the
order of rounds is the order of the transactions. Almost every batch is a single round.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from asyncpg import Connection

FORMAT = 1

# Classes of advisory locks; the second number is what is locked.
LOCK_SETUP = 0x53484F41
LOCK_FORGET = LOCK_SETUP + 1
LOCK_WRITER = LOCK_SETUP + 2

CHANNEL = "shoal_store"

# Requirement kinds, as ``commit_batch`` takes them.
AT, ABSENT, EXISTS, FENCE = 1, 2, 3, 4

# What the numbers are for:
# - counter and server are updated constantly: almost empty pages let each update stay on its page (HOT), where the
#   next one cleans up after it, so they stay small without vacuum.
# - current: an update changes no indexed column; a fifth of the page is left for the new version.
# - log is only added to and deleted from. Vacuum after 10 000 dead rows whatever the size, without pauses: the rows to
#   come are put where they were.
# - values up to almost a page stay in the row, uncompressed: compressing 2 kB costs more than writing it.
TABLES = """
CREATE SCHEMA IF NOT EXISTS shoal;
CREATE TABLE IF NOT EXISTS shoal.counter (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    code text NOT NULL,
    revision bigint NOT NULL,
    mark bigint NOT NULL,
    incarnation text NOT NULL,
    frozen text
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE IF NOT EXISTS shoal.current (
    resource text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    created bigint NOT NULL,
    fence bytea NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE TABLE IF NOT EXISTS shoal.log (
    revision bigint PRIMARY KEY,
    mark bigint NOT NULL,
    prior bigint NOT NULL,
    created bigint NOT NULL,
    hole integer NOT NULL,
    resource text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE shoal.log ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS shoal.floor (
    resource text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS shoal.server (
    id text PRIMARY KEY,
    revision bigint NOT NULL,
    seen timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE IF NOT EXISTS shoal.event_key (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

# Parameters: what the caller knows (incarnation, revision, mark of it), the batch's mark, whether to notify, the last
# operation and requirement of each round but the last, then the operations and the requirements by column.
# op_back: how many operations before this one, in its transaction, the object was created if it did not exist; from -1
# down the same (-1 is none before) for one that was deleted earlier in the transaction, so that it surely did not.
# op_last: whether this is the transaction's last operation on its key.
_COMMIT_BATCH = """
CREATE OR REPLACE FUNCTION shoal.commit_batch(
    p_incarnation text, p_known bigint, p_known_mark bigint, p_mark bigint, p_notify boolean,
    p_op_ends integer[], p_rq_ends integer[],
    op_tx integer[], op_resource text[], op_namespace text[], op_name text[], op_hole integer[], op_fence bytea[],
    op_back integer[], op_last boolean[], op_value bytea[],
    rq_tx integer[], rq_kind integer[], rq_resource text[], rq_namespace text[], rq_name text[], rq_revision bigint[],
    rq_fence bytea[]
) RETURNS TABLE (
    status text, base bigint, newest bigint,
    revision bigint, mark bigint, prior bigint, created bigint, hole integer,
    resource text, namespace text, name text, value bytea
) LANGUAGE plpgsql VOLATILE AS $function$
#variable_conflict use_column
DECLARE
    v_revision bigint;
    v_prior bigint;
    v_incarnation text;
    v_frozen text;
    v_new bigint;
    v_count bigint;
    v_round integer;
    v_rounds integer := cardinality(p_op_ends) + 1;
    v_op integer := 1;
    v_rq integer := 1;
    v_op_end integer;
    v_rq_end integer;
BEGIN
    SELECT c.revision, c.mark, c.incarnation, c.frozen INTO STRICT v_revision, v_prior, v_incarnation, v_frozen
        FROM shoal.counter c FOR UPDATE;
    IF v_incarnation <> p_incarnation OR v_revision < p_known OR (v_revision = p_known AND v_prior <> p_known_mark) THEN
        RETURN QUERY SELECT 'history'::text, v_revision, v_revision, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::bytea;
        RETURN;
    END IF;
    IF v_frozen IS NOT NULL THEN
        RETURN QUERY SELECT 'frozen'::text, v_revision, v_revision, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::integer, v_frozen, NULL::text, NULL::text, NULL::bytea;
        RETURN;
    END IF;
    v_new := v_revision;
    FOR v_round IN 1 .. v_rounds LOOP
        IF v_rounds > 1 THEN
            v_op_end := CASE WHEN v_round < v_rounds THEN p_op_ends[v_round] ELSE cardinality(op_tx) END;
            v_rq_end := CASE WHEN v_round < v_rounds THEN p_rq_ends[v_round] ELSE cardinality(rq_tx) END;
            SELECT * INTO v_count FROM shoal.commit_round(
                v_new, p_mark, v_prior, op_tx[v_op:v_op_end], op_resource[v_op:v_op_end], op_namespace[v_op:v_op_end],
                op_name[v_op:v_op_end], op_hole[v_op:v_op_end], op_fence[v_op:v_op_end], op_back[v_op:v_op_end],
                op_last[v_op:v_op_end], op_value[v_op:v_op_end], rq_tx[v_rq:v_rq_end], rq_kind[v_rq:v_rq_end],
                rq_resource[v_rq:v_rq_end], rq_namespace[v_rq:v_rq_end], rq_name[v_rq:v_rq_end],
                rq_revision[v_rq:v_rq_end], rq_fence[v_rq:v_rq_end]);
            v_op := v_op_end + 1;
            v_rq := v_rq_end + 1;
        ELSE
            SELECT * INTO v_count FROM shoal.commit_round(
                v_new, p_mark, v_prior, op_tx, op_resource, op_namespace, op_name, op_hole, op_fence, op_back, op_last,
                op_value, rq_tx, rq_kind, rq_resource, rq_namespace, rq_name, rq_revision, rq_fence);
        END IF;
        IF v_count > 0 THEN
            v_new := v_new + v_count;
            v_prior := p_mark;
        END IF;
    END LOOP;
    IF v_new > v_revision THEN
        UPDATE shoal.counter SET revision = v_new, mark = p_mark;
        IF p_notify THEN
            PERFORM pg_notify('{channel}', v_new::text);
        END IF;
    END IF;
    RETURN QUERY SELECT 'done'::text, v_revision, v_new, NULL::bigint, NULL::bigint, NULL::bigint,
        NULL::bigint, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::bytea;
    IF v_revision > p_known THEN
        RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::bigint, l.revision, l.mark, l.prior, l.created, l.hole,
            l.resource, l.namespace, l.name, l.value
            FROM shoal.log l WHERE l.revision > p_known AND l.revision <= v_revision ORDER BY l.revision LIMIT 1000;
    END IF;
END
$function$;
"""

_COMMIT_ROUND = """
CREATE OR REPLACE FUNCTION shoal.commit_round(
    p_base bigint, p_mark bigint, p_prior bigint,
    op_tx integer[], op_resource text[], op_namespace text[], op_name text[], op_hole integer[], op_fence bytea[],
    op_back integer[], op_last boolean[], op_value bytea[],
    rq_tx integer[], rq_kind integer[], rq_resource text[], rq_namespace text[], rq_name text[], rq_revision bigint[],
    rq_fence bytea[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_refused integer[];
    v_count bigint;
BEGIN
    SELECT coalesce(array_agg(q.tx), '{{}}') INTO v_refused
        FROM unnest(rq_tx, rq_kind, rq_resource, rq_namespace, rq_name, rq_revision, rq_fence)
            AS q(tx, kind, resource, namespace, name, revision, fence)
        LEFT JOIN shoal.current c ON c.resource = q.resource AND c.namespace = q.namespace AND c.name = q.name
        WHERE NOT CASE q.kind
            WHEN {at} THEN c.revision IS NOT NULL AND c.revision = q.revision
            WHEN {absent} THEN c.revision IS NULL
            WHEN {exists} THEN c.revision IS NOT NULL
            ELSE c.revision IS NOT NULL AND c.fence = q.fence
        END;
    WITH op AS MATERIALIZED (
        SELECT o.resource, o.namespace, o.name, o.hole, o.fence, o.last, o.value,
            p_base + row_number() OVER (ORDER BY o.number) AS revision,
            CASE WHEN o.back < 0 THEN p_base + row_number() OVER (ORDER BY o.number) + o.back + 1
                ELSE coalesce(c.created, p_base + row_number() OVER (ORDER BY o.number) - o.back) END AS created
        FROM unnest(op_tx, op_resource, op_namespace, op_name, op_hole, op_fence, op_back, op_last, op_value)
            WITH ORDINALITY AS o(tx, resource, namespace, name, hole, fence, back, last, value, number)
        LEFT JOIN shoal.current c ON c.resource = o.resource AND c.namespace = o.namespace AND c.name = o.name
        WHERE o.tx <> ALL (v_refused)
    ), deleted AS (
        DELETE FROM shoal.current c USING op
            WHERE op.value IS NULL AND op.last
            AND c.resource = op.resource AND c.namespace = op.namespace AND c.name = op.name
    ), put AS (
        INSERT INTO shoal.current AS c (resource, namespace, name, revision, created, fence)
            SELECT resource, namespace, name, revision, created, fence FROM op WHERE value IS NOT NULL AND last
            ON CONFLICT (resource, namespace, name) DO UPDATE
                SET revision = excluded.revision, created = excluded.created, fence = excluded.fence
    )
    INSERT INTO shoal.log (revision, mark, prior, created, hole, resource, namespace, name, value)
        SELECT revision, p_mark, CASE WHEN revision = p_base + 1 THEN p_prior ELSE p_mark END, created, hole, resource,
            namespace, name, value FROM op;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$function$;
"""

# Deletes those of the given rows that no server needs any more, and raises floors; one server at a time. Returns the
# revision up to which rows could be deleted, or NULL while another server is deleting.
_FORGET = """
CREATE OR REPLACE FUNCTION shoal.forget(
    p_server text, p_known bigint, p_revisions bigint[], p_resources text[], p_floors bigint[], p_alive interval
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_slowest bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock({lock}, 0) THEN
        RETURN NULL;
    END IF;
    UPDATE shoal.server SET revision = p_known, seen = clock_timestamp() WHERE id = p_server;
    SELECT coalesce(min(s.revision), p_known) INTO v_slowest
        FROM shoal.server s WHERE s.seen > clock_timestamp() - p_alive;
    INSERT INTO shoal.floor AS f (resource, revision)
        SELECT n.resource, n.revision FROM unnest(p_resources, p_floors) AS n(resource, revision)
        ON CONFLICT (resource) DO UPDATE SET revision = excluded.revision WHERE f.revision < excluded.revision;
    DELETE FROM shoal.log l USING unnest(p_revisions) AS n(revision)
        WHERE l.revision = n.revision AND n.revision <= v_slowest;
    RETURN v_slowest;
END
$function$;
"""

FUNCTIONS = (
    _COMMIT_ROUND.format(at=AT, absent=ABSENT, exists=EXISTS)
    + _COMMIT_BATCH.replace("{channel}", CHANNEL)
    + _FORGET.format(lock=LOCK_FORGET)
)
_CODE = hashlib.sha256((TABLES + FUNCTIONS).encode()).hexdigest()[:16]

_EXISTS = "SELECT to_regclass('shoal.counter') IS NOT NULL"
_INIT = """
INSERT INTO shoal.counter (format, code, revision, mark, incarnation) VALUES ($1, $2, 0, 0, $3) ON CONFLICT DO NOTHING
"""


async def install(connection: Connection, incarnation: str) -> None:
    """Create the tables and functions if they are missing or the functions differ; ``incarnation`` is for a new log.
    Any number of servers may do this at once."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", LOCK_SETUP)
        if await connection.fetchval(_EXISTS):
            found = await connection.fetchrow("SELECT format, code FROM shoal.counter")
            if found is not None and found["format"] != FORMAT:
                raise ConfigError(
                    f"the store in this database has format {found['format']}, this version supports only {FORMAT}"
                )
            if found is not None and found["code"] == _CODE:
                return
        await connection.execute(TABLES)
        await connection.execute(FUNCTIONS)
        await connection.execute(_INIT, FORMAT, _CODE, incarnation)
        await connection.execute("UPDATE shoal.counter SET code = $1 WHERE code <> $1", _CODE)
