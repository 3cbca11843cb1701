"""Reading Istio's resources and Kubernetes' objects: the few fields that the analysis needs, with their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shoal.kube.objects import Obj
from shoal.navigator.istio.hosts import full_name
from shoal.navigator.istio.model import Mesh
from shoal.navigator.summaries import proxy_of

MESH = "mesh"  # the gateway that means every sidecar
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
_WAYPOINT_MANAGED = "gateway.istio.io/managed"


def namespace_of(obj: Obj) -> str:
    found: str = obj["metadata"].get("namespace", "")
    return found


def name_of(obj: Obj) -> str:
    found: str = obj["metadata"]["name"]
    return found


def spec_of(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def labels_of(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def created(obj: Obj) -> tuple[str, str, str]:
    """Istio prefers the oldest, and among equals the first by name."""
    return obj["metadata"].get("creationTimestamp") or "", name_of(obj), namespace_of(obj)


def selects(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    return all(labels.get(name) == value for name, value in (selector or {}).items())


def workload_selector(obj: Obj) -> Mapping[str, str]:
    """``selector.matchLabels``, or ``workloadSelector.labels`` (Sidecar, EnvoyFilter, ServiceEntry), or
    ``workloadSelector.matchLabels`` (DestinationRule), or a Gateway's plain ``selector``."""
    spec = spec_of(obj)
    if "workloadSelector" in spec:
        wanted = spec["workloadSelector"] or {}
        return wanted.get("labels") or wanted.get("matchLabels") or {}
    selector = spec.get("selector") or {}
    labels: Mapping[str, str] = selector.get("matchLabels") or {} if obj.get("kind") != "Gateway" else selector
    return labels


def target_refs(obj: Obj) -> Sequence[Obj]:
    spec = spec_of(obj)
    one = spec.get("targetRef")
    return spec.get("targetRefs") or ([one] if one else [])


def gateways_of(virtual_service: Obj) -> Sequence[str]:
    return spec_of(virtual_service).get("gateways") or [MESH]


def gateway_name(written: str, namespace: str) -> str:
    """``ns/name``, from either way of writing it."""
    return written if "/" in written else f"{namespace}/{written}"


def destinations(virtual_service: Obj) -> Iterator[tuple[str, Obj]]:
    """Each destination with its field path, mirrors included."""
    spec = spec_of(virtual_service)
    for protocol in ("http", "tcp", "tls"):
        for number, route in enumerate(spec.get(protocol) or []):
            at = f"spec.{protocol}[{number}]"
            for index, entry in enumerate(route.get("route") or []):
                if entry.get("destination"):
                    yield f"{at}.route[{index}].destination", entry["destination"]
            if route.get("mirror"):
                yield f"{at}.mirror", route["mirror"]
            for index, entry in enumerate(route.get("mirrors") or []):
                if entry.get("destination"):
                    yield f"{at}.mirrors[{index}].destination", entry["destination"]


@dataclass(frozen=True)
class Workload:
    """A pod as the mesh sees it."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    proxy: str  # none, sidecar, router, ztunnel

    @property
    def gateway_api_name(self) -> str:
        """The Gateway (of the Gateway API) that this pod is an instance of."""
        return self.labels.get(GATEWAY_NAME, "")

    @property
    def waypoint(self) -> bool:
        return self.labels.get(_WAYPOINT_MANAGED, "") == "istio.io-mesh-controller"


def workload_of(pod: Obj) -> Workload:
    return Workload(namespace_of(pod), name_of(pod), labels_of(pod), proxy_of(pod))


class ServiceRegistry:
    """The services that a mesh knows by name: Kubernetes' and those of ServiceEntries."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    @cached_property
    def kubernetes(self) -> Mapping[str, Obj]:
        """By full name."""
        domain = self._mesh.domain
        return {f"{name_of(it)}.{namespace_of(it)}.svc.{domain}": it for it in self._mesh.services}

    @cached_property
    def entries(self) -> Mapping[str, Sequence[Obj]]:
        """ServiceEntries by host."""
        found: dict[str, list[Obj]] = {}
        for entry in self._mesh.objects.get("serviceentries", ()):
            for host in spec_of(entry).get("hosts") or []:
                found.setdefault(full_name(host, namespace_of(entry), self._mesh.domain), []).append(entry)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.kubernetes) | frozenset(self.entries)

    def selected_by(self, service: Obj) -> list[Obj]:
        """The pods behind a Kubernetes service."""
        selector = spec_of(service).get("selector")
        if not selector:
            return []
        home = namespace_of(service)
        return [pod for pod in self._mesh.pods if namespace_of(pod) == home and selects(selector, labels_of(pod))]

    def services_of(self, workload: Workload) -> list[Obj]:
        return [
            service
            for service in self._mesh.services
            if namespace_of(service) == workload.namespace
            and spec_of(service).get("selector")
            and selects(spec_of(service)["selector"], workload.labels)
        ]
