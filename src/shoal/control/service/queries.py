"""The reading statements of the cluster service, for both kinds of database.

A batch of any size is one statement with one parameter, a JSON array, as in ``shoal.control.database.statements``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import TextClause, text

_DESIRED = (
    "d.cluster_id, d.shard, d.stream, d.key, d.kind, d.object_id, d.workspace_id, d.action, d.number, d.by_user, "
    "d.committed_at, d.trace, d.namespace, d.name, d.gone_at"
)


@dataclass(frozen=True, slots=True)
class Queries:
    desired: TextClause  # rows: [cluster, shard, stream, key]
    deployments: TextClause  # ids
    topology: TextClause  # rows: [deployment, cluster, shard]
    secrets: TextClause  # ids of environments
    sentinels: TextClause  # ids
    peers: TextClause  # ids of environments
    certificates: TextClause  # ids of workspaces
    custom: dict[str, TextClause]  # by kind: ids
    index: TextClause
    position: TextClause
    changes: TextClause  # after, limit
    last_change: TextClause  # up to a number


def _sqlite_rows(count: int) -> tuple[str, list[str]]:
    return "json_each(:rows) AS r", [f"json_extract(r.value, '$[{n}]')" for n in range(count)]


def _postgres_rows(count: int) -> tuple[str, list[str]]:
    return "jsonb_array_elements(CAST(:rows AS jsonb)) AS r(value)", [f"(r.value->>{n})" for n in range(count)]


def _build(dialect: str) -> Queries:
    rows = _sqlite_rows if dialect == "sqlite" else _postgres_rows
    ids = (
        "SELECT value FROM json_each(:ids)"
        if dialect == "sqlite"
        else "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))"
    )

    def joined(table: str, alias: str, columns: tuple[str, ...], shown: str) -> TextClause:
        source, fields = rows(len(columns))
        match = " AND ".join(f"{alias}.{column} = {field}" for column, field in zip(columns, fields, strict=True))
        return text(f"SELECT {shown} FROM {source} JOIN {table} AS {alias} ON {match}")

    custom_columns = "o.id, o.workspace_id, o.environment_id, o.name, o.spec"
    return Queries(
        desired=joined("desired", "d", ("cluster_id", "shard", "stream", "key"), _DESIRED),
        deployments=text(
            "SELECT d.id, d.workspace_id, d.project_id, d.environment_id, d.app_id, d.namespace, d.k8s_name, a.name, "
            "p.name, e.name, d.revision, d.image, d.template, d.git, d.desired_state, a.spec "
            "FROM deployments AS d LEFT JOIN apps AS a ON a.id = d.app_id "
            "LEFT JOIN projects AS p ON p.id = d.project_id "
            f"LEFT JOIN environments AS e ON e.id = d.environment_id WHERE d.id IN ({ids})"
        ),
        topology=joined(
            "deployment_topology", "t", ("deployment_id", "cluster_id", "shard"),
            "t.deployment_id, t.cluster_id, t.shard, t.region_id, t.replicas, t.autoscaling, t.overrides, "
            "t.desired_status, t.updated_at, (SELECT o.shard FROM deployment_topology AS o "
            "WHERE o.id = t.moved_from AND o.cluster_id = t.cluster_id) AS taken_from",
        ),
        secrets=text(
            "SELECT s.environment_id, s.name, s.id, s.revision, s.ciphertext, s.data_key, s.master_key, s.spec "
            f"FROM secrets AS s WHERE s.environment_id IN ({ids})"
        ),
        sentinels=text(
            "SELECT s.id, s.workspace_id, s.project_id, s.environment_id, s.k8s_name, s.image, s.desired_replicas, "
            f"s.spec, s.region_id, s.desired_state FROM sentinels AS s WHERE s.id IN ({ids})"
        ),
        peers=text(
            "SELECT s.environment_id, s.id, s.region_id, s.entries, s.health, s.workspace_id FROM sentinels AS s "
            f"WHERE s.desired_state = 'running' AND s.environment_id IN ({ids})"
        ),
        certificates=text(
            "SELECT c.workspace_id, c.id, c.revision, c.authority, c.ciphertext, c.data_key, c.master_key, c.shown "
            f"FROM gateway_certificates AS c WHERE c.workspace_id IN ({ids}) ORDER BY c.revision"
        ),
        custom={
            "route": text(f"SELECT {custom_columns} FROM routes AS o WHERE o.id IN ({ids})"),
            "policy": text(f"SELECT {custom_columns} FROM policies AS o WHERE o.id IN ({ids})"),
            "keys": text(
                "SELECT e.id, e.workspace_id, e.id, e.name, k.id, k.name, k.digest, k.prefix, k.expires_at, k.spec "
                "FROM environments AS e LEFT JOIN api_keys AS k ON k.environment_id = e.id AND k.revoked_at = 0 "
                f"WHERE e.id IN ({ids}) ORDER BY k.id"
            ),
        },
        index=text(
            "SELECT cluster_id, shard, stream, key, number, action, by_user, gone_at, fingerprint "
            "FROM desired"
        ),
        position=text("SELECT incarnation, number, oldest FROM counters WHERE name = 'changes'"),
        changes=text(
            "SELECT c.number, c.cluster_id, c.shard, c.stream, c.key, d.number, d.action, d.by_user, d.gone_at, "
            "c.created_at "
            "FROM changes AS c LEFT JOIN desired AS d ON d.cluster_id = c.cluster_id AND d.shard = c.shard "
            "AND d.stream = c.stream AND d.key = c.key WHERE c.number > :after ORDER BY c.number LIMIT :limit"
        ),
        last_change=text(
            "SELECT number, created_at, cluster_id, shard, key FROM changes WHERE number <= :number "
            "ORDER BY number DESC LIMIT 1"
        ),
    )  # fmt: skip


_BUILT = {dialect: _build(dialect) for dialect in ("sqlite", "postgresql")}


def queries(dialect: str) -> Queries:
    return _BUILT[dialect]
