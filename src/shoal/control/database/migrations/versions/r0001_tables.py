"""The tables as they were first released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("agent", sa.String(length=128), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("software", sa.String(length=64), nullable=False),
        sa.Column("joined_at", sa.BigInteger(), nullable=False),
        sa.Column("last_heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.Column("state", JSON, nullable=True),
        sa.Column("confirmed_deletes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "shard", name=op.f("pk_agents")),
    )
    op.create_table(
        "audit",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("diff", JSON, nullable=True),
        sa.Column("correlation", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_workspace_id_at"), "audit", ["workspace_id", "at"], unique=False)
    op.create_index(op.f("ix_audit_workspace_id_object_id"), "audit", ["workspace_id", "object_id"], unique=False)
    op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("stream", sa.String(length=16), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("key", sa.String(length=96), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_changes")),
    )
    op.create_index(
        op.f("ix_changes_cluster_id_shard_stream_number"),
        "changes",
        ["cluster_id", "shard", "stream", "number"],
        unique=False,
    )
    op.create_index(op.f("ix_changes_created_at"), "changes", ["created_at"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("oldest", sa.BigInteger(), nullable=False),
        sa.Column("database", sa.String(length=32), nullable=False),
        sa.Column("fleet", sa.String(length=32), nullable=False),
        sa.Column("signing_key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "desired",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=96), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("by_user", sa.Boolean(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.Column("trace", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("applied_incarnation", sa.BigInteger(), nullable=False),
        sa.Column("applied_number", sa.BigInteger(), nullable=False),
        sa.Column("applied_at", sa.BigInteger(), nullable=False),
        sa.Column("error", JSON, nullable=True),
        sa.Column("observed", JSON, nullable=True),
        sa.Column("observed_at", sa.BigInteger(), nullable=False),
        sa.Column("report_epoch", sa.BigInteger(), nullable=False),
        sa.Column("report_sequence", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.BigInteger(), nullable=False),
        sa.Column("gone_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "shard", "stream", "key", name=op.f("pk_desired")),
    )
    op.create_index(op.f("ix_desired_number"), "desired", ["number"], unique=False)
    op.create_index(op.f("ix_desired_workspace_id_object_id"), "desired", ["workspace_id", "object_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_at"), "events", ["at"], unique=False)
    op.create_index(op.f("ix_events_workspace_id_object_id"), "events", ["workspace_id", "object_id"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"], unique=False)
    op.create_table(
        "instances",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("deployment_id", sa.String(length=64), nullable=False),
        sa.Column("region_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("zone", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=255), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=False),
        sa.Column("cpu_millicores", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("reported_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "uid", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_workspace_id_deployment_id"), "instances", ["workspace_id", "deployment_id"], unique=False
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_projects_workspace_id_name")),
    )
    op.create_table(
        "regions",
        sa.Column("platform", sa.String(length=63), nullable=False),
        sa.Column("can_schedule", sa.Boolean(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regions")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_regions_workspace_id_name")),
    )
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("app_id", sa.String(length=64), nullable=False),
        sa.Column("deployment_id", sa.String(length=64), nullable=False),
        sa.Column("previous_id", sa.String(length=64), nullable=False),
        sa.Column("strategy", JSON, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("decisions", JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    op.create_index(op.f("ix_rollouts_workspace_id_app_id"), "rollouts", ["workspace_id", "app_id"], unique=False)
    op.create_table(
        "sentinels",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("region_id", sa.String(length=64), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("k8s_name", sa.String(length=63), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("running_image", sa.Text(), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("desired_state", sa.String(length=16), nullable=False),
        sa.Column("desired_replicas", sa.BigInteger(), nullable=False),
        sa.Column("available_replicas", sa.BigInteger(), nullable=False),
        sa.Column("health", sa.String(length=16), nullable=False),
        sa.Column("deploy_status", sa.String(length=16), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sentinels")),
        sa.UniqueConstraint("k8s_name", name=op.f("uq_sentinels_k8s_name")),
        sa.UniqueConstraint(
            "workspace_id",
            "environment_id",
            "region_id",
            name=op.f("uq_sentinels_workspace_id_environment_id_region_id"),
        ),
    )
    op.create_index(
        op.f("ix_sentinels_environment_id_region_id_health"),
        "sentinels",
        ["environment_id", "region_id", "health"],
        unique=False,
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("previous_digest", sa.String(length=64), nullable=False),
        sa.Column("previous_until", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("lifetime_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        sa.UniqueConstraint("workspace_id", "kind", "name", name=op.f("uq_tokens_workspace_id_kind_name")),
    )
    op.create_index(op.f("ix_tokens_previous_digest"), "tokens", ["previous_digest"], unique=False)
    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
    )
    op.create_table(
        "clusters",
        sa.Column("region_id", sa.String(length=64), nullable=False),
        sa.Column("can_schedule", sa.Boolean(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name=op.f("fk_clusters_region_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_clusters_workspace_id_name")),
    )
    op.create_index(op.f("ix_clusters_region_id"), "clusters", ["region_id"], unique=False)
    op.create_table(
        "environments",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_environments_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("namespace", name=op.f("uq_environments_namespace")),
        sa.UniqueConstraint(
            "workspace_id", "project_id", "name", name=op.f("uq_environments_workspace_id_project_id_name")
        ),
    )
    op.create_table(
        "api_keys",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_api_keys_environment_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_api_keys_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_api_keys_workspace_id_environment_id_name")
        ),
    )
    op.create_table(
        "apps",
        sa.Column("deployment_id", sa.String(length=64), nullable=False),
        sa.Column("live_deployment_id", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("template_hash", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_apps_environment_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_apps_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_apps")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_apps_workspace_id_environment_id_name")
        ),
    )
    op.create_table(
        "policies",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_policies_environment_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_policies_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_policies_workspace_id_environment_id_name")
        ),
    )
    op.create_table(
        "routes",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_routes_environment_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_routes_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_routes")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_routes_workspace_id_environment_id_name")
        ),
    )
    op.create_index(op.f("ix_routes_host"), "routes", ["host"], unique=False)
    op.create_table(
        "secrets",
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("data_key", sa.LargeBinary(), nullable=False),
        sa.Column("master_key", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("annotations", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_secrets_environment_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_secrets_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint(
            "workspace_id", "environment_id", "name", name=op.f("uq_secrets_workspace_id_environment_id_name")
        ),
    )
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("app_id", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("k8s_name", sa.String(length=63), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("template", JSON, nullable=False),
        sa.Column("template_hash", sa.String(length=64), nullable=False),
        sa.Column("git", JSON, nullable=True),
        sa.Column("desired_state", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ready_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name=op.f("fk_deployments_app_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
        sa.UniqueConstraint("k8s_name", name=op.f("uq_deployments_k8s_name")),
        sa.UniqueConstraint(
            "workspace_id", "app_id", "revision", name=op.f("uq_deployments_workspace_id_app_id_revision")
        ),
    )
    op.create_index(op.f("ix_deployments_workspace_id_status"), "deployments", ["workspace_id", "status"], unique=False)
    op.create_table(
        "deployment_topology",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("deployment_id", sa.String(length=64), nullable=False),
        sa.Column("region_id", sa.String(length=64), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("shard", sa.String(length=63), nullable=False),
        sa.Column("reason", JSON, nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("autoscaling", JSON, nullable=True),
        sa.Column("overrides", JSON, nullable=True),
        sa.Column("desired_status", sa.String(length=16), nullable=False),
        sa.Column("moved_from", sa.String(length=64), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"], ["deployments.id"], name=op.f("fk_deployment_topology_deployment_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment_topology")),
        sa.UniqueConstraint(
            "workspace_id",
            "deployment_id",
            "region_id",
            "cluster_id",
            "shard",
            name=op.f("uq_deployment_topology_workspace_id_deployment_id_region_id_cluster_id_shard"),
        ),
    )
    op.create_index(
        op.f("ix_deployment_topology_cluster_id_shard_deployment_id"),
        "deployment_topology",
        ["cluster_id", "shard", "deployment_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_deployment_topology_deployment_id"), "deployment_topology", ["deployment_id"], unique=False
    )
    # ### end Alembic commands ###
