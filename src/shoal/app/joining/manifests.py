"""The manifests of a cluster's agents, as data: namespace, accounts, rights, join files, Deployments.

``shoal cluster join`` applies them, ``--print`` writes them as YAML, and the chart `shoal-agent` has the same names.
Roles keep the names that `shoal krane|navigator|shard manifests` give them. The pods pass the `restricted` level of
PodSecurity. There is no default image: nobody but the user knows a registry that is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shoal.errors import ConfigError
from shoal.krane import rbac as krane
from shoal.krane.config import OWN_IMAGE
from shoal.kube.objects import Obj
from shoal.navigator.edge import rbac as edge
from shoal.sharding import rbac as sharding
from shoal.sharding.manifests import CONTAINER_SECURITY
from shoal.sharding.manifests import manifests as shard_manifests
from shoal.sharding.model import CONFIG_LABEL

NAMESPACE = krane.NAMESPACE
SECRET = "shoal-join"
KRANE, EDGE, SHARD_MANAGER = krane.JOINED, edge.JOINED, sharding.JOINED
KRANE_FILE, EDGE_FILE = "krane.yaml", "edge.yaml"  # keys of the Secret
CONFIG_DIR, STATE_DIR = "/etc/shoal", "/var/lib/shoal"
KRANE_PORT, EDGE_PORT, SHARD_PORT = 8070, 8071, 8060  # health and metrics
USER = 65532  # numeric, so that runAsNonRoot can be checked
API_PORTS = (443, 6443)

_NAME, _PART, _BY, _VERSION = (f"app.kubernetes.io/{each}" for each in ("name", "part-of", "managed-by", "version"))
_DNS = 53
_TEMPORARY = "/tmp"  # noqa: S108 - of the container, whose root is read-only
_NO_IMAGE = (
    "image is not set: Shoal has no image of its own on a public registry; build one (see docs/guides/joining.md), "
    "push it to your registry and name it with --image REGISTRY/NAME:TAG"
)


def check_image(image: str) -> None:
    """``ConfigError`` unless an image is named."""
    if not image:
        raise ConfigError(_NO_IMAGE)
    if any(each.isspace() for each in image):
        raise ConfigError(f"image is {image!r}: use REGISTRY/NAME:TAG, without spaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyVariables:
    """The HTTP proxy of the agents' pods, for connections that leave the cluster."""

    https_proxy: str = ""
    no_proxy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """What a cluster gets. ``krane`` and ``edge`` are the contents of the join files; without ``edge`` there is no
    navigator. With ``namespaces`` the agents' rights end at these; sharding, which needs the whole cluster, is left
    out."""

    image: str
    krane: Mapping[str, Any]
    edge: Mapping[str, Any] | None = None
    namespaces: tuple[str, ...] = ()
    sharding: bool = True
    replicas: int = 2  # of krane and the shard manager: one acts, the other stands by
    proxy: ProxyVariables = ProxyVariables()
    api_ports: tuple[int, ...] = API_PORTS  # of the API server, for network policies
    pull_secret: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        check_image(self.image)
        if self.replicas < 1:
            raise ConfigError(f"replicas is {self.replicas}: use 1 or more")

    @property
    def deployments(self) -> tuple[str, ...]:
        """The names of the Deployments that the plan has."""
        has_edge, has_sharding = self.edge is not None, self.sharding and not self.namespaces
        return (KRANE, *([EDGE] if has_edge else []), *([SHARD_MANAGER] if has_sharding else []))


def draft(image: str, *, namespaces: Sequence[str] = (), edge: bool = True, sharding: bool = True) -> AgentPlan:
    """A plan without tokens, to examine a cluster with."""
    stand_in = {"url": "https://control.invalid"}
    chosen = tuple(namespaces)
    return AgentPlan(image=image, krane=stand_in, edge=stand_in if edge else None, namespaces=chosen, sharding=sharding)


def manifests(plan: AgentPlan) -> list[Obj]:
    """Everything, in the order in which it is applied. The Secret has the tokens."""
    made = rights(plan)
    made.append(_secret(plan))
    for name in plan.deployments:
        made += [_policy(name, plan), _budget(name), _deployment(name, plan)]
    return made


