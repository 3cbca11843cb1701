"""Istio objects for tests: definitions that accept any spec, objects of a control plane, and a small shop in a mesh.

    await create(client, *istio_crds(), *control_plane(), *shop("shop"))

Only the objects exist: no istiod and no proxy runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from shoal.app.demo.mesh import definition
from shoal.client import Client, Scope, TransportError
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.navigator.model import KINDS, ReportedKind
from shoal.testing.waiting import eventually

ROOT = "istio-system"
_PARTS = {  # service → its versions, and the services it calls
    "front": (("v1",), ("stock", "ratings")),
    "stock": (("v1",), ()),
    "ratings": (("v1", "v2", "v3"), ("stars",)),
    "stars": (("v1",), ()),
}
PORT = 9080


def istio_kinds() -> list[ReportedKind]:
    """The kinds of Istio that have a definition."""
    return [kind for kind in KINDS.values() if kind.group.endswith("istio.io")]


def istio_crds(kinds: Iterable[ReportedKind] | None = None) -> list[Obj]:
    """Definitions that accept any spec, in all versions that edges know; the first version is stored."""
    return [definition(kind) for kind in (istio_kinds() if kinds is None else kinds)]


def resource(kind: str, namespace: str, name: str, spec: Obj | None = None, **metadata: Any) -> Obj:
    """An Istio object by the plural of its kind, in the first version."""
    known = KINDS[kind]
    return {
        "apiVersion": f"{known.group}/{known.versions[0]}",
        "kind": known.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec or {},
    }


def namespace(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


# the control plane


def control_plane(
    *, cluster: str = "mesh-east", revision: str = "", version: str = "1.27.1", mesh: str = "", place: str = ROOT
) -> list[Obj]:
    """istiod's Deployment and the ConfigMap with its mesh configuration; nothing of it runs."""
    suffix = f"-{revision}" if revision else ""
    labels = {"app": "istiod", "istio.io/rev": revision or "default"}
    container = {
        "name": "discovery",
        "image": f"istio.example/pilot:{version}",
        "env": [{"name": "CLUSTER_ID", "value": cluster}],
    }
    return [
        namespace(place),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"istiod{suffix}", "namespace": place, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"istio{suffix}", "namespace": place},
            "data": {"mesh": mesh or f"rootNamespace: {place}\ntrustDomain: example.org\n"},
        },
    ]


# the shop


def shop(place: str = "shop") -> list[Obj]:
    """Four services, a gateway and the objects that route between them, without pods."""
    made: list[Obj] = [namespace(place, **{"istio-injection": "enabled"})]
    for app, (versions, _) in _PARTS.items():
        made.append(service(place, app))
        made += [deployment(place, app, version) for version in versions]
    gateway = {
        "selector": {"istio": "ingressgateway"},
        "servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["shop.example.org"]}],
    }
    return [
        *made,
        resource("gateways", place, "shop", gateway),
        resource("virtualservices", place, "front", _into_the_shop()),
        resource("virtualservices", place, "ratings", _split()),
        resource("destinationrules", place, "ratings", _subsets()),
        resource("peerauthentications", place, "strict", {"mtls": {"mode": "STRICT"}}),
        resource("authorizationpolicies", place, "stars", _only_ratings()),
        resource("serviceentries", place, "bank", _bank()),
        resource("sidecars", place, "default", {"egress": [{"hosts": ["./*", f"{ROOT}/*"]}]}),
    ]


def _into_the_shop() -> Obj:
    to_front = {"destination": {"host": "front", "port": {"number": PORT}}}
    return {"hosts": ["shop.example.org"], "gateways": ["shop"], "http": [{"route": [to_front]}]}


def _split() -> Obj:
    parts = (("v1", 80), ("v2", 15), ("v3", 5))
    routes = [{"destination": {"host": "ratings", "subset": subset}, "weight": weight} for subset, weight in parts]
    return {"hosts": ["ratings"], "http": [{"route": routes}]}


def _subsets() -> Obj:
    return {
        "host": "ratings",
        "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}},
        "subsets": [{"name": version, "labels": {"version": version}} for version in _PARTS["ratings"][0]],
    }


def _only_ratings() -> Obj:
    principal = "example.org/ns/shop/sa/ratings"
    return {
        "selector": {"matchLabels": {"app": "stars"}},
        "rules": [{"from": [{"source": {"principals": [principal]}}]}],
    }


def _bank() -> Obj:
    return {
        "hosts": ["pay.bank.example"],
        "location": "MESH_EXTERNAL",
        "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}],
        "resolution": "DNS",
    }


def service(place: str, app: str) -> Obj:
    ports = [{"name": "http", "port": PORT, "targetPort": PORT}]
    spec = {"selector": {"app": app}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "namespace": place}, "spec": spec}


def deployment(place: str, app: str, version: str, *, replicas: int = 1) -> Obj:
    labels = {"app": app, "version": version}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{app}-{version}", "namespace": place, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(app, version)},
        },
    }


def pod_spec(app: str, version: str, *, sidecar: bool = False) -> Obj:
    containers = [{"name": app, "image": f"shop.example/{app}:{version}", "ports": [{"containerPort": PORT}]}]
    if sidecar:
        containers.append({"name": "istio-proxy", "image": "istio.example/proxyv2:1.27.1"})
    return {"containers": containers}


def pod(place: str, app: str, version: str, at: int = 0, *, node: str = "", sidecar: bool = True) -> Obj:
    """A pod without a controller, for clusters that run no workloads."""
    spec = pod_spec(app, version, sidecar=sidecar) | ({"nodeName": node} if node else {})
    about = {"name": f"{app}-{version}-{at}", "namespace": place, "labels": {"app": app, "version": version}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def endpoint_slice(place: str, app: str, addresses: Iterable[tuple[str, bool]]) -> Obj:
    """An EndpointSlice; ``addresses`` are pairs of an address and whether it is ready."""
    endpoints = [
        {"addresses": [address], "conditions": {"ready": ready, "serving": ready, "terminating": False}}
        for address, ready in addresses
    ]
    about = {"name": f"{app}-1", "namespace": place, "labels": {"kubernetes.io/service-name": app}}
    ports = [{"name": "http", "port": PORT, "protocol": "TCP"}]
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": about,
        "endpoints": endpoints, "ports": ports,
    }  # fmt: skip


async def create(client: Client, *objects: Obj) -> None:
    """Apply objects in order; after a definition, wait until its resource is served."""
    for obj in objects:
        resource_client = await client.by_kind(obj["kind"], obj["apiVersion"])
        await resource_client.apply(obj, force=True, field_manager="test")
        if obj["kind"] == "CustomResourceDefinition":
            await _served(client, obj)


async def _served(client: Client, definition: Obj) -> None:
    spec = definition["spec"]
    for version in spec["versions"]:
        known = client.resource(spec["group"], version["name"], spec["names"]["plural"])
        page = partial(known.page, Scope(), limit=1)
        await eventually(page, until=lambda _: True, retry_on=(ApiError, TransportError))
