"""Summaries of objects, made from their data for indexes and queries.

A summary is frozen and small: memory holds the summaries of 200 000 pods. Repeated text (namespaces, nodes, images,
label names) is interned, and pods of one template share one set of labels and one tuple of containers.

``summarize`` takes any object. One with an unexpected shape, such as a custom resource without validation, gets an
empty summary of its kind, not an error: one bad object must not stop the sync of its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec

from shoal.kube.objects import Obj
from shoal.kube.quantity import ZERO, Quantity
from shoal.kube.quantity import parse as parse_quantity
from shoal.navigator.route_summaries import (
    PolicySummary,
    RouteSummary,
    http_route,
    ingress,
    sentinel_policy,
    sentinel_route,
)
from shoal.navigator.summary_base import EMPTY, SHARED_MOST, Summary, shared_labels, texts


class ContainerSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    image: str
    ready: bool = False
    restarts: int = 0
    state: str = ""  # running, waiting, terminated
    reason: str = ""


class PodSummary(Summary, frozen=True, kw_only=True, gc=False):
    phase: str = ""
    reason: str = ""  # of the whole pod: Evicted, NodeLost, Unschedulable
    ready: bool = False
    node: str = ""
    ip: str = ""
    owner: str = ""  # "ReplicaSet/web-6f7"
    service_account: str = ""
    containers: tuple[ContainerSummary, ...] = ()
    proxy: str = "none"  # what handles its traffic: none, sidecar, router (it is a gateway or waypoint), ztunnel
    deleting: bool = False


class PortSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    port: int
    protocol: str = "TCP"
    target: str = ""
    app_protocol: str = ""


class ServiceSummary(Summary, frozen=True, kw_only=True, gc=False):
    type: str = ""
    cluster_ip: str = ""
    external_ips: tuple[str, ...] = ()
    external_name: str = ""
    selector: Mapping[str, str] = {}
    ports: tuple[PortSummary, ...] = ()


class EndpointSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    address: str
    pod: str = ""
    node: str = ""
    zone: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False


class SliceSummary(Summary, frozen=True, kw_only=True, gc=False):
    service: str = ""
    ports: tuple[PortSummary, ...] = ()
    endpoints: tuple[EndpointSummary, ...] = ()


class NodeSummary(Summary, frozen=True, kw_only=True, gc=False):
    ready: bool = False
    unschedulable: bool = False
    version: str = ""
    address: str = ""
    zone: str = ""
    cpu: float = 0.0  # capacity, in cores
    memory: float = 0.0  # in GiB
    pods: int = 0
    allocatable_cpu: float = 0.0
    allocatable_memory: float = 0.0
    allocatable_pods: int = 0


class DeploymentSummary(Summary, frozen=True, kw_only=True, gc=False):
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    images: tuple[str, ...] = ()


class AutoscalerSummary(Summary, frozen=True, kw_only=True, gc=False):
    target: str = ""  # "Deployment/web"
    least: int = 1
    most: int = 0
    replicas: int = 0
    wanted: int = 0


class ShardSummary(Summary, frozen=True, kw_only=True, gc=False):
    config: str = ""
    phase: str = ""
    state: str = ""
    reason: str = ""
    slots: int = 0
    objects: int = 0


class ShardConfigSummary(Summary, frozen=True, kw_only=True, gc=False):
    strategy: str = ""
    least: int = 0
    most: int = 0
    shards: int = 0
    healthy: int = 0
    wanted: int = 0
    moving: int = 0
    objects: int = 0


class SlotsSummary(Summary, frozen=True, kw_only=True, gc=False):
    config: str = ""
    slots: int = 0
    moving: int = 0


class EventSummary(Summary, frozen=True, kw_only=True, gc=False):
    type: str = ""  # Normal, Warning
    reason: str = ""
    message: str = ""  # its beginning
    object: str = ""  # "Pod/web-6f7-x"
    object_namespace: str = ""
    count: int = 1
    seen_at: str = ""  # last time
    source: str = ""  # the component that reports it


class IstioSummary(Summary, frozen=True, kw_only=True, gc=False):
    """Enough to find it; the analysis reads the object."""

    hosts: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    selector: Mapping[str, str] = {}


_ROUTER_TYPES = frozenset({"router", "waypoint"})  # of ``pilot-agent proxy TYPE``
_ROUTER_LABELS = (
    "gateway.networking.k8s.io/gateway-name",  # made by Istio for a Gateway of the Gateway API, waypoints among them
    "gateway.istio.io/managed",
    "istio.io/gateway-name",  # the same, before 1.20
)
_PROXY_CONTAINER = "istio-proxy"
_INJECTED = "sidecar.istio.io/status"
_TEMPLATES = "inject.istio.io/templates"
_REDIRECTED = "ambient.istio.io/redirection"
_SERVICE_NAME = "kubernetes.io/service-name"
_ZONE = "topology.kubernetes.io/zone"
_GIB = 1 << 30
_MESSAGE = 256  # characters of an event's message that stay in memory

_containers: dict[tuple[ContainerSummary, ...], tuple[ContainerSummary, ...]] = {}


def summarize(kind: str, obj: Obj) -> Summary:
    """The summary of an object of a kind of ``shoal.navigator.model``."""
    make = _MAKERS.get(kind)
    if make is None:
        return _plain(obj, Summary)
    try:
        return make(obj)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return _plain(obj, SUMMARY_OF[kind])


def proxy_of(obj: Obj) -> str:
    """Which proxy handles the traffic of a pod, as Istio itself tells its proxies apart.

    The type that the proxy was started with decides. Data without arguments is judged by what the injector and Istio's
    controllers write on pods. A container that merely looks like a proxy does not make one.
    """
    metadata = obj.get("metadata") or {}
    return _proxy(obj.get("spec") or {}, metadata.get("labels") or EMPTY, metadata.get("annotations") or EMPTY)


def _proxy(spec: Obj, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    container = _proxy_container(spec)
    if container is not None:
        arguments: Sequence[Any] = container.get("args") or ()
        if len(arguments) > 1 and arguments[0] == "proxy":
            type_ = arguments[1]
            if type_ == "sidecar" or type_ == "ztunnel":
                return str(type_)
            if type_ in _ROUTER_TYPES:
                return "router"
        for label in _ROUTER_LABELS:
            if label in labels:
                return "router"
        if labels.get("app") == "ztunnel":
            return "ztunnel"
        # The older charts of gateways: no template, no label of a controller, but the role as a label.
        if "gateway" in annotations.get(_TEMPLATES, "").split(",") or labels.get("istio", "").endswith("gateway"):
            return "router"
        return "sidecar"
    if annotations.get(_REDIRECTED) == "enabled":
        return "ztunnel"
    return "sidecar" if _INJECTED in annotations else "none"


def _proxy_container(spec: Obj) -> Obj | None:
    for container in spec.get("containers") or ():
        if container.get("name") == _PROXY_CONTAINER:
            found: Obj = container
            return found
    for container in spec.get("initContainers") or ():  # a native sidecar; the injector's istio-init has another name
        if container.get("name") == _PROXY_CONTAINER and container.get("restartPolicy") == "Always":
            found = container
            return found
    return None


def _pod(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or EMPTY
    ready, reason = False, status.get("reason") or ""
    for condition in status.get("conditions") or ():
        type_ = condition["type"]
        if type_ == "Ready":
            ready = condition["status"] == "True"
        elif type_ == "PodScheduled" and condition["status"] != "True" and not reason:
            reason = condition.get("reason") or ""
    return PodSummary(
        labels=shared_labels(labels),
        created_at=metadata.get("creationTimestamp") or "",
        phase=intern(status.get("phase") or ""),
        reason=intern(reason),
        ready=ready,
        node=intern(spec.get("nodeName") or ""),
        ip=status.get("podIP") or "",
        owner=_owner(metadata),
        service_account=intern(spec.get("serviceAccountName") or ""),
        containers=_container_summaries(spec, status),
        proxy=_proxy(spec, labels, metadata.get("annotations") or EMPTY),
        deleting="deletionTimestamp" in metadata,
    )


def _owner(metadata: Obj) -> str:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return intern(f"{reference['kind']}/{reference['name']}")
    return ""


def _container_summaries(spec: Obj, status: Obj) -> tuple[ContainerSummary, ...]:
    states = {each["name"]: each for each in status.get("containerStatuses") or ()}
    found = [_container(each, states.get(each["name"])) for each in spec.get("containers") or ()]
    if "initContainers" in spec:  # sidecars run along: they are containers of the pod; the others come and go
        states = {each["name"]: each for each in status.get("initContainerStatuses") or ()}
        for each in spec["initContainers"] or ():
            if each.get("restartPolicy") == "Always":
                found.append(_container(each, states.get(each["name"])))
    made = tuple(found)
    if len(_containers) >= SHARED_MOST:
        _containers.clear()
    return _containers.setdefault(made, made)


def _container(container: Obj, status: Obj | None) -> ContainerSummary:
    name, image = intern(container["name"]), intern(container.get("image") or "")
    if status is None:
        return ContainerSummary(name=name, image=image)
    state, reason = "", ""
    states: Obj = status.get("state") or {}
    for name_of, detail in states.items():  # it has one member
        state, reason = name_of, (detail or {}).get("reason") or ""
    return ContainerSummary(
        name=name,
        image=image,
        ready=bool(status.get("ready")),
        restarts=int(status.get("restartCount") or 0),
        state=intern(state),
        reason=intern(reason),
    )


def _service(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return ServiceSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        type=intern(spec.get("type") or "ClusterIP"),
        cluster_ip=spec.get("clusterIP") or "",
        external_ips=(
            *(spec.get("externalIPs") or ()),
            *(each.get("ip") or each.get("hostname") or "" for each in ingress),
        ),
        external_name=spec.get("externalName") or "",
        selector=shared_labels(spec.get("selector")),
        ports=tuple(_service_port(each) for each in spec.get("ports") or ()),
    )


def _service_port(port: Obj) -> PortSummary:
    return PortSummary(
        name=intern(port.get("name") or ""),
        port=int(port["port"]),
        protocol=intern(port.get("protocol") or "TCP"),
        target=str(port.get("targetPort") or port["port"]),
        app_protocol=intern(port.get("appProtocol") or ""),
    )


def _slice(obj: Obj) -> Summary:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or EMPTY
    return SliceSummary(
        labels=shared_labels(labels),
        created_at=metadata.get("creationTimestamp") or "",
        service=intern(labels.get(_SERVICE_NAME) or ""),
        ports=tuple(
            PortSummary(
                name=intern(each.get("name") or ""),
                port=int(each.get("port") or 0),  # none: any port
                protocol=intern(each.get("protocol") or "TCP"),
                app_protocol=intern(each.get("appProtocol") or ""),
            )
            for each in obj.get("ports") or ()
        ),
        endpoints=tuple(_endpoint(each) for each in obj.get("endpoints") or ()),
    )


def _endpoint(endpoint: Obj) -> EndpointSummary:
    conditions = endpoint.get("conditions") or EMPTY
    target = endpoint.get("targetRef") or EMPTY
    ready = conditions.get("ready") is not False  # unknown counts as ready, as for every consumer of slices
    serving = conditions.get("serving")
    return EndpointSummary(
        address=endpoint["addresses"][0],  # more than one stand for the same
        pod=target.get("name") or "" if target.get("kind") == "Pod" else "",
        node=intern(endpoint.get("nodeName") or ""),
        zone=intern(endpoint.get("zone") or ""),
        ready=ready,
        serving=ready if serving is None else bool(serving),
        terminating=bool(conditions.get("terminating")),
    )


def _node(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or EMPTY
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    capacity, allocatable = _amounts(status.get("capacity") or EMPTY), _amounts(status.get("allocatable") or EMPTY)
    return NodeSummary(
        labels=shared_labels(labels),
        created_at=metadata.get("creationTimestamp") or "",
        ready=conditions.get("Ready") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        version=intern((status.get("nodeInfo") or {}).get("kubeletVersion") or ""),
        address=addresses.get("InternalIP") or "",
        zone=intern(labels.get(_ZONE) or ""),
        cpu=capacity[0],
        memory=capacity[1],
        pods=capacity[2],
        allocatable_cpu=allocatable[0],
        allocatable_memory=allocatable[1],
        allocatable_pods=allocatable[2],
    )


def _amounts(amounts: Mapping[str, Any]) -> tuple[float, float, int]:
    """Cores, GiB and pods."""
    cpu, memory, pods = (_quantity(amounts.get(name)) for name in ("cpu", "memory", "pods"))
    return cpu.milli() / 1000, round(memory.value() / _GIB, 3), pods.value()


def _quantity(amount: Any) -> Quantity:
    """Zero for one that is missing or invalid."""
    try:
        return parse_quantity(str(amount)) if amount is not None else ZERO
    except ValueError:
        return ZERO


def _deployment(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    replicas = spec.get("replicas")
    return DeploymentSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        replicas=1 if replicas is None else int(replicas),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        images=tuple(intern(each.get("image") or "") for each in template.get("containers") or ()),
    )


def _autoscaler(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    target, least = spec.get("scaleTargetRef") or {}, spec.get("minReplicas")
    return AutoscalerSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        target=intern(f"{target['kind']}/{target['name']}") if target else "",
        least=1 if least is None else int(least),
        most=int(spec.get("maxReplicas") or 0),
        replicas=int(status.get("currentReplicas") or 0),
        wanted=int(status.get("desiredReplicas") or 0),
    )


def _shard(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return ShardSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        config=intern(spec.get("config") or ""),
        phase=intern(status.get("phase") or ""),
        state=intern(status.get("state") or ""),
        reason=status.get("reason") or "",
        slots=int(status.get("slots") or 0),
        objects=int(status.get("assignedCount") or 0),
    )


def _shard_config(obj: Obj) -> Summary:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return ShardConfigSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        strategy=intern(status.get("strategy") or spec.get("loadBalanceStrategy") or ""),
        least=int(spec.get("minShards") or 0),
        most=int(spec.get("maxShards") or 0),
        shards=int(status.get("currentShards") or 0),
        healthy=int(status.get("healthyShards") or 0),
        wanted=int(status.get("desiredShards") or 0),
        moving=int(status.get("movingSlots") or 0),
        objects=int(status.get("assignedCount") or 0),
    )


def _slots(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    entries = spec.get("entries") or ()
    return SlotsSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        config=intern(spec.get("config") or ""),
        slots=len(entries),
        moving=sum("move" in each for each in entries),
    )


def _event(obj: Obj) -> Summary:
    """Of either API: core and events.k8s.io use other names for the same."""
    metadata, series = obj["metadata"], obj.get("series") or {}
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    created_at = metadata.get("creationTimestamp") or ""
    seen_at = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    return EventSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=created_at,
        type=intern(obj.get("type") or ""),
        reason=intern(obj.get("reason") or ""),
        message=str(obj.get("message") or obj.get("note") or "")[:_MESSAGE],
        object=f"{about.get('kind') or ''}/{about.get('name') or ''}" if about else "",
        object_namespace=intern(about.get("namespace") or ""),
        count=int(series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1),
        seen_at=seen_at or obj.get("eventTime") or created_at,
        source=intern((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""),
    )


def _istio(hosts: Callable[[Obj], Iterable[Any]], selector: Callable[[Obj], Any]) -> Callable[[Obj], Summary]:
    def make(obj: Obj) -> Summary:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        return IstioSummary(
            labels=shared_labels(metadata.get("labels")),
            created_at=metadata.get("creationTimestamp") or "",
            hosts=texts(hosts(spec)),
            gateways=texts(spec.get("gateways")),
            selector=shared_labels(selector(spec)),
        )

    return make


def _no_hosts(_: Obj) -> Iterable[Any]:
    return ()


def _hosts(spec: Obj) -> Iterable[Any]:
    return spec.get("hosts") or ()


def _hosts_of(field: str) -> Callable[[Obj], Iterable[Any]]:
    return lambda spec: dict.fromkeys(host for each in spec.get(field) or () for host in each.get("hosts") or ())


def _workload_selector(field: str) -> Callable[[Obj], Any]:
    return lambda spec: (spec.get("workloadSelector") or {}).get(field)


def _match_labels(spec: Obj) -> Any:
    return (spec.get("selector") or {}).get("matchLabels")


def _plain(obj: Obj, summary: type[Summary]) -> Summary:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return summary()
    created_at = metadata.get("creationTimestamp")
    try:
        labels = shared_labels(metadata.get("labels"))
    except (AttributeError, TypeError):
        labels = EMPTY
    return summary(labels=labels, created_at=created_at if isinstance(created_at, str) else "")


_MAKERS: Mapping[str, Callable[[Obj], Summary]] = {
    "pods": _pod,
    "services": _service,
    "endpointslices": _slice,
    "nodes": _node,
    "deployments": _deployment,
    "horizontalpodautoscalers": _autoscaler,
    "shardconfigs": _shard_config,
    "shardinstances": _shard,
    "shardslots": _slots,
    "events": _event,
    "ingresses": ingress,
    "httproutes": http_route,
    "sentinelroutes": sentinel_route,
    "sentinelpolicies": sentinel_policy,
    "virtualservices": _istio(_hosts, lambda _: None),
    "destinationrules": _istio(lambda spec: (spec["host"],), _workload_selector("matchLabels")),
    "gateways": _istio(_hosts_of("servers"), lambda spec: spec.get("selector")),
    "serviceentries": _istio(_hosts, _workload_selector("labels")),
    "sidecars": _istio(_hosts_of("egress"), _workload_selector("labels")),
    "envoyfilters": _istio(_no_hosts, _workload_selector("labels")),
    "peerauthentications": _istio(_no_hosts, _match_labels),
    "requestauthentications": _istio(_no_hosts, _match_labels),
    "authorizationpolicies": _istio(_no_hosts, _match_labels),
    "wasmplugins": _istio(_no_hosts, _match_labels),
}

SUMMARY_OF: Mapping[str, type[Summary]] = {
    **dict.fromkeys(_MAKERS, IstioSummary),
    "pods": PodSummary,
    "services": ServiceSummary,
    "endpointslices": SliceSummary,
    "nodes": NodeSummary,
    "deployments": DeploymentSummary,
    "horizontalpodautoscalers": AutoscalerSummary,
    "shardconfigs": ShardConfigSummary,
    "shardinstances": ShardSummary,
    "shardslots": SlotsSummary,
    "events": EventSummary,
    **dict.fromkeys(("ingresses", "httproutes", "sentinelroutes"), RouteSummary),
    "sentinelpolicies": PolicySummary,
}
"""Summaries by kind; other kinds have only the common fields."""
