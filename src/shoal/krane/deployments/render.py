"""Renders a deployment into its Kubernetes objects; pure. The same state always gives the same objects and names.

In order: what the pods need (ServiceAccount, Secret), the Deployment, then its companions. All have the name of the
Deployment. Owner references are added later, when the Deployment has a uid.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.krane.deployments import pod
from shoal.krane.deployments.registries import registries_name
from shoal.krane.deployments.rendering import FIRST, Rendering
from shoal.krane.labels import (
    DEPLOYMENT,
    ENVIRONMENT,
    FLEET,
    KRANE,
    MANAGED_BY,
    NAME,
    PROJECT,
    RENDER,
    WORKSPACE,
    label_value,
    labels_of,
)
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

NAMESPACE_OF_GATEWAYS = "sentinel"
PROGRESS_S = 300
_CPU_PERCENT = 80
_SCALE_DOWN_S = 60
_HISTORY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Everything of one deployment."""

    namespace: Obj
    before: tuple[Obj, ...]
    root: Obj
    after: tuple[Obj, ...]

    @property
    def objects(self) -> tuple[Obj, ...]:
        return (self.namespace, *self.before, self.root, *self.after)


def render(
    state: pb.DeploymentState,
    owner: Owner,
    values: Mapping[str, str],
    how: Rendering = FIRST,
    *,
    registries: str = "",
    budget: bool = True,
) -> Rendered:
    """``values`` are the plain secrets, ``registries`` the credentials of registries. The state has been checked.
    ``how`` changes what objects hold, never which there are, nor their names. Without ``budget`` there is none: a user
    has one for these pods."""
    labels = labels_of(
        owner, "deployment", state.deployment,
        workspace=state.workspace, project=state.project, environment=state.environment, app=state.app,
    )  # fmt: skip
    if state.app_name:
        labels[NAME] = label_value(state.app_name)
    selector = {FLEET: labels[FLEET], DEPLOYMENT: labels[DEPLOYMENT]}
    about = {"name": state.name, "namespace": state.namespace, "labels": labels}
    before = [_object("v1", "ServiceAccount", about, automountServiceAccountToken=False)]
    if values:
        before.append(_secret(about, values))
    if registries:
        before.append(_registries(about, registries))
    after = [_network_policy(about, selector, state)]
    if budget:
        after.insert(0, _disruption_budget(about, selector))
    if is_scaled(state):
        after.insert(0, autoscaler(about, state, state.name))
    if state.port:
        after.insert(0, service(about, selector, state))
    return Rendered(
        namespace=namespace_of(state, owner),
        before=tuple(before),
        root=_deployment(state, about, labels, selector, _secrets_text(state.secrets) if values else "", how),
        after=tuple(after),
    )


def pod_labels(state: pb.DeploymentState, labels: Mapping[str, str]) -> dict[str, str]:
    """``labels`` are ours. A user's label is the one that other tools know the app by."""
    return {**labels, **dict(sorted(state.pod_labels.items()))}


def replicas_between(state: pb.DeploymentState) -> tuple[int, int] | None:
    """How few and how many an autoscaler may make of it; None when the state says how many there are."""
    scaling = state.autoscaling
    return (scaling.min, scaling.max) if scaling is not None and is_scaled(state) else None


def is_scaled(state: pb.DeploymentState) -> bool:
    return state.autoscaling is not None and state.running


def _object(api_version: str, kind: str, about: Obj, **rest: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": dict(about), **rest}


def namespace_of(state: pb.DeploymentState, owner: Owner) -> Obj:
    """Shared by all deployments of an environment and by all shards, so it has the labels of none."""
    ids = {WORKSPACE: state.workspace, PROJECT: state.project, ENVIRONMENT: state.environment}
    labels = {MANAGED_BY: KRANE, FLEET: label_value(owner.fleet)}
    labels |= {name: label_value(id_) for name, id_ in ids.items() if id_}
    return _object("v1", "Namespace", {"name": state.namespace, "labels": labels})


def _secret(about: Obj, values: Mapping[str, str]) -> Obj:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in sorted(values.items())}
    return _object("v1", "Secret", about, type="Opaque", data=data)


