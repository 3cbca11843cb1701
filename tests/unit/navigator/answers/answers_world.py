"""A small fleet: two regions, an app in both, a service that is half ready, a pod without a
service, a mesh with a mistake."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from shoal.base.access import EVERYTHING
from shoal.base.clock import RealClock
from shoal.kube.objects import Obj
from shoal.navigator.answers.api import Caller
from shoal.navigator.change_signal import ChangeSignal
from shoal.navigator.connections import CallEndpoint, LatencyHistogram, ServiceConnection, connections_json
from shoal.navigator.model import Freshness
from shoal.navigator.view import Moment
from shoal.testing.views import (
    AT_S,
    MemoryAdmin,
    MemoryEdges,
    MemoryFleet,
    MemoryHistory,
    MemoryOptions,
    MemoryView,
    a_cluster,
)
from shoal.wire.navigator.v1.navigator_pb import ClusterEvents, PodLogs, ProxyConfig, ServiceConnections

TOKEN, READER = "writes", "reads"
INF = float("inf")
WEB, DB = CallEndpoint("eu-1", "shop", "web"), CallEndpoint("eu-1", "shop", "db")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ran:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    def rows(self) -> list[list[str]]:
        """The lines of a table, as words."""
        return [line.split() for line in self.out.splitlines()]


Shoal = Callable[..., Ran]


class WorldClock(RealClock):
    """The wall clock stands still for the answers; timers run."""

    def wall_s(self) -> float:
        return AT_S


async def authenticate(token: str) -> Caller | None:
    known = {TOKEN: Caller("ada", access=EVERYTHING), READER: Caller("bob", may_write=False, access=EVERYTHING)}
    return known.get(token)


def done(steps: Generator[None, None, T]) -> T:
    """The result of a calculation that pauses between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


def stamp(ago_s: float) -> str:
    return datetime.fromtimestamp(AT_S - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def an_object(name: str, namespace: str = "shop", **more: Any) -> Obj:
    metadata: Obj = {"name": name, "creationTimestamp": stamp(3600)}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata | more.pop("metadata", {}), **more}