def rights(plan: AgentPlan) -> list[Obj]:
    """Namespaces, definitions, accounts and roles: what needs the rights of an administrator."""
    names = plan.deployments
    made = krane.manifests(namespace=NAMESPACE, service_account=KRANE, namespaces=plan.namespaces)
    made += _own_deployment()
    if EDGE in names:
        made += edge.manifests(edge_namespace=NAMESPACE, service_account=EDGE, namespaces=plan.namespaces)
    if SHARD_MANAGER in names:
        made += shard_manifests(namespace=NAMESPACE, service_account=SHARD_MANAGER)
    return [_labelled(each, plan) for each in _once(made)]


def _own_deployment() -> list[Obj]:
    """For `shoal agents upgrade`: the agent changes the Deployments' image, and sees why their pods do not start."""
    group = "rbac.authorization.k8s.io"
    about = {"name": f"{KRANE}-upgrade", "namespace": NAMESPACE}
    names = [KRANE, EDGE, SHARD_MANAGER]
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": names, "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": dict(about),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": about["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": KRANE, "namespace": NAMESPACE}],
        },
    ]


def _once(objects: Iterable[Obj]) -> list[Obj]:
    found: dict[tuple[str, str, str], Obj] = {}
    for each in objects:
        about = each["metadata"]
        found.setdefault((each["kind"], about.get("namespace", ""), about["name"]), each)
    return list(found.values())