def _registries(about: Obj, config: str) -> Obj:
    named = {**about, "name": registries_name(about["name"])}
    data = {".dockerconfigjson": base64.b64encode(config.encode()).decode()}
    return _object("v1", "Secret", named, type="kubernetes.io/dockerconfigjson", data=data)


def _secrets_text(secrets: Sequence[pb.SealedSecret]) -> str:
    """Which secrets in which versions: tells apart what has changed, and nothing of the values."""
    named = [f"{secret.secret}@{secret.version}:{','.join(sorted(secret.variables))}" for secret in secrets]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:32]


def _deployment(
    state: pb.DeploymentState,
    about: Obj,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    secrets: str,
    how: Rendering,
) -> Obj:
    spec: Obj = {
        "selector": {"matchLabels": dict(selector)},
        "template": pod.template(state, pod_labels(state, labels), selector, secrets, how),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
        "progressDeadlineSeconds": PROGRESS_S,
        "revisionHistoryLimit": _HISTORY,
    }
    if not is_scaled(state):
        spec["replicas"] = state.replicas if state.running else 0
    if how.text:
        about = {**about, "annotations": {RENDER: how.text}}
    return _object("apps/v1", "Deployment", about, spec=spec)


def service(about: Obj, selector: Mapping[str, str], state: pb.DeploymentState) -> Obj:
    """Without an address of its own: it is there for its EndpointSlices."""
    protocol = "kubernetes.io/h2c" if state.protocol == "h2c" else "http"
    port = {
        "name": pod.PORT_NAME, "port": state.port, "targetPort": state.port, "protocol": "TCP", "appProtocol": protocol,
    }  # fmt: skip
    return _object("v1", "Service", about, spec={"clusterIP": "None", "selector": dict(selector), "ports": [port]})


def autoscaler(about: Obj, state: pb.DeploymentState, target: str) -> Obj:
    """``target`` is the name of the Deployment."""
    scaling = state.autoscaling or pb.Autoscaling()
    targets = {"cpu": scaling.cpu_percent, "memory": scaling.memory_percent}
    if not any(targets.values()):
        targets["cpu"] = _CPU_PERCENT
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": percent}},
        }
        for name, percent in targets.items()
        if percent
    ]
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "minReplicas": scaling.min,
        "maxReplicas": scaling.max,
        "metrics": metrics,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": _SCALE_DOWN_S}},
    }
    return _object("autoscaling/v2", "HorizontalPodAutoscaler", about, spec=spec)


def _disruption_budget(about: Obj, selector: Mapping[str, str]) -> Obj:
    """A quarter may go at a time, and at least one, so that a node can always be drained; so may all that are ill."""
    spec = {
        "selector": {"matchLabels": dict(selector)},
        "maxUnavailable": "25%",
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _object("policy/v1", "PodDisruptionBudget", about, spec=spec)


def _network_policy(about: Obj, selector: Mapping[str, str], state: pb.DeploymentState) -> Obj:
    """Traffic comes from gateways, and from the apps of the same environment."""
    spec: Obj = {"podSelector": {"matchLabels": dict(selector)}, "policyTypes": ["Ingress"]}
    if state.port:
        gateways = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE_OF_GATEWAYS}}}
        siblings = {"podSelector": {"matchLabels": {FLEET: selector[FLEET], MANAGED_BY: KRANE}}}
        if state.environment:
            siblings["podSelector"]["matchLabels"][ENVIRONMENT] = label_value(state.environment)
        ports = [{"protocol": "TCP", "port": state.port}]
        sources = {} if state.pod_labels else {"from": [gateways, siblings]}  # a user's Services lead to them too
        spec["ingress"] = [{**sources, "ports": ports}]
    return _object("networking.k8s.io/v1", "NetworkPolicy", about, spec=spec)
