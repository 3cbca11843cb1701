"""Objects of a small mesh, a bookshop, for tests of the analysis of Istio resources. No server is needed.

mesh = bookshop(thing("virtualservices", "books", {"hosts": ["books"], "http": [route_to({"host": "books"})]}))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.istio.model import ROOT_NAMESPACE, Mesh
from shoal.navigator.model import KINDS

DEFAULT = "default"


def thing(kind: str, name: str, spec: Obj | None = None, *, namespace: str = DEFAULT, created: int = 0) -> Obj:
    """An object of a kind, given by its plural name. ``created`` (seconds) decides between objects that compete."""
    known = KINDS[kind]
    group = f"{known.group}/" if known.group else ""
    about: Obj = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z"}
    if known.namespaced:
        about["namespace"] = namespace
    return {"apiVersion": f"{group}{known.versions[0]}", "kind": known.kind, "metadata": about, "spec": spec or {}}


def pod(name: str, labels: Mapping[str, str], *, namespace: str = DEFAULT, proxy: str = "sidecar") -> Obj:
    """A pod; ``proxy`` is sidecar, router, ztunnel or none."""
    containers: list[Obj] = [] if proxy == "router" else [{"name": "app", "image": f"{name}:1"}]
    if proxy in ("sidecar", "router"):
        containers.append({"name": "istio-proxy", "image": "proxyv2", "args": ["proxy", proxy]})
    found = thing("pods", name, {"containers": containers}, namespace=namespace)
    found["metadata"]["labels"] = dict(labels)
    if proxy == "ztunnel":
        found["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    return found


def service(name: str, *, namespace: str = DEFAULT, selector: Mapping[str, str] | None = None, port: int = 9080) -> Obj:
    spec = {"selector": dict(selector or {"app": name}), "ports": [{"name": "http", "port": port}]}
    return thing("services", name, spec, namespace=namespace)


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Obj:
    found = thing("namespaces", name)
    found["metadata"]["labels"] = dict(labels or {})
    return found


def route_to(*destinations: Obj, **more: Any) -> Obj:
    """An HTTP route of a VirtualService."""
    return {"route": [{"destination": it} for it in destinations], **more}


def bookshop(*objects: Obj, pods: tuple[Obj, ...] = (), services: tuple[Obj, ...] = ()) -> Mesh:
    """A mesh with a shop front, books in two versions, ratings without a proxy and a gateway, plus ``objects``."""
    kinds = {kind.kind: name for name, kind in KINDS.items()}
    by: dict[str, list[Obj]] = {}
    for obj in objects:
        by.setdefault(kinds[obj["kind"]], []).append(obj)
    return Mesh(
        cluster="test",
        objects=by,
        services=(
            service("front"), service("books"), service("ratings"), service("books", namespace="prod"),
            service("ingress", namespace=ROOT_NAMESPACE, selector={"istio": "ingressgateway"}, port=80), *services,
        ),
        pods=(
            pod("front-1", {"app": "front", "version": "v1"}),
            pod("books-1", {"app": "books", "version": "v1"}),
            pod("books-2", {"app": "books", "version": "v2"}),
            pod("ratings-1", {"app": "ratings"}, proxy="none"),
            pod("books-1", {"app": "books", "version": "v1"}, namespace="prod"),
            pod("ingress-1", {"istio": "ingressgateway"}, namespace=ROOT_NAMESPACE, proxy="router"),
            *pods,
        ),
        namespaces=(namespace(DEFAULT), namespace("prod"), namespace(ROOT_NAMESPACE)),
    )  # fmt: skip
