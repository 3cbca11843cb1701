"""The tables of the fleet. One database holds whole workspaces; a fleet may have several databases.

Every row carries ``workspace_id``, and every key that people's data is found by begins with it, except the rows that
belong to the fleet itself (regions, clusters, agents), whose workspace is ``FLEET``. Ids are fixed-length and
case-sensitive; times are milliseconds since 1970.

``desired`` and ``changes`` are what the agents see, whatever the kind of object:

    desired   one row per object and place (cluster, shard): its version, whether it is wanted there, and what the agent
              says became of it. A row that is no longer wanted stays as a tombstone until it is old enough.
    changes   which row of ``desired`` changed, numbered in the order of commits. Other writes take numbers too.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from shoal.control.database.rollout_tables import BadRevision as BadRevision
from shoal.control.database.rollout_tables import Rollout as Rollout
from shoal.control.database.rollout_tables import RolloutCheck as RolloutCheck
from shoal.control.database.rollout_tables import RolloutDecision as RolloutDecision
from shoal.control.database.rollout_tables import RolloutNotification as RolloutNotification
from shoal.control.database.session_tables import LoginCode as LoginCode
from shoal.control.database.session_tables import Session as Session
from shoal.control.database.table_base import FLEET as FLEET
from shoal.control.database.table_base import NAME_LENGTH as NAME_LENGTH
from shoal.control.database.table_base import Base as Base
from shoal.control.database.table_base import Key, Serial, by_correlation


class Compatibility(Base):
    """One row, which belongs to the tables and not to what they hold."""

    __tablename__ = "compatibility"
    oldest: Mapped[str] = mapped_column(String(32), primary_key=True)  # revision whose programs work with the tables


class Counter(Base):
    """One row: the position of the sequence of changes, and the incarnation of the database."""

    __tablename__ = "counters"
    name: Mapped[str] = mapped_column(String(16), primary_key=True)  # "changes"
    incarnation: Mapped[int]
    number: Mapped[int]
    oldest: Mapped[int]  # changes up to this number were forgotten
    database: Mapped[str] = mapped_column(String(32))  # which of the fleet's databases this is
    fleet: Mapped[str] = mapped_column(String(32))  # which fleet
    signing_key: Mapped[bytes]  # of cursors


class Change(Base):
    """``key`` is the object, as agents know it."""

    __tablename__ = "changes"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    workspace_id: Mapped[str] = mapped_column(Key)
    stream: Mapped[str] = mapped_column(String(16))  # deployments or sentinels
    cluster_id: Mapped[str] = mapped_column(Key)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH))
    key: Mapped[str] = mapped_column(String(96))
    created_at: Mapped[int]
    correlation: Mapped[str] = mapped_column(String(64), default="", server_default="")  # of the request that led to it
    # of changes that a request led to: when the agent received and applied it (by the agent's clock), when that was
    # reported, and when everything of it first ran
    received_at: Mapped[int] = mapped_column(default=0, server_default="0")
    applied_at: Mapped[int] = mapped_column(default=0, server_default="0")
    reported_at: Mapped[int] = mapped_column(default=0, server_default="0")
    ready_at: Mapped[int] = mapped_column(default=0, server_default="0")
    __table_args__ = (
        Index(None, "cluster_id", "shard", "stream", "number"),
        Index(None, "created_at"),
        by_correlation(),
    )


class Desired(Base):
    """``number`` is the version. ``action`` is apply, delete or release."""

    __tablename__ = "desired"
    cluster_id: Mapped[str] = mapped_column(Key, primary_key=True)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    stream: Mapped[str] = mapped_column(String(16), primary_key=True)
    key: Mapped[str] = mapped_column(String(96), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    kind: Mapped[str] = mapped_column(String(16))  # deployment, environment, sentinel, route, policy, keys
    object_id: Mapped[str] = mapped_column(Key)
    action: Mapped[str] = mapped_column(String(16))
    number: Mapped[int]
    by_user: Mapped[bool]
    committed_at: Mapped[int]
    trace: Mapped[str] = mapped_column(String(64), default="")
    correlation: Mapped[str] = mapped_column(String(64), default="", server_default="")
    namespace: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    name: Mapped[str] = mapped_column(default="")
    # reported by the agent
    applied_incarnation: Mapped[int] = mapped_column(default=0)
    applied_number: Mapped[int] = mapped_column(default=0)
    applied_at: Mapped[int] = mapped_column(default=0)
    error: Mapped[dict[str, Any] | None]  # {number, reason, message, attempts, since}
    observed: Mapped[dict[str, Any] | None]  # {desired, available, drift, health, image, address…}
    observed_at: Mapped[int] = mapped_column(default=0)
    report_epoch: Mapped[int] = mapped_column(default=0)
    report_sequence: Mapped[int] = mapped_column(default=0)
    fingerprint: Mapped[int] = mapped_column(default=0)  # of the last report, signed 64 bit
    gone_at: Mapped[int] = mapped_column(default=0)  # when the agent confirmed that it is removed or released
    __table_args__ = (Index(None, "workspace_id", "object_id"), Index(None, "number"))


class Workspace(Base):
    __tablename__ = "workspaces"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    name: Mapped[str] = mapped_column(String(NAME_LENGTH), unique=True)
    created_at: Mapped[int]
    policy: Mapped[dict[str, Any] | None]  # quotas, tolerations and outbound hosts that differ from the defaults


class Host(Base):
    """The workspace whose routes may have a host. In the fleet's own database, for the routes of all databases."""

    __tablename__ = "hosts"
    host: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    reserved_at: Mapped[int]


