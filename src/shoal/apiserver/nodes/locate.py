"""Finds the address of a pod, service or node, and the container of a request. Pure; errors are worded as in
Kubernetes."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.apiserver.node_access import Network
from shoal.errors import ApiError, BadRequest, ServiceUnavailable


class UnknownError(ApiError):
    """A failure without a Kubernetes reason, only a message."""

    reason, code = "", 500


@dataclass(frozen=True, slots=True)
class ProxiedName:
    """``scheme:name:port`` as the name of a proxied object."""

    scheme: str
    name: str
    port: str


def wanted(text: str, what: str) -> ProxiedName:
    """``name``, ``name:port`` or ``scheme:name:port``."""
    parts = text.split(":")
    if len(parts) <= 3:
        scheme = parts.pop(0) if len(parts) == 3 else ""
        name, port = parts if len(parts) == 2 else (parts[0], "")
        if name and scheme in ("", "http", "https"):
            return ProxiedName(scheme, name, port)
    raise BadRequest(f'invalid {what} request "{text}"')


# -- containers ----------------------------------------------------------------------------------------------------


def _containers(pod: Mapping[str, Any]) -> Iterator[str]:
    spec = pod["spec"]
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            yield container["name"]


def container_of(pod: Mapping[str, Any], name: str) -> str:
    """The container that is meant; the only one when none is named."""
    pod_name = pod["metadata"]["name"]
    if name:
        if name not in _containers(pod):
            raise BadRequest(f"container {name} is not valid for pod {pod_name}")
        return name
    containers = list(pod["spec"].get("containers") or ())
    if len(containers) == 1:
        only: str = containers[0]["name"]
        return only
    text = f"a container name must be specified for pod {pod_name}"
    raise BadRequest(f"{text}, choose one of: [{' '.join(_containers(pod))}]" if containers else text)


# -- nodes ---------------------------------------------------------------------------------------------------------


def kubelet_address(node: Mapping[str, Any], types: Sequence[str], default_port: int) -> tuple[str, int]:
    """Host and port of a node's kubelet."""
    status = node.get("status") or {}
    addresses = status.get("addresses") or ()
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port") or default_port
    for kind in types:
        for each in addresses:
            if each.get("type") == kind and each.get("address"):
                return each["address"], port
    raise UnknownError(f"no preferred addresses found; known addresses: {[each.get('address') for each in addresses]}")


# -- addresses -----------------------------------------------------------------------------------------------------


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_address(text: str, loopback: Sequence[Network]) -> None:
    """Reject addresses that no pod can have: a proxy must not give access to the server's own machine."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BadRequest("address not allowed") from None
    if address.is_loopback and any(address.version == each.version and address in each for each in loopback):
        return
    special = address.is_loopback or address.is_multicast or address.is_link_local or address.is_unspecified
    if special or text == "255.255.255.255":
        raise BadRequest("address not allowed")


def pod_address(pod: Mapping[str, Any], port: str, loopback: Sequence[Network]) -> tuple[str, str]:
    """Address and port of a pod; the first port that it declares when none is named, empty when it declares none."""
    if not port:
        for container in pod["spec"].get("containers") or ():
            if ports := container.get("ports"):
                port = str(ports[0]["containerPort"])
                break
    address = next(iter(_pod_addresses(pod)), "")
    check_address(address, loopback)
    return address, port


def _pod_addresses(pod: Mapping[str, Any]) -> list[str]:
    status = pod.get("status") or {}
    found = [each.get("ip") or "" for each in status.get("podIPs") or ()]
    return found or ([status["podIP"]] if status.get("podIP") else [])


def port_name(service: Mapping[str, Any], port: str) -> str:
    """The name of a service's port that may be given by its number."""
    if not (port.isascii() and port.isdigit()):
        return port
    for each in (service.get("spec") or {}).get("ports") or ():
        if each.get("port") == int(port):
            return each.get("name") or ""
    name = service["metadata"]["name"]
    raise ServiceUnavailable(f'no service port {int(port)} found for service "{name}"')


def endpoint_of(
    service: str,
    slices: Iterable[Mapping[str, Any]],
    port: str,
    pod_named: Callable[[str], Mapping[str, Any] | None],
    start: int,
) -> tuple[str, int]:
    """A ready endpoint that is a pod of this namespace. ``start``: the number of the endpoint to try first."""
    for each in slices:
        found = next((p.get("port") for p in each.get("ports") or () if (p.get("name") or "") == port), None)
        endpoints = each.get("endpoints") or ()
        if not found or not endpoints:
            continue
        first = start % len(endpoints)
        for endpoint in (*endpoints[first:], *endpoints[:first]):
            if (endpoint.get("conditions") or {}).get("ready") is not False and _is_pod(endpoint, pod_named):
                return endpoint["addresses"][0], found
    raise ServiceUnavailable(f'no endpoints available for service "{service}"')


def _is_pod(endpoint: Mapping[str, Any], pod_named: Callable[[str], Mapping[str, Any] | None]) -> bool:
    target = endpoint.get("targetRef") or {}
    pod = pod_named(target.get("name") or "") if target.get("kind", "Pod") == "Pod" else None
    return pod is not None and endpoint["addresses"][0] in _pod_addresses(pod)