def a_pod(
    name: str,
    namespace: str = "shop",
    *,
    image: str = "reg.io/web:v1",
    ready: bool = True,
    labels: dict[str, str] | None = None,
    ago_s: float = 3600,
    node: str = "n1",
    restarts: int = 0,
    reason: str = "",
    workload: str = "",
    proxy: str = "",
) -> Obj:
    labels = dict(labels or {})
    owners = []
    if workload:
        labels["pod-template-hash"] = "5d8"
        owners = [{"kind": "ReplicaSet", "name": f"{workload}-5d8", "controller": True}]
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    containers = [{"name": "main", "image": image}]
    statuses = [{"name": "main", "ready": ready, "restartCount": restarts, "state": state}]
    if proxy:
        containers.append({"name": "istio-proxy", "image": "istio/proxy:1.24.0", "args": ["proxy", proxy]})  # type: ignore[dict-item]
        statuses.append({"name": "istio-proxy", "ready": True, "restartCount": 0, "state": {"running": {}}})
    return an_object(
        name, namespace, metadata={"labels": labels, "creationTimestamp": stamp(ago_s), "ownerReferences": owners},
        spec={"nodeName": node, "serviceAccountName": "default", "containers": containers},
        status={"phase": "Running", "podIP": f"10.0.0.{len(name)}", "containerStatuses": statuses,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    )  # fmt: skip


def a_service(name: str, namespace: str = "shop", *, port: int = 80, **spec: Any) -> Obj:
    ports = [{"name": "http", "port": port, "targetPort": 8080}]
    given = {"type": "ClusterIP", "clusterIP": "10.96.0.1", "selector": {"app": name}, "ports": ports}
    return an_object(name, namespace, spec={**given, **spec})


def a_slice(service: str, *pods: tuple[str, bool], namespace: str = "shop", family: str = "4") -> Obj:
    endpoints = [
        {"addresses": [f"10.{family}.0.{number}"], "conditions": {"ready": ready, "serving": ready},
         "nodeName": "n1", "targetRef": {"kind": "Pod", "name": pod}}
        for number, (pod, ready) in enumerate(pods)
    ]  # fmt: skip
    labels = {"kubernetes.io/service-name": service}
    return an_object(
        f"{service}-{family}", namespace, metadata={"labels": labels}, endpoints=endpoints,
        ports=[{"name": "http", "port": 8080}],
    )  # fmt: skip


def a_connection(requests: float, errors: float = 0.0, *, slow: float = 0.0, **more: Any) -> ServiceConnection:
    """``slow`` of the requests take up to a second, the others up to ten milliseconds."""
    histogram = LatencyHistogram((10.0, 1000.0, INF), (requests - slow, requests, requests))
    given: dict[str, Any] = {"source": WEB, "destination": DB, "latency_ms": histogram, **more}
    return ServiceConnection(requests=requests, errors=errors, **given)


@dataclass
class World:
    view: MemoryView
    history: MemoryHistory = field(default_factory=MemoryHistory)
    edges: MemoryEdges = field(default_factory=MemoryEdges)
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    changes: ChangeSignal = field(default_factory=lambda: ChangeSignal(WorldClock()))

    def __post_init__(self) -> None:
        self.options = MemoryOptions(self.view)

    @property
    def admin(self) -> MemoryAdmin:
        return MemoryAdmin(self.view)


def the_world() -> World:
    view = MemoryView([
        a_cluster("eu-1", "eu", environment="production", version="v1.34.1"),
        a_cluster("us-1", "us", environment="production", version="v1.30.2"),
        replace(a_cluster("us-2", "us", environment="staging"), freshness=Freshness.STALE, heard_at_s=AT_S - 300),
    ])  # fmt: skip
    for cluster, images in (("eu-1", ("v1", "v2")), ("us-1", ("v2",))):
        _fill(view, cluster, images)
    view.put("us-2", "pods", a_pod("lonely-0", "lab", image="lab:v9"))
    target = {"kind": "Deployment", "name": "web"}
    view.put("us-2", "horizontalpodautoscalers", an_object(
        "scaler", spec={"scaleTargetRef": target, "maxReplicas": 10},
        status={"currentReplicas": 8, "desiredReplicas": 10}))  # fmt: skip
    for name, phase, slots in (("sites-1", "Running", 600), ("sites-2", "Draining", 424)):
        view.put("us-2", "shardinstances", an_object(
            name, spec={"shardId": name, "config": "sites"},
            status={"phase": phase, "state": "Ready", "slots": slots, "assignedCount": 7}))  # fmt: skip
    for reason, type_, ago_s in (("BackOff", "Warning", 30), ("Pulled", "Normal", 600)):
        view.put("us-2", "events", an_object(
            f"lonely-0.{reason.lower()}", "lab", type=type_, reason=reason, count=4, message=f"{reason} of lab:v9",
            involvedObject={"kind": "Pod", "name": "lonely-0", "namespace": "lab"}, lastTimestamp=stamp(ago_s),
            source={"component": "kubelet"}))  # fmt: skip
    view.put("us-2", "ingresses", an_object("front", "lab", spec={"rules": [{"host": "lab.test", "http": {"paths": [
        {"path": "/api", "backend": {"service": {"name": "api"}}}]}}]}))  # fmt: skip
    view.put("us-2", "httproutes", an_object("front", "lab", spec={
        "hostnames": ["lab.test"], "parentRefs": [{"name": "public"}],
        "rules": [{"backendRefs": [{"name": "api", "namespace": "core"}]}]}))  # fmt: skip
    view.put("us-2", "sentinelroutes", an_object("r-1", "sentinel", spec={
        "environment": "env-1", "host": "demo.test", "tls": {"secret": "c"},
        "backends": [{"deployment": "dep-3", "namespace": "demo", "service": "web"}]}))  # fmt: skip
    view.put("us-2", "sentinelpolicies", an_object("p-1", "sentinel", spec={
        "environment": "env-1", "order": 5, "rateLimit": {"limit": 3}, "routes": ["r-1"]}))  # fmt: skip
    for number, (revision, replicas) in enumerate((("dep-2", 1), ("dep-3", 2))):
        view.put("us-2", "deployments", an_object(
            f"shopfront-{revision}", "zoo", spec={"replicas": replicas}, status={"readyReplicas": replicas},
            metadata={"creationTimestamp": stamp(600 - number),
                      "labels": {"shoal.dev/app": "app-1", "shoal.dev/deployment": revision}}))  # fmt: skip
    before = MemoryView(view.known, at_s=AT_S - 7200)
    before.put("eu-1", "pods", a_pod("web-1", image="reg.io/web:v0", labels={"app": "web"}, workload="web"))
    before.put("eu-1", "services", a_service("web"), a_service("gone"))
    history = MemoryHistory({AT_S - 86400: before, AT_S - 60: view}, _moments())
    edges = MemoryEdges({"eu-1": _answer("eu-1", 10, 0.5), "us-1": _answer("us-1", 30, 1.5)})
    deployments = [
        {"id": "dep-2", "app": "shopfront", "project": "demo", "environment": "live", "revision": 2},
        {"id": "dep-3", "app": "shopfront", "project": "demo", "environment": "live", "revision": 3},
    ]
    return World(view, history, edges, MemoryFleet(deployments))


def _fill(view: MemoryView, cluster: str, images: Iterable[str]) -> None:
    number = 0
    for number, version in enumerate(images, 1):
        labels = {"app": "web", "version": version, "shoal.dev/deployment": f"dep-{number + 1}"}
        view.put(
            cluster, "pods",
            a_pod(f"web-{number}", image=f"reg.io/web:{version}", ready=version != "v2", labels=labels,
                  ago_s=60 * number, restarts=number, reason="CrashLoopBackOff" if version == "v2" else "",
                  workload="web", proxy="sidecar"),
        )  # fmt: skip
    view.put(cluster, "pods", a_pod("batch-7", labels={"team": "data"}, node="n2", proxy=""))
    ready = [(f"web-{each}", each < 2 and cluster == "eu-1") for each in range(1, number + 1)]
    view.put(cluster, "services", a_service("web"), a_service("db", port=5432))
    view.put(cluster, "endpointslices", a_slice("web", *ready), a_slice("web", *ready, family="6"))
    view.put(cluster, "nodes", *(
        an_object(name, "", metadata={"labels": {"topology.kubernetes.io/zone": f"{cluster}-{zone}"}},
                  status={"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": version},
                          "capacity": {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "110"},
                          "allocatable": {"cpu": f"{cores * 950}m", "memory": f"{4 * cores - 1}Gi", "pods": "110"}})
        for name, zone, version, cores in (("n1", "a", "v1.34.1", 4), ("n2", "b", "v1.9.3", 8))
    ))  # fmt: skip
    view.put(cluster, "namespaces", an_object("shop", ""))
    template = {"spec": {"containers": [{"name": "main", "image": "reg.io/web:v2"}]}}
    view.put(cluster, "deployments", an_object(
        "web", spec={"replicas": 2, "template": template}, status={"readyReplicas": number - 1}))  # fmt: skip
    view.put(cluster, "virtualservices", {
        **an_object("web", spec={"hosts": ["web"], "http": [{"route": [{"destination": {"host": "nowhere"}}]}]}),
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService"})  # fmt: skip


def _moments() -> list[Moment]:
    def data(replicas: int) -> bytes:
        return orjson.dumps({"metadata": {"name": "web", "resourceVersion": str(replicas)},
                             "spec": {"replicas": replicas}})  # fmt: skip

    return [
        Moment(cluster="eu-1", kind="deployments", key="shop/web", at_s=AT_S - 900, data=data(1)),
        Moment(cluster="eu-1", kind="deployments", key="shop/web", at_s=AT_S - 600, data=data(2)),
        Moment(cluster="eu-1", kind="deployments", key="shop/web", at_s=AT_S - 300, data=None),
    ]


def _answer(cluster: str, requests: float, errors: float) -> Any:
    def answer(request: object) -> Iterable[bytes]:
        match request:
            case PodLogs():
                lines = [f"{request.pod} line {number}\n".encode() for number in range(3)]
                yield from lines[-request.tail :] if request.tail > 0 else lines
            case ClusterEvents():
                yield orjson.dumps([
                    {"type": "Warning", "reason": "BackOff", "message": "back-off restarting", "count": 4,
                     "lastTimestamp": stamp(10), "metadata": {"namespace": "shop"},
                     "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-2"}},
                ])  # fmt: skip
            case ProxyConfig():
                yield orjson.dumps({"version": "1.31", "listeners": [{"name": "virtualInbound", "port": 15006}]})
            case ServiceConnections():
                web, db = (CallEndpoint(cluster, "shop", name) for name in ("web", "db"))
                histogram = LatencyHistogram((10.0, 100.0, INF), (requests * 0.9, requests, requests))
                yield orjson.dumps(connections_json([
                    ServiceConnection(source=web, destination=db, requests=requests, errors=errors, latency_ms=histogram,
                               reporter="source")]))  # fmt: skip

    return answer