class Domain(Base):
    """The workspace that a domain belongs to, with all hosts in it. In the fleet's own database."""

    __tablename__ = "domains"
    domain: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key, index=True)
    created_at: Mapped[int]


class _Named:
    """What every object that people apply has. ``version`` is the ETag: the number of its last change."""

    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    name: Mapped[str] = mapped_column(String(NAME_LENGTH))
    labels: Mapped[dict[str, Any]]
    annotations: Mapped[dict[str, Any]]
    spec: Mapped[dict[str, Any]]
    generation: Mapped[int]
    version: Mapped[int]
    created_at: Mapped[int]
    updated_at: Mapped[int]


class Project(_Named, Base):
    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("workspace_id", "name"),)


class Environment(_Named, Base):
    __tablename__ = "environments"
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    namespace: Mapped[str] = mapped_column(String(NAME_LENGTH), unique=True)  # in every cluster
    __table_args__ = (UniqueConstraint("workspace_id", "project_id", "name"),)


class _InEnvironment(_Named):
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"))


class App(_InEnvironment, Base):
    """``spec`` is what was applied; ``deployment_id`` the newest revision made of it. ``status`` is ours."""

    __tablename__ = "apps"
    deployment_id: Mapped[str] = mapped_column(Key, default="")
    live_deployment_id: Mapped[str] = mapped_column(Key, default="")  # the newest that became ready as a whole
    revision: Mapped[int] = mapped_column(default=0)
    template_hash: Mapped[str] = mapped_column(String(64), default="")
    preview_host: Mapped[str] = mapped_column(default="", server_default="")  # reserved as the hosts of routes are
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"), Index(None, "preview_host"))


class Route(_InEnvironment, Base):
    __tablename__ = "routes"
    host: Mapped[str] = mapped_column(default="")
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"), Index(None, "host"))


class Policy(_InEnvironment, Base):
    __tablename__ = "policies"
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"),)


class ApiKey(_InEnvironment, Base):
    __tablename__ = "api_keys"
    digest: Mapped[str] = mapped_column(String(64), unique=True)  # sha256 of the key; the key is nowhere
    prefix: Mapped[str] = mapped_column(String(16))
    expires_at: Mapped[int] = mapped_column(default=0)
    revoked_at: Mapped[int] = mapped_column(default=0)
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"),)


class _Sealed(_InEnvironment):
    """``spec`` has the names of the values only; the values are sealed."""

    revision: Mapped[int]
    ciphertext: Mapped[bytes]
    data_key: Mapped[bytes]  # wrapped by the master key
    master_key: Mapped[str] = mapped_column(String(64))  # which one


