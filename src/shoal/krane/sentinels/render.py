"""Renders a sentinel into its Kubernetes objects; pure. All are in one namespace and have the sentinel's name.

Optionally a sentinel uses the Secret ``redis`` of its namespace, with the entry ``url``, to count strict limits. The
operator of the cluster creates it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from shoal.errors import Invalid, not_supported
from shoal.krane.deployments.check import check_id, check_name
from shoal.krane.deployments.pod import cpu, mib, spread
from shoal.krane.labels import (
    CANDIDATE,
    FLEET,
    NAMESPACE_SENTINEL,
    RENDER,
    SENTINEL,
    SERVING,
    TOPOLOGY_KEY_HOST,
    TOPOLOGY_KEY_ZONE,
    labels_of,
)
from shoal.krane.owner import Owner
from shoal.krane.sentinels.images import GatewaySettings
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

SENTINEL_PORT = 8040
HEALTH_PORT = 8041
METRICS_PORT = 8042
ENTRY_PORT = 8043  # for sentinels of other regions
WEB, WEB_PORT = "web", 80  # of the Service, for users
SENTINEL_NODE_CLASS = "sentinel"
PEERS = "peers.json"  # the entry of the ConfigMap
ENTRY_SECRET = ("tls.crt", "tls.key")  # what has to be sealed in the state
REDIS_SECRET, REDIS_URL = "redis", "url"
STATE_DIR = "/var/lib/shoal"  # survives a restart of the container, and is never on a disk


SERVING_LABEL = {SERVING: "true"}
"""Of the pods that the Service leads to; ``serving`` takes silent ones out by another value."""
_TOLERATION = {"key": "node-class", "operator": "Equal", "value": SENTINEL_NODE_CLASS, "effect": "NoSchedule"}
_PROGRESS_S = 300
_GRACE_S = 45
_DRAIN_S = 5
_CPU_MILLICORES, _MEMORY_MIB = 250, 256
_IP = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
_POD = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
_NODE = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
_REDIS = {"secretKeyRef": {"name": REDIS_SECRET, "key": REDIS_URL, "optional": True}}
_STATE = {"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
_ARGUMENTS = ("sentinel", "start")  # of the image's entry point, shoal
_SERVICES = ("ClusterIP", "NodePort", "LoadBalancer")
_ONE_MORE = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
_ONE_LESS = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}  # a candidate serves too


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    before: tuple[Obj, ...]
    root: Obj
    after: tuple[Obj, ...]


def peers_name(name: str) -> str:
    return f"peers-{name}"


def candidate_name(name: str, revision: int) -> str:
    return f"{name}-{revision}"


def entry_name(name: str) -> str:
    return f"entry-{name}"


def check(state: pb.SentinelState) -> None:
    errors = [*check_id("sentinel", state.sentinel), *check_name("name", state.name)]
    for field in ("workspace", "project", "environment"):
        if value := getattr(state, field):
            errors += check_id(field, value)
    if state.service and state.service not in _SERVICES:
        errors.append(not_supported("service", state.service, _SERVICES))
    if errors:
        raise Invalid.of("SentinelState", "", state.name or state.sentinel, errors)


def render(
    state: pb.SentinelState,
    owner: Owner,
    settings: GatewaySettings,
    entry: Mapping[str, str] | None = None,
    *,
    labelled: bool = True,
) -> Rendered:
    """The state has been checked. ``settings`` are the agent's, with the image that was chosen. ``entry``: what was
    sealed in the state, if there was something. ``labelled``: every pod that runs has the label that its Service may
    demand."""
    labels = labels_of(
        owner, "sentinel", state.sentinel,
        workspace=state.workspace, project=state.project, environment=state.environment,
    )  # fmt: skip
    selector = {FLEET: labels[FLEET], SENTINEL: labels[SENTINEL]}
    about = {"name": state.name, "namespace": NAMESPACE_SENTINEL, "labels": labels}
    peers = {**about, "name": peers_name(state.name)}
    known = (_entry(about, state, entry),) if entry and state.entry_authority else ()
    covers = state.candidate is not None and state.candidate.covers
    return Rendered(
        before=(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": peers, "data": {PEERS: _peers(state)}},
            *known,
        ),
        root={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _with_rules(about, settings),
            "spec": {
                **_spec(state, labels, selector, settings),
                "replicas": state.replicas,
                "strategy": _ONE_LESS if covers else _ONE_MORE,
            },
        },
        after=(
            _service(about, {**selector, **SERVING_LABEL} if labelled else selector, state.service or _SERVICES[0]),
            _disruption_budget(about, selector),
        ),
    )


def render_candidate(
    state: pb.SentinelState, candidate: pb.SentinelCandidate, owner: Owner, settings: GatewaySettings
) -> Obj:
    """Another version of a sentinel, in a Deployment of its own: the Service and the disruption budget lead to the pods
    of both, and the sentinel in them has the same name, so they get the same routes. ``settings`` have its image."""
    labels = labels_of(
        owner, "sentinel", state.sentinel,
        workspace=state.workspace, project=state.project, environment=state.environment,
    ) | {CANDIDATE: str(candidate.revision)}  # fmt: skip
    selector = {name: labels[name] for name in (FLEET, SENTINEL, CANDIDATE)}
    about = {"name": candidate_name(state.name, candidate.revision), "namespace": NAMESPACE_SENTINEL, "labels": labels}
    sized = pb.SentinelState.from_binary(state.to_binary())
    sized.resources = candidate.resources
    spec = _spec(sized, labels, selector, settings)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _with_rules(about, settings),
        "spec": {**spec, "replicas": candidate.replicas, "strategy": _ONE_MORE},
    }


def _with_rules(about: Obj, settings: GatewaySettings) -> Obj:
    text = settings.rendering.text
    return {**about, "annotations": {RENDER: text}} if text else about


def _spec(
    state: pb.SentinelState, labels: Mapping[str, str], selector: Mapping[str, str], settings: GatewaySettings
) -> Obj:
    pod: Obj = {
        "serviceAccountName": state.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "tolerations": [_TOLERATION],
        "topologySpreadConstraints": [spread(key, selector) for key in (TOPOLOGY_KEY_ZONE, TOPOLOGY_KEY_HOST)],
        "containers": [_container(state, settings)],
        "volumes": [_STATE],
    }
    if settings.rendering.version > 1:
        pod |= _of_second_rules(settings)
    return {
        "selector": {"matchLabels": dict(selector)},
        "progressDeadlineSeconds": _PROGRESS_S,
        "template": {"metadata": {"labels": {**labels, **SERVING_LABEL}}, "spec": pod},
    }


def _of_second_rules(settings: GatewaySettings) -> Obj:
    """What pods have since rules have numbers. A gateway keeps those it was rendered by until its image changes."""
    security: Obj = {"seccompProfile": {"type": "RuntimeDefault"}}
    if settings.rendering.non_root:
        security["runAsNonRoot"] = True
    pull = {"imagePullSecrets": [{"name": settings.pull_secret}]} if settings.pull_secret else {}
    return {"securityContext": security, **pull}


def _container(state: pb.SentinelState, settings: GatewaySettings) -> Obj:
    plain = {
        "SHOAL_SENTINEL_NAME": state.name,
        "SHOAL_SENTINEL_REGION": state.region,
        "SHOAL_SENTINEL_SHARED": "true" if state.shared else "false",
        "SHOAL_SENTINEL_ENVIRONMENT": state.environment,
        "SHOAL_SENTINEL_ENTRY_PORT": str(ENTRY_PORT),
        "SHOAL_SENTINEL_ENTRY_SECRET": entry_name(state.name),  # it may come later than the pod
        "SHOAL_SENTINEL_STATE": STATE_DIR,
        **settings.env,
    }
    is_first = settings.rendering.version == 1
    dropped = "NET_RAW" if is_first else "ALL"
    return {
        "name": "sentinel",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "POD_NAME", "valueFrom": _POD},
            {"name": "POD_IP", "valueFrom": _IP},
            {"name": "SHOAL_SENTINEL_NODE", "valueFrom": _NODE},
            {"name": "SHOAL_SENTINEL_REDIS_URL", "valueFrom": _REDIS},
            *({"name": name, "value": value} for name, value in plain.items() if value),
        ],
        "ports": [
            {"name": "http", "containerPort": SENTINEL_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "entry", "containerPort": ENTRY_PORT, "protocol": "TCP"},
        ],
        "volumeMounts": [{"name": _STATE["name"], "mountPath": STATE_DIR}],
        "resources": _resources(state.resources or pb.Resources()),
        "livenessProbe": _probe("/livez", delay_s=10, period_s=10, timeout_s=5, failures=3),
        "readinessProbe": _probe("/readyz", delay_s=0, period_s=5, timeout_s=3, failures=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": _DRAIN_S}}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": [dropped]}},
        **({} if is_first else {"args": list(_ARGUMENTS)}),
    }


def _resources(given: pb.Resources) -> Obj:
    millicores, memory_mib = given.cpu_millicores or _CPU_MILLICORES, given.memory_mib or _MEMORY_MIB
    requests = {"cpu": cpu(max(1, millicores // 2)), "memory": mib(memory_mib)}
    limits = {"cpu": cpu(millicores), "memory": mib(memory_mib)}
    if given.ephemeral_mib:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = mib(given.ephemeral_mib)
    return {"requests": requests, "limits": limits}


def _probe(path: str, *, delay_s: int, period_s: int, timeout_s: int, failures: int) -> Obj:
    made: Obj = {
        "httpGet": {"path": path, "port": HEALTH_PORT, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }
    return made | ({"initialDelaySeconds": delay_s} if delay_s else {})


def _peers(state: pb.SentinelState) -> str:
    peers = [
        {"region": one.region, "addresses": sorted(one.addresses), "distance": one.distance, "healthy": one.healthy}
        for one in sorted(state.peers, key=lambda peer: peer.region)
    ]
    return orjson.dumps(peers).decode()


def _entry(about: Obj, state: pb.SentinelState, values: Mapping[str, str]) -> Obj:
    """By what sentinels of different regions know each other."""
    parts = {name: values.get(name, "").encode() for name in ENTRY_SECRET} | {"ca.crt": state.entry_authority}
    data = {name: base64.b64encode(content).decode() for name, content in parts.items()}
    named = {**about, "name": entry_name(state.name)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": named, "type": "kubernetes.io/tls", "data": data}


def _service(about: Obj, selector: Mapping[str, str], kind: str) -> Obj:
    """Containers listen on high ports, which need no rights. One of them takes requests with and without TLS."""
    ports = [
        {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
        for name, port, target in (
            ("http", SENTINEL_PORT, SENTINEL_PORT),
            ("entry", ENTRY_PORT, ENTRY_PORT),
            (WEB, WEB_PORT, SENTINEL_PORT),
            ("web-tls", 443, SENTINEL_PORT),
        )
    ]
    spec = {"type": kind, "selector": dict(selector), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def _disruption_budget(about: Obj, selector: Mapping[str, str]) -> Obj:
    """One may go at a time, however many there are, so that a node can always be drained."""
    spec = {
        "selector": {"matchLabels": dict(selector)},
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": about, "spec": spec}
