"""The reading statements of the cluster service, for both kinds of database.

A batch of any size is one statement with one parameter, a JSON array, as in ``shoal.control.database.statements``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.control.database.position import Position
from shoal.control.database.rows import RowQuery
from shoal.control.database.statements import desired_by_key, json_rows, json_text
from shoal.control.service.desired.marks import MarkedChange
from shoal.control.service.desired.model import DesiredRow


class StoredDeployment(NamedTuple):
    id: str
    workspace_id: str
    project_id: str
    environment_id: str
    app_id: str
    namespace: str
    k8s_name: str
    app_name: str | None
    project_name: str | None
    environment_name: str | None
    revision: int
    image: str
    template: Any
    git: Any
    desired_state: str
    app_spec: Any


class StoredTopology(NamedTuple):
    deployment_id: str
    cluster_id: str
    shard: str
    region_id: str
    replicas: int
    autoscaling: Any
    overrides: Any
    desired_status: str
    taken_from: str | None  # a shard of the same cluster
    instances: int | None  # while revisions are exchanged
    check_jobs: Any


class StoredSecret(NamedTuple):
    environment_id: str
    name: str
    id: str
    revision: int
    ciphertext: bytes
    data_key: bytes
    master_key: str
    spec: Any


class StoredSentinel(NamedTuple):
    id: str
    workspace_id: str
    project_id: str
    environment_id: str
    k8s_name: str
    image: str
    desired_replicas: int
    spec: Any
    region_id: str
    desired_state: str
    rollout: Any = None


class StoredPeer(NamedTuple):
    """A gateway as others see it."""

    environment_id: str
    id: str
    region_id: str
    entries: Any
    health: str
    workspace_id: str


class StoredCertificate(NamedTuple):
    workspace_id: str
    id: str
    revision: int
    authority: bytes
    ciphertext: bytes
    data_key: bytes
    master_key: str
    shown: bool | int


class StoredConfig(NamedTuple):
    """A route or a policy."""

    id: str
    workspace_id: str
    environment_id: str
    name: str
    spec: Any


class StoredKey(NamedTuple):
    """An environment with one of its keys; without any, the fields of the key are None."""

    environment_id: str
    workspace_id: str
    environment_name: str
    id: str | None
    name: str | None
    digest: str | None
    prefix: str | None
    expires_at: int | None
    spec: Any


class IndexedRow(NamedTuple):
    cluster_id: str
    shard: str
    stream: str
    key: str
    number: int
    action: str
    by_user: bool | int
    gone_at: int
    fingerprint: int


class ChangedRow(NamedTuple):
    """A change, and the row of ``desired`` as it is now; None in ``number`` when there is none."""

    change: int
    cluster_id: str
    shard: str
    stream: str
    key: str
    number: int | None
    action: str
    by_user: bool | int
    gone_at: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Queries:
    desired: RowQuery[DesiredRow]  # rows: ``DESIRED_KEY``
    deployments: RowQuery[StoredDeployment]  # ids
    topology: RowQuery[StoredTopology]  # rows: [deployment, cluster, shard]
    secrets: RowQuery[StoredSecret]  # ids of environments
    sentinels: RowQuery[StoredSentinel]  # ids
    peers: RowQuery[StoredPeer]  # ids of environments
    certificates: RowQuery[StoredCertificate]  # ids of workspaces
    configs: dict[str, RowQuery[StoredConfig]]  # by kind: ids
    keys: RowQuery[StoredKey]  # ids of environments
    index: RowQuery[IndexedRow]
    position: RowQuery[Position]
    changes: RowQuery[ChangedRow]  # after, limit
    last_change: RowQuery[MarkedChange]  # up to a number


def _build(dialect: str) -> Queries:
    ids = (
        "SELECT value FROM json_each(:ids)"
        if dialect == "sqlite"
        else "SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))"
    )

    return Queries(
        desired=desired_by_key(dialect, DesiredRow),
        deployments=RowQuery(
            "SELECT d.id, d.workspace_id, d.project_id, d.environment_id, d.app_id, d.namespace, d.k8s_name, "
            "a.name AS app_name, p.name AS project_name, e.name AS environment_name, d.revision, d.image, d.template, "
            "d.git, d.desired_state, a.spec AS app_spec "
            "FROM deployments AS d LEFT JOIN apps AS a ON a.id = d.app_id "
            "LEFT JOIN projects AS p ON p.id = d.project_id "
            f"LEFT JOIN environments AS e ON e.id = d.environment_id WHERE d.id IN ({ids})",
            StoredDeployment,
        ),
        topology=RowQuery(
            "SELECT t.deployment_id, t.cluster_id, t.shard, t.region_id, t.replicas, t.autoscaling, t.overrides, "
            "t.desired_status, (SELECT o.shard FROM deployment_topology AS o "
            "WHERE o.id = t.moved_from AND o.cluster_id = t.cluster_id) AS taken_from, t.instances, t.check_jobs "
            f"FROM {json_rows(dialect)} JOIN deployment_topology AS t ON t.deployment_id = {json_text(dialect, 0)} "
            f"AND t.cluster_id = {json_text(dialect, 1)} AND t.shard = {json_text(dialect, 2)}",
            StoredTopology,
        ),
        secrets=RowQuery(
            "SELECT s.environment_id, s.name, s.id, s.revision, s.ciphertext, s.data_key, s.master_key, s.spec "
            f"FROM secrets AS s WHERE s.environment_id IN ({ids})",
            StoredSecret,
        ),
        sentinels=RowQuery(
            "SELECT s.id, s.workspace_id, s.project_id, s.environment_id, s.k8s_name, s.image, s.desired_replicas, "
            f"s.spec, s.region_id, s.desired_state, s.rollout FROM sentinels AS s WHERE s.id IN ({ids})",
            StoredSentinel,
        ),
        peers=RowQuery(
            "SELECT s.environment_id, s.id, s.region_id, s.entries, s.health, s.workspace_id FROM sentinels AS s "
            f"WHERE s.desired_state = 'running' AND s.environment_id IN ({ids})",
            StoredPeer,
        ),
        certificates=RowQuery(
            "SELECT c.workspace_id, c.id, c.revision, c.authority, c.ciphertext, c.data_key, c.master_key, c.shown "
            f"FROM gateway_certificates AS c WHERE c.workspace_id IN ({ids}) ORDER BY c.revision",
            StoredCertificate,
        ),
        configs={
            kind: RowQuery(
                f"SELECT o.id, o.workspace_id, o.environment_id, o.name, o.spec FROM {table} AS o "
                f"WHERE o.id IN ({ids})",
                StoredConfig,
            )
            for kind, table in (("route", "routes"), ("policy", "policies"))
        },
        keys=RowQuery(
            "SELECT e.id AS environment_id, e.workspace_id, e.name AS environment_name, k.id, k.name, k.digest, "
            "k.prefix, k.expires_at, k.spec "
            "FROM environments AS e LEFT JOIN api_keys AS k ON k.environment_id = e.id AND k.revoked_at = 0 "
            f"WHERE e.id IN ({ids}) ORDER BY k.id",
            StoredKey,
        ),
        index=RowQuery(
            "SELECT cluster_id, shard, stream, key, number, action, by_user, gone_at, fingerprint "
            "FROM desired",
            IndexedRow,
        ),
        position=RowQuery("SELECT incarnation, number, oldest FROM counters WHERE name = 'changes'", Position),
        changes=RowQuery(
            "SELECT c.number AS change, c.cluster_id, c.shard, c.stream, c.key, d.number, d.action, d.by_user, "
            "d.gone_at, c.created_at "
            "FROM changes AS c LEFT JOIN desired AS d ON d.cluster_id = c.cluster_id AND d.shard = c.shard "
            "AND d.stream = c.stream AND d.key = c.key WHERE c.number > :after ORDER BY c.number LIMIT :limit",
            ChangedRow,
        ),
        last_change=RowQuery(
            "SELECT number, created_at, cluster_id, shard, key FROM changes WHERE number <= :number "
            "ORDER BY number DESC LIMIT 1",
            MarkedChange,
        ),
    )  # fmt: skip


_BUILT = {dialect: _build(dialect) for dialect in ("sqlite", "postgresql")}


def queries(dialect: str) -> Queries:
    return _BUILT[dialect]