class Secret(_Sealed, Base):
    """Variables of apps. Agents get the values."""

    __tablename__ = "secrets"
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"),)


class Credential(_Sealed, Base):
    """Headers that the control plane sends with checks and notifications. Agents never get the values."""

    __tablename__ = "credentials"
    __table_args__ = (UniqueConstraint("workspace_id", "environment_id", "name"),)


class ControlKey(Base):
    """A key of the control plane itself, by its purpose."""

    __tablename__ = "control_keys"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    data_key: Mapped[bytes]  # wrapped by the master key
    master_key: Mapped[str] = mapped_column(String(64))  # which one
    created_at: Mapped[int]


class Region(_Named, Base):
    __tablename__ = "regions"
    platform: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    can_schedule: Mapped[bool] = mapped_column(default=True)
    __table_args__ = (UniqueConstraint("workspace_id", "name"),)


class Cluster(_Named, Base):
    """``spec`` has shards, taints and capacity."""

    __tablename__ = "clusters"
    region_id: Mapped[str] = mapped_column(ForeignKey("regions.id"))
    can_schedule: Mapped[bool] = mapped_column(default=True)
    __table_args__ = (UniqueConstraint("workspace_id", "name"), Index(None, "region_id"))


class Agent(Base):
    """The agent of a shard of a cluster: one process at a time, the one with the newest epoch."""

    __tablename__ = "agents"
    cluster_id: Mapped[str] = mapped_column(Key, primary_key=True)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key, default=FLEET)
    agent: Mapped[str] = mapped_column(String(128))
    epoch: Mapped[int]
    public_key: Mapped[bytes]
    software: Mapped[str] = mapped_column(String(64), default="")
    joined_at: Mapped[int]
    last_heartbeat_at: Mapped[int] = mapped_column(default=0)
    lost: Mapped[bool] = mapped_column(default=False)
    state: Mapped[dict[str, Any] | None]  # the last heartbeat: per controller cursor, lag, breaker, brake
    confirmed_deletes: Mapped[str] = mapped_column(Text, default="")


class Deployment(Base):
    """One revision of an app. ``template`` never changes."""

    __tablename__ = "deployments"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    project_id: Mapped[str] = mapped_column(Key)
    environment_id: Mapped[str] = mapped_column(Key)
    app_id: Mapped[str] = mapped_column(ForeignKey("apps.id"))
    revision: Mapped[int]
    k8s_name: Mapped[str] = mapped_column(String(NAME_LENGTH), unique=True)
    namespace: Mapped[str] = mapped_column(String(NAME_LENGTH))
    image: Mapped[str] = mapped_column(Text)
    template: Mapped[dict[str, Any]]
    template_hash: Mapped[str] = mapped_column(String(64))
    git: Mapped[dict[str, Any] | None]
    desired_state: Mapped[str] = mapped_column(String(16))  # running, standby or archived
    status: Mapped[str] = mapped_column(String(16))  # pending, deploying, ready, failed, stopped, superseded
    reason: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[int]
    updated_at: Mapped[int]
    ready_at: Mapped[int] = mapped_column(default=0)
    broken_at: Mapped[int] = mapped_column(
        default=0, server_default="0"
    )  # since when it fails although it was ready; 0: it does not
    __table_args__ = (UniqueConstraint("workspace_id", "app_id", "revision"), Index(None, "workspace_id", "status"))