def _labelled(obj: Obj, plan: AgentPlan) -> Obj:
    made = deepcopy(obj)
    about = made["metadata"]
    about["labels"] = {**about.get("labels", {}), **_labels("", plan)}
    if obj["kind"] == "Namespace" and about["name"] == NAMESPACE:
        about["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return made


def _labels(name: str, plan: AgentPlan) -> dict[str, str]:
    named = {_NAME: name} if name else {}
    version = {_VERSION: plan.version} if plan.version else {}
    return {**named, _PART: "shoal", _BY: "shoal-cluster-join", **version}


def _secret(plan: AgentPlan) -> Obj:
    import yaml

    files = {KRANE_FILE: plan.krane, **({EDGE_FILE: plan.edge} if plan.edge is not None else {})}
    texts = {name: yaml.safe_dump(dict(content), sort_keys=False) for name, content in files.items()}
    made = _object("v1", "Secret", SECRET, plan)
    return {**made, "type": "Opaque", "stringData": texts}


# workloads


def _arguments(name: str, plan: AgentPlan) -> tuple[list[str], int]:
    """The arguments of the image's entry point `shoal`, and the port of health and metrics."""
    health = ["--host", "$(POD_IP)", "--port"]
    if name == KRANE:
        files = ["--join", f"{CONFIG_DIR}/{KRANE_FILE}", "--dir", f"{STATE_DIR}/krane"]
        return ["krane", "start", *files, *health, str(KRANE_PORT)], KRANE_PORT
    if name == EDGE:
        return ["navigator", "edge", "--join", f"{CONFIG_DIR}/{EDGE_FILE}", *health, str(EDGE_PORT)], EDGE_PORT
    command = ["shard", "manager", "--namespace", NAMESPACE, "--worker-image", plan.image]
    return [*command, *health, str(SHARD_PORT)], SHARD_PORT


def _variables(name: str, plan: AgentPlan) -> list[Obj]:
    found = {"SHOAL_HOME": STATE_DIR, "HOME": STATE_DIR}
    if name == KRANE:
        found["SHOAL_KRANE_GATEWAY_IMAGE"] = plan.image  # of gateways, unless they name another
        found["SHOAL_KRANE_DEPLOYMENT"] = f"{NAMESPACE}/{KRANE}"
        found["SHOAL_KRANE_BESIDE"] = ",".join(each for each in plan.deployments if each != KRANE)
        found[OWN_IMAGE] = plan.image
    if plan.namespaces and name == KRANE:
        found["SHOAL_KRANE_NAMESPACES"] = ",".join(plan.namespaces)
    if plan.namespaces and name == EDGE:
        found["SHOAL_EDGE_NAMESPACES__INCLUDE"] = ",".join(plan.namespaces)
    if plan.proxy.https_proxy:
        inside = ("$(KUBERNETES_SERVICE_HOST)", ".svc", ".cluster.local", "localhost", "127.0.0.1")
        found["HTTPS_PROXY"] = plan.proxy.https_proxy
        found["NO_PROXY"] = ",".join([*inside, *([plan.proxy.no_proxy] if plan.proxy.no_proxy else [])])
    own_address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [own_address, *({"name": key, "value": value} for key, value in found.items())]


def _deployment(name: str, plan: AgentPlan) -> Obj:
    arguments, port = _arguments(name, plan)
    volumes: list[Obj] = [{"name": "state", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    mounts: list[Obj] = [{"name": "state", "mountPath": STATE_DIR}, {"name": "tmp", "mountPath": _TEMPORARY}]
    if name != SHARD_MANAGER:
        key = KRANE_FILE if name == KRANE else EDGE_FILE
        files = {"secretName": SECRET, "defaultMode": 0o440, "items": [{"key": key, "path": key}]}
        volumes.append({"name": "join", "secret": files})
        mounts.append({"name": "join", "mountPath": CONFIG_DIR, "readOnly": True})
    container = {
        "name": name.removeprefix("shoal-"),
        "image": plan.image,
        "args": arguments,
        "env": _variables(name, plan),
        "ports": [{"name": "health", "containerPort": port}],
        "startupProbe": {"httpGet": {"path": "/livez", "port": "health"}, "periodSeconds": 2, "failureThreshold": 30},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "health"}, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "securityContext": deepcopy(CONTAINER_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    pod: Obj = {
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
        **({"imagePullSecrets": [{"name": plan.pull_secret}]} if plan.pull_secret else {}),
    }
    spec = {
        "replicas": 1 if name == EDGE else plan.replicas,
        "selector": {"matchLabels": {_NAME: name}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "progressDeadlineSeconds": 300,
        "template": {"metadata": {"labels": {_NAME: name, _PART: "shoal"}}, "spec": pod},
    }
    return {**_object("apps/v1", "Deployment", name, plan), "spec": spec}


def _budget(name: str) -> Obj:
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {_NAME: name}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return {**_object("policy/v1", "PodDisruptionBudget", name), "spec": spec}


def _policy(name: str, plan: AgentPlan) -> Obj:
    """Any client may read health and metrics; the agent connects to DNS, the API server, the control plane or the
    navigator (or the proxy on the way), and a shard manager to its workers."""
    _, port = _arguments(name, plan)
    outside = sorted({*plan.api_ports, *_ports(name, plan)})
    egress: list[Obj] = [
        {"ports": [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")]},
        {"ports": [{"protocol": "TCP", "port": each} for each in outside]},
    ]
    if name == SHARD_MANAGER:
        workers = {"matchExpressions": [{"key": CONFIG_LABEL, "operator": "Exists"}]}
        egress.append({"to": [{"namespaceSelector": {}, "podSelector": workers}]})
    spec = {
        "podSelector": {"matchLabels": {_NAME: name}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port}]}],
        "egress": egress,
    }
    return {**_object("networking.k8s.io/v1", "NetworkPolicy", name, plan), "spec": spec}


def _ports(name: str, plan: AgentPlan) -> set[int]:
    """Of the servers that an agent dials."""
    join = plan.krane if name == KRANE else plan.edge if name == EDGE else None
    if join is None:
        return set()
    urls: Sequence[str] = [url for url in (join.get("url"), *(join.get("urls") or ()), plan.proxy.https_proxy) if url]
    return {parts.port or (80 if parts.scheme == "http" else 443) for parts in map(urlsplit, urls)}


def _object(api_version: str, kind: str, name: str, plan: AgentPlan | None = None) -> Obj:
    labels = {_NAME: name, _PART: "shoal", _BY: "shoal-cluster-join"} if plan is None else _labels(name, plan)
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
    }
