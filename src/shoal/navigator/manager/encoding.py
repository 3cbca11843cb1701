"""Metadata and statuses as JSON text, for columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from shoal.navigator.manager.rows import StoredCluster, StoredToken
from shoal.navigator.model import KindStatus

CLUSTER_COLUMNS = "name, edge, epoch, software, metadata, interval_s, first_ms, heard_ms, statuses"
TOKEN_COLUMNS = (
    "id, kind, cluster, digest, created_ms, expires_ms, revoked_ms, previous_digest, previous_until_ms, scopes"
)


def statuses_text(statuses: Sequence[KindStatus]) -> str:
    return orjson.dumps([[one.kind, one.state, one.error, one.since_s] for one in statuses]).decode()


def cluster_values(cluster: StoredCluster) -> tuple[Any, ...]:
    return (
        cluster.name, cluster.edge, cluster.epoch, cluster.software, _text(cluster.metadata), cluster.interval_s,
        cluster.first_ms, cluster.heard_ms, statuses_text(cluster.statuses),
    )  # fmt: skip


def cluster_of(values: Sequence[Any]) -> StoredCluster:
    name, edge, epoch, software, metadata, interval_s, first_ms, heard_ms, statuses = values
    return StoredCluster(
        name=name, edge=edge, epoch=epoch, software=software, metadata=orjson.loads(metadata), interval_s=interval_s,
        first_ms=first_ms, heard_ms=heard_ms,
        statuses=tuple(
            KindStatus(kind=kind, state=state, error=error, since_s=since_s)
            for kind, state, error, since_s in orjson.loads(statuses)
        ),
    )  # fmt: skip


def token_values(token: StoredToken) -> tuple[Any, ...]:
    return (
        token.id, token.kind, token.cluster, token.digest, token.created_ms, token.expires_ms, token.revoked_ms,
        token.previous_digest, token.previous_until_ms, orjson.dumps(token.scopes).decode(),
    )  # fmt: skip


def token_of(values: Sequence[Any]) -> StoredToken:
    *plain, scopes = values
    names = TOKEN_COLUMNS.removesuffix(", scopes").split(", ")
    return StoredToken(**dict(zip(names, plain, strict=True)), scopes=tuple(orjson.loads(scopes)))


def _text(mapping: Mapping[str, str]) -> str:
    return orjson.dumps(dict(mapping)).decode()