class Topology(Base):
    """A deployment in a region, placed on one shard of one cluster; two rows while it moves."""

    __tablename__ = "deployment_topology"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployments.id"))
    region_id: Mapped[str] = mapped_column(Key)
    cluster_id: Mapped[str] = mapped_column(Key)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH))
    reason: Mapped[dict[str, Any]]  # of the placement: what was considered, and why this one
    replicas: Mapped[int]
    autoscaling: Mapped[dict[str, Any] | None]
    overrides: Mapped[dict[str, Any] | None]  # image, env and resources of this region
    desired_status: Mapped[str] = mapped_column(String(16))  # running, stopped, leaving (moves away) or gone
    moved_from: Mapped[str] = mapped_column(Key, default="")  # topology row this one replaces once it is ready
    # the revision that it counts as: a newer one with the same containers takes its instances over; 0: its deployment's
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    # percent of the app's requests at the region's gateways; the most that some gateway may still send
    weight: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    routed: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    instances: Mapped[int | None] = mapped_column(Integer)  # while revisions are exchanged; else as replicas say
    target: Mapped[int] = mapped_column(
        Integer, default=0, server_default="0"
    )  # instances at the end of an exchange; 0: none under way
    # of a rollout's candidate, besides its weight: header and cookie of testers, mirror, previewHost
    extras: Mapped[dict[str, Any] | None]
    # of a rollout's candidate: jobs of its checks that its agent runs, with what was reported of them
    check_jobs: Mapped[list[Any] | None]
    updated_at: Mapped[int]
    __table_args__ = (
        UniqueConstraint("workspace_id", "deployment_id", "region_id", "cluster_id", "shard"),
        Index(None, "cluster_id", "shard", "deployment_id"),
        Index(None, "deployment_id"),
    )


class Sentinel(_Named, Base):
    """The gateway of an environment in a region, or the shared one of the region (no environment)."""

    __tablename__ = "sentinels"
    project_id: Mapped[str] = mapped_column(Key, default="")
    environment_id: Mapped[str] = mapped_column(Key, default="")
    region_id: Mapped[str] = mapped_column(Key)
    cluster_id: Mapped[str] = mapped_column(Key)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH))
    k8s_name: Mapped[str] = mapped_column(String(NAME_LENGTH), unique=True)
    image: Mapped[str] = mapped_column(Text)
    running_image: Mapped[str] = mapped_column(Text, default="")
    address: Mapped[str] = mapped_column(default="")
    entries: Mapped[list[Any] | None]  # host:port, where gateways of other regions come in
    forgotten: Mapped[list[Any] | None]  # its pods that nothing waits for until they are heard of; * for all
    desired_state: Mapped[str] = mapped_column(String(16))  # running, standby or archived
    desired_replicas: Mapped[int]
    available_replicas: Mapped[int] = mapped_column(default=0)
    health: Mapped[str] = mapped_column(String(16), default="unknown")
    deploy_status: Mapped[str] = mapped_column(String(16), default="progressing")  # idle, progressing, ready, failed
    rollout: Mapped[dict[str, Any] | None]  # of another version of it: ``shoal.control.domain.gateway_rollouts.known``
    __table_args__ = (
        UniqueConstraint("workspace_id", "environment_id", "region_id"),
        Index(None, "environment_id", "region_id", "health"),
    )


class GatewayCertificate(Base):
    """By which the gateways of a workspace know each other, with its key sealed. Every authority that has not expired
    is believed; the newest certificate that is ``shown`` is the one that gateways show."""

    __tablename__ = "gateway_certificates"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    revision: Mapped[int]
    authority: Mapped[bytes]  # PEM; its own key is nowhere
    ciphertext: Mapped[bytes]  # of tls.crt and tls.key
    data_key: Mapped[bytes]
    master_key: Mapped[str] = mapped_column(String(64))
    shown: Mapped[bool]
    created_at: Mapped[int]
    expires_at: Mapped[int]
    __table_args__ = (UniqueConstraint("workspace_id", "revision"),)


