"""The address of a hook: the ``clientConfig`` of webhooks and conversions, and the endpoint behind a service.

A service is not called through its cluster address, which only nodes know how to reach: the server connects to one of
its endpoints, as a proxy on a node would, round robin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from shoal.apiserver import objects
from shoal.errors import ShoalError
from shoal.store import Key, Store

_HTTPS = 443
_PATH = "/%:@!$&'()*+,;=~"
_SERVICE_LABEL = "kubernetes.io/service-name"
_SLICES = "endpointslices.discovery.k8s.io"
_REACHABLE = ("ClusterIP", "NodePort", "LoadBalancer", "")


class Unresolved(ShoalError):
    """The hook has no address to connect to; the text is the message for the user."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a hook names."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class HookTarget:
    """A parsed ``clientConfig``. An empty ``ca`` means the system's trusted roots."""

    url: str  # as messages show it
    path: str
    host: str  # for the Host header and, without its port, the certificate
    server_name: str
    address: tuple[str, int] | None  # None: found through ``service``
    service: Service | None
    ca: str
    ca_digest: bytes


def target_of(config: Mapping[str, Any]) -> HookTarget:
    ca = _bundle(config.get("caBundle") or "")
    digest = hashlib.sha256(ca.encode()).digest() if ca else b""
    service = config.get("service")
    if service is not None:
        port = service.get("port") or _HTTPS
        name = f"{service['name']}.{service['namespace']}.svc"
        path = "/" + quote((service.get("path") or "").lstrip("/"), safe=_PATH)
        found = Service(service["namespace"], service["name"], port)
        return HookTarget(f"https://{name}:{port}{path}", path, f"{name}:{port}", name, None, found, ca, digest)
    url = config.get("url") or ""
    parts = urlsplit(url)
    host = parts.hostname or ""
    path, netloc = quote(parts.path, safe=_PATH) or "/", parts.netloc.rpartition("@")[2]
    return HookTarget(url, path, netloc, host, (host, parts.port or _HTTPS), None, ca, digest)


def _bundle(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode("ascii", "replace").strip()
    except (binascii.Error, ValueError):
        return ""


class Resolver:
    """Finds the address of a target in the server's caches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_endpoint: dict[Service, int] = {}

    def address(self, target: HookTarget) -> tuple[str, int]:
        """Raises ``Unresolved`` in the words of Kubernetes."""
        if target.service is None:
            assert target.address is not None
            return target.address
        service = target.service
        entry = self._store.get(Key("services", service.namespace, service.name))
        if entry is None:
            raise Unresolved(f'service "{service.name}" not found')
        spec = objects.decode(entry).get("spec") or {}
        if spec.get("type", "") not in _REACHABLE:
            raise Unresolved(f'unsupported service type "{spec["type"]}"')
        ports = [port for port in spec.get("ports") or () if port.get("port") == service.port]
        if not ports:
            raise Unresolved(f'no service port {service.port} found for service "{service.name}"')
        found = list(self._endpoints(service, ports[0].get("name") or ""))
        if not found:
            raise Unresolved(f'no endpoints available for service "{service.name}"')
        at = self._next_endpoint[service] = self._next_endpoint.get(service, -1) + 1
        return found[at % len(found)]

    def _endpoints(self, service: Service, port_name: str) -> Iterator[tuple[str, int]]:
        """Ready endpoints from EndpointSlices; from Endpoints when there are no slices."""
        index = f"{_SERVICE_LABEL}={service.name}"
        slices = self._store.range(_SLICES, service.namespace, index=index).entries
        for entry in slices:
            yield from _of_slice(objects.decode(entry), port_name)
        if not slices:
            whole = self._store.get(Key("endpoints", service.namespace, service.name))
            if whole is not None:
                yield from _of_endpoints(objects.decode(whole), port_name)


def _of_slice(found: Mapping[str, Any], port_name: str) -> Iterator[tuple[str, int]]:
    port = _port(found.get("ports"), port_name)
    if port is None or found.get("addressType") == "FQDN":
        return
    for endpoint in found.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
            yield endpoint["addresses"][0], port


def _of_endpoints(found: Mapping[str, Any], port_name: str) -> Iterator[tuple[str, int]]:
    for subset in found.get("subsets") or ():
        port = _port(subset.get("ports"), port_name)
        if port is not None:
            for address in subset.get("addresses") or ():
                yield address["ip"], port


def _port(ports: Any, name: str) -> int | None:
    for port in ports or ():
        if (port.get("name") or "") == name and port.get("port"):
            return int(port["port"])
    return None
