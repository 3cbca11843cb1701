"""Renders rows of the database into the messages that agents receive. Pure: only this module fills these messages.

A test walks the descriptors of the messages, so it fails for a new field that is not filled here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from protobuf import Oneof

from shoal.control.service.desired.model import DesiredRow
from shoal.kube import quantity
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

_MIB = 1 << 20
_DRIFT = {"correct": pb.Drift.CORRECT, "report": pb.Drift.REPORT}
_PROBES = ("http", "tcp", "grpc", "exec")
CUSTOM_KINDS = {"route": "SentinelRoute", "policy": "SentinelPolicy", "keys": "SentinelKeys"}


@dataclass(frozen=True, slots=True)
class EncodedDeployment:
    """The bytes of a ``DeploymentState``."""

    data: bytes


State = pb.DeploymentState | pb.SentinelState | pb.CustomState | EncodedDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRow:
    id: str
    workspace: str
    project: str
    environment: str
    app: str
    namespace: str
    name: str
    app_name: str
    project_name: str
    environment_name: str
    revision: int
    image: str
    template: Mapping[str, Any]
    git: Mapping[str, Any]
    desired_state: str
    drift: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRow:
    region: str  # its name
    replicas: int
    autoscaling: Mapping[str, Any] | None
    overrides: Mapping[str, Any]
    desired_status: str
    taken_from: str = ""  # shard of the same cluster
    check_jobs: Sequence[Mapping[str, Any]] = ()
    cluster: str = ""  # id


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRow:
    """Of one secret, its key wrapped for one agent."""

    id: str
    revision: int
    wrapped_key: bytes
    ciphertext: bytes
    variables: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    region: str
    address: str
    distance: int
    healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCandidateRow:
    """Another version of a gateway, which is rolled out."""

    revision: int
    image: str
    resources: Mapping[str, Any]
    replicas: int
    covers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelRow:
    id: str
    workspace: str
    project: str
    environment: str
    name: str
    image: str
    replicas: int
    resources: Mapping[str, Any]
    region: str
    peers: Sequence[PeerRow]
    service: str
    candidate: GatewayCandidateRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRow:
    kind: str  # of the key
    workspace: str
    environment: str
    name: str
    spec: Mapping[str, Any]
    rollout: Mapping[str, Any] = field(default_factory=dict)  # of a route: what is done for candidates


def version_message(version: Version) -> pb.Version:
    return pb.Version(database=version.database, incarnation=version.incarnation, number=version.number)


def item(row: DesiredRow, version: Version, state: State | None) -> pb.Item:
    """``state`` is None for tombstones only."""
    return pb.Item(
        key=row.key,
        version=version_message(version),
        action=_action(row, state),
        by_user=bool(row.by_user),
        committed_ms=row.committed_at,
        trace=row.trace,
        correlation=row.correlation,
    )


def item_bytes(row: DesiredRow, version: Version, state: State | None) -> bytes:
    """``item``, encoded. The order of fields means nothing, so an encoded state is put behind the rest."""
    if row.action != "apply" or not isinstance(state, EncodedDeployment):
        return item(row, version, state).to_binary()
    rest = pb.Item(
        key=row.key,
        version=version_message(version),
        by_user=bool(row.by_user),
        committed_ms=row.committed_at,
        trace=row.trace,
        correlation=row.correlation,
    )
    return rest.to_binary() + b"\x1a" + _varint(len(state.data)) + state.data  # field 3, length-delimited


def _action(row: DesiredRow, state: State | None) -> Any:
    if row.action == "release":
        return Oneof("release", pb.Release(namespace=row.namespace, name=row.name))
    if row.action == "delete":
        return Oneof("delete", pb.Delete(namespace=row.namespace, name=row.name))
    if isinstance(state, pb.DeploymentState):
        return Oneof("deployment", state)
    if isinstance(state, pb.SentinelState):
        return Oneof("sentinel", state)
    if isinstance(state, pb.CustomState):
        return Oneof("custom", state)
    raise ValueError(f"{row.key} is desired, but its row has no state")


def deployment_state(
    row: DeploymentRow, where: TopologyRow, secrets: Sequence[SecretRow], registries: Sequence[SecretRow] = ()
) -> pb.DeploymentState:
    """A revision as one region runs it: its template, then what the region overrides."""
    template, overrides = row.template, where.overrides
    return pb.DeploymentState(
        deployment=row.id,
        workspace=row.workspace,
        project=row.project,
        environment=row.environment,
        app=row.app,
        namespace=row.namespace,
        name=row.name,
        app_name=row.app_name,
        project_name=row.project_name,
        environment_name=row.environment_name,
        revision=row.revision,
        region=where.region,
        running=row.desired_state == "running" and where.desired_status in ("running", "leaving"),
        image=overrides.get("image") or row.image,
        command=list(template.get("command") or ()),
        args=list(template.get("args") or ()),
        env={**(template.get("env") or {}), **(overrides.get("env") or {})},
        secrets=[_secret(secret) for secret in secrets],
        resources=_resources({**(template.get("resources") or {}), **(overrides.get("resources") or {})}),
        port=template.get("port") or 0,
        protocol=template.get("protocol") or "",
        healthcheck=_healthcheck(template.get("healthcheck")),
        replicas=where.replicas,
        autoscaling=_autoscaling(where.autoscaling),
        shutdown_signal=template.get("shutdownSignal") or "",
        termination_seconds=template.get("terminationSeconds") or 0,
        git=_git(row.git),
        drift=_DRIFT.get(row.drift, pb.Drift.CORRECT),
        node_selector=dict(template.get("nodeSelector") or {}),
        tolerations=[_toleration(each) for each in template.get("tolerations") or ()],
        taken_from=where.taken_from,
        render=template.get("render") or 0,
        security=_security(template.get("security")),
        check_jobs=[_check_job(each) for each in where.check_jobs],
        registries=[_secret(each) for each in registries],
        adopted=_adopted(template.get("adopted"), where),
        pod_labels=dict(template.get("podLabels") or {}),
    )


@dataclass(frozen=True, slots=True)
class EntryRow:
    """By what a gateway knows those of other regions, and they it."""

    secret: SecretRow
    authority: bytes


def sentinel_state(row: SentinelRow, entry: EntryRow | None) -> pb.SentinelState:
    return pb.SentinelState(
        sentinel=row.id,
        workspace=row.workspace,
        project=row.project,
        environment=row.environment,
        name=row.name,
        image=row.image,
        replicas=row.replicas,
        resources=_resources(row.resources),
        region=row.region,
        shared=not row.environment,
        peers=_peers(row.peers),
        service=row.service,
        entry=_secret(entry.secret) if entry is not None else None,
        entry_authority=entry.authority if entry is not None else b"",
        candidate=_candidate(row.candidate) if row.candidate is not None else None,
    )


def _candidate(row: GatewayCandidateRow) -> pb.SentinelCandidate:
    return pb.SentinelCandidate(
        revision=row.revision,
        image=row.image,
        resources=_resources(row.resources),
        replicas=row.replicas,
        covers=row.covers,
    )


def custom_state(row: CustomRow, name: str, tls: SecretRow | None = None) -> pb.CustomState:
    """``name`` is the one in the cluster; ``tls`` the certificate of a route."""
    return pb.CustomState(
        kind=CUSTOM_KINDS[row.kind],
        workspace=row.workspace,
        environment=row.environment,
        name=name or row.name,
        spec=orjson.dumps(row.spec, option=orjson.OPT_SORT_KEYS),
        title=row.name,
        tls=_secret(tls) if tls is not None else None,
        rollout=orjson.dumps(row.rollout, option=orjson.OPT_SORT_KEYS) if row.rollout else b"",
    )


def item_event(encoded: bytes) -> bytes:
    """The bytes of a ``WatchEvent`` around an encoded ``Item``: what is sent to many is encoded once."""
    return b"\x1a" + _varint(len(encoded)) + encoded  # field 3, length-delimited


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _secret(row: SecretRow) -> pb.SealedSecret:
    return pb.SealedSecret(
        secret=row.id,
        version=row.revision,
        wrapped_key=row.wrapped_key,
        ciphertext=row.ciphertext,
        variables=list(row.variables),
    )


def _resources(found: Mapping[str, Any]) -> pb.Resources | None:
    if not found:
        return None
    return pb.Resources(
        cpu_millicores=quantity.parse(str(found["cpu"])).milli() if "cpu" in found else 0,
        memory_mib=_mib(found.get("memory")),
        ephemeral_mib=_mib(found.get("ephemeralStorage")),
    )


def _mib(amount: Any) -> int:
    return -(-quantity.parse(str(amount)).value() // _MIB) if amount is not None else 0


def _check_job(found: Mapping[str, Any]) -> pb.CheckJob:
    return pb.CheckJob(
        id=found["id"],
        check=found["check"],
        image=found["image"],
        command=list(found.get("command") or ()),
        args=list(found.get("args") or ()),
        env=dict(found.get("env") or {}),
        resources=_resources(found.get("resources") or {}),
        timeout_seconds=found["timeoutSeconds"],
    )


def _healthcheck(found: Mapping[str, Any] | None) -> pb.HealthCheck | None:
    if not found:
        return None
    kind = next((name for name in _PROBES if found.get(name) is not None), "")
    probe: Mapping[str, Any] = found.get(kind) or {}
    return pb.HealthCheck(
        kind=kind,
        path=probe.get("path") or "",
        command=list(probe.get("command") or ()),
        port=probe.get("port") or 0,
        initial_delay_seconds=found.get("initialDelay") or 0,
        period_seconds=found.get("period") or 0,
        timeout_seconds=found.get("timeout") or 0,
        failures=found.get("failures") or 0,
    )


def _autoscaling(found: Mapping[str, Any] | None) -> pb.Autoscaling | None:
    if not found:
        return None
    return pb.Autoscaling(
        min=found.get("min") or 0,
        max=found.get("max") or 0,
        cpu_percent=found.get("cpu") or 0,
        memory_percent=found.get("memory") or 0,
    )


def _git(found: Mapping[str, Any]) -> pb.Git | None:
    if not found:
        return None
    return pb.Git(
        sha=found.get("sha") or "",
        branch=found.get("branch") or "",
        repository=found.get("repository") or "",
        message=found.get("message") or "",
    )


def _security(found: Mapping[str, Any] | None) -> pb.Security | None:
    if not found:
        return None
    return pb.Security(
        capabilities=list(found.get("capabilities") or ()),
        privilege_escalation=bool(found.get("privilegeEscalation")),
        run_as_non_root=bool(found.get("runAsNonRoot")),
        run_as_user=found.get("runAsUser") or 0,
        unconfined=found.get("seccomp") == "Unconfined",
    )


def _adopted(by_region: Mapping[str, Any] | None, where: TopologyRow) -> pb.Adopted | None:
    """In another cluster of the region, where it was moved to, the revision is a Deployment of its own."""
    found = (by_region or {}).get(where.region)
    if not found or found["clusterId"] != where.cluster:
        return None
    return pb.Adopted(
        deployment=found["deployment"],
        uid=found["uid"],
        selector=dict(found["selector"]),
        autoscaler=found.get("autoscaler") or "",
    )


def _toleration(found: Mapping[str, Any]) -> pb.Toleration:
    return pb.Toleration(
        key=found.get("key") or "",
        operator=found.get("operator") or "",
        value=found.get("value") or "",
        effect=found.get("effect") or "",
    )


def _peers(rows: Sequence[PeerRow]) -> list[pb.Peer]:
    """One per region: all addresses of it, healthy when one of them is."""
    regions: dict[str, list[PeerRow]] = {}
    for row in rows:
        regions.setdefault(row.region, []).append(row)
    return [
        pb.Peer(
            region=region,
            addresses=sorted(peer.address for peer in peers),
            distance=min(peer.distance for peer in peers),
            healthy=any(peer.healthy for peer in peers),
        )
        for region, peers in sorted(regions.items())
    ]