class Instance(Base):
    """A pod of a deployment, as its cluster reports it."""

    __tablename__ = "instances"
    cluster_id: Mapped[str] = mapped_column(Key, primary_key=True)
    uid: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    deployment_id: Mapped[str] = mapped_column(Key)
    region_id: Mapped[str] = mapped_column(Key)
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH))
    name: Mapped[str]
    address: Mapped[str] = mapped_column(default="")
    node: Mapped[str] = mapped_column(default="")
    zone: Mapped[str] = mapped_column(default="")
    status: Mapped[str] = mapped_column(String(16))  # pending, running, failed, unknown (its agent is lost)
    ready: Mapped[bool]
    outdated: Mapped[bool] = mapped_column(default=False, server_default=false())  # it has older values of its secrets
    restarts: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(default="")
    message: Mapped[str] = mapped_column(Text, default="")
    exit_code: Mapped[int] = mapped_column(Integer, default=0)
    cpu_millicores: Mapped[int] = mapped_column(Integer, default=0)
    memory_mib: Mapped[int] = mapped_column(Integer, default=0)
    started_at: Mapped[int] = mapped_column(default=0)
    reported_at: Mapped[int]
    __table_args__ = (Index(None, "workspace_id", "deployment_id"),)


class Traffic(Base):
    """What the gateways of a region counted of an environment's deployments, in 5 s or, later, in a minute."""

    __tablename__ = "traffic"
    environment_id: Mapped[str] = mapped_column(Key, primary_key=True)
    from_at: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    span_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    region_id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    deployments: Mapped[dict[str, Any]]  # by id, those that had requests: ``shoal.control.database.traffic``
    __table_args__ = (Index(None, "span_ms", "from_at"),)


class Token(Base):
    """A token for the control plane. Only its digest is stored."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    kind: Mapped[str] = mapped_column(String(16))  # user, agent or edge
    name: Mapped[str] = mapped_column(String(NAME_LENGTH))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    previous_digest: Mapped[str] = mapped_column(String(64), default="")  # of the text before the last rotation
    previous_until: Mapped[int] = mapped_column(default=0)  # that text works until then
    role: Mapped[str] = mapped_column(String(16), default="")  # of a user: admin, editor or viewer
    cluster: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    region: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    shard: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    created_at: Mapped[int]
    lifetime_ms: Mapped[int] = mapped_column(default=0)  # of each text of it; 0: for ever
    expires_at: Mapped[int] = mapped_column(default=0)
    revoked_at: Mapped[int] = mapped_column(default=0)
    last_used_at: Mapped[int] = mapped_column(default=0)
    __table_args__ = (UniqueConstraint("workspace_id", "kind", "name"), Index(None, "previous_digest"))


class Audit(Base):
    """The audit log of changes; also the source of an object's history."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    at: Mapped[int]
    actor: Mapped[str]
    action: Mapped[str] = mapped_column(String(32))
    kind: Mapped[str] = mapped_column(String(32))
    object_id: Mapped[str] = mapped_column(Key)
    name: Mapped[str]  # project/environment/name
    diff: Mapped[list[Any] | None]  # [{path, before, after}], secrets never
    correlation: Mapped[str] = mapped_column(String(64), default="")
    accepted_at: Mapped[int] = mapped_column(
        default=0, server_default="0"
    )  # when the request came; ``at`` is its transaction
    __table_args__ = (
        Index(None, "workspace_id", "at"),
        Index(None, "workspace_id", "object_id"),
        by_correlation(),
    )


class Event(Base):
    """What happened to an object, for people: placed, applied, ready, failed, lost, moved."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    at: Mapped[int]
    type: Mapped[str] = mapped_column(String(16))  # Normal or Warning
    reason: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(32))
    object_id: Mapped[str] = mapped_column(Key)
    name: Mapped[str]
    region: Mapped[str] = mapped_column(String(NAME_LENGTH), default="")
    message: Mapped[str] = mapped_column(Text)
    correlation: Mapped[str] = mapped_column(String(64), default="", server_default="")
    __table_args__ = (Index(None, "workspace_id", "object_id"), Index(None, "at"), by_correlation())


class Idempotency(Base):
    """The answer to a request that carried a client's key, so that sending it twice does it once."""

    __tablename__ = "idempotency"
    workspace_id: Mapped[str] = mapped_column(Key, primary_key=True)
    key: Mapped[str] = mapped_column(String(128), primary_key=True)
    request: Mapped[str] = mapped_column(String(64))  # digest of the request
    status: Mapped[int] = mapped_column(Integer)
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[int]
    __table_args__ = (Index(None, "created_at"),)
