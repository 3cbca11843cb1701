"""The manager's tables, as numbered migrations for each database. A released migration is never changed.

All names begin with ``nav_``, so that the tables can share a database with the control plane's.
"""

from __future__ import annotations

from collections.abc import Sequence

IS_TRANSIENT = "kind = 'events'"
"""Of rows whose history is kept for a shorter time: those of the transient kinds of ``shoal.navigator.model``."""


def _token_scopes(text: str) -> tuple[str, ...]:
    """Tokens from before had no scopes and could read everything."""
    return (
        f"ALTER TABLE nav_tokens ADD COLUMN scopes {text} NOT NULL DEFAULT '[]'",
        """UPDATE nav_tokens SET scopes = '["*"]' WHERE kind <> 'edge'""",
    )


SQLITE: Sequence[tuple[str, ...]] = (
    (
        """CREATE TABLE nav_clusters (
            name TEXT PRIMARY KEY, edge TEXT NOT NULL, epoch INTEGER NOT NULL, software TEXT NOT NULL,
            metadata TEXT NOT NULL, interval_s REAL NOT NULL, first_ms INTEGER NOT NULL, heard_ms INTEGER NOT NULL,
            statuses TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE nav_rows (
            id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL, changed_ms INTEGER NOT NULL, data BLOB NOT NULL
        ) STRICT""",
        "CREATE UNIQUE INDEX nav_rows_key ON nav_rows (cluster, kind, key)",
        "CREATE INDEX nav_rows_changed ON nav_rows (changed_ms)",
        """CREATE TABLE nav_history (
            id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL, since_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
            removed INTEGER NOT NULL, data BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX nav_history_key ON nav_history (cluster, kind, key, since_ms)",
        "CREATE INDEX nav_history_until ON nav_history (until_ms)",
        "CREATE INDEX nav_history_since ON nav_history (since_ms)",
        """CREATE TABLE nav_sessions (
            cluster TEXT NOT NULL, epoch INTEGER NOT NULL, edge TEXT NOT NULL, connected_ms INTEGER NOT NULL,
            ended_ms INTEGER NOT NULL, PRIMARY KEY (cluster, connected_ms, epoch)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE nav_tokens (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, cluster TEXT NOT NULL, digest TEXT NOT NULL UNIQUE,
            created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL,
            previous_digest TEXT NOT NULL, previous_until_ms INTEGER NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE nav_options (
            cluster TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (cluster, name)
        ) STRICT, WITHOUT ROWID""",
    ),
    (f"CREATE INDEX nav_history_transient ON nav_history (until_ms) WHERE {IS_TRANSIENT}",),
    _token_scopes("TEXT"),
)

POSTGRES: Sequence[tuple[str, ...]] = (
    (
        """CREATE TABLE nav_clusters (
            name text PRIMARY KEY, edge text NOT NULL, epoch bigint NOT NULL, software text NOT NULL,
            metadata text NOT NULL, interval_s double precision NOT NULL, first_ms bigint NOT NULL,
            heard_ms bigint NOT NULL, statuses text NOT NULL
        )""",
        """CREATE TABLE nav_rows (
            cluster text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
            fingerprint bigint NOT NULL, changed_ms bigint NOT NULL, data bytea NOT NULL,
            PRIMARY KEY (cluster, kind, key)
        )""",
        "CREATE INDEX nav_rows_changed ON nav_rows (changed_ms)",
        """CREATE TABLE nav_history (
            cluster text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
            fingerprint bigint NOT NULL, since_ms bigint NOT NULL, until_ms bigint NOT NULL, removed boolean NOT NULL,
            data bytea NOT NULL
        ) PARTITION BY RANGE (until_ms)""",
        "CREATE INDEX nav_history_key ON nav_history (cluster, kind, key, since_ms)",
        "CREATE INDEX nav_history_until ON nav_history (until_ms)",
        "CREATE INDEX nav_history_since ON nav_history (since_ms)",
        # For rows outside of all partitions: a clock that jumped must not stop the writer.
        "CREATE TABLE nav_history_other PARTITION OF nav_history DEFAULT",
        """CREATE TABLE nav_sessions (
            cluster text COLLATE "C" NOT NULL, epoch bigint NOT NULL, edge text NOT NULL, connected_ms bigint NOT NULL,
            ended_ms bigint NOT NULL, PRIMARY KEY (cluster, connected_ms, epoch)
        )""",
        """CREATE TABLE nav_tokens (
            id text PRIMARY KEY, kind text NOT NULL, cluster text NOT NULL, digest text NOT NULL UNIQUE,
            created_ms bigint NOT NULL, expires_ms bigint NOT NULL, revoked_ms bigint NOT NULL,
            previous_digest text NOT NULL, previous_until_ms bigint NOT NULL
        )""",
    ),
    (
        """CREATE TABLE nav_options (
            cluster text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, value text NOT NULL,
            PRIMARY KEY (cluster, name)
        )""",
    ),
    (f"CREATE INDEX nav_history_transient ON nav_history (until_ms) WHERE {IS_TRANSIENT}",),
    _token_scopes("text"),
)

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS nav_schema (version INTEGER NOT NULL)"


def missing_steps(steps: Sequence[tuple[str, ...]], version: int) -> list[tuple[int, tuple[str, ...]]]:
    """The steps that tables of this version still need, in order."""
    return [(number, statements) for number, statements in enumerate(steps, 1) if number > version]
