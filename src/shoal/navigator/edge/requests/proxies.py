"""Reads the configuration of a pod's Envoy from its admin interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

import orjson

from shoal.client import Client, builtin
from shoal.errors import ApiError, BadRequest, InternalError, NotFound
from shoal.kube.objects import Obj
from shoal.navigator.edge.requests.dumps import parsed

_DUMP = "/config_dump?include_eds"
_LIVE = "/clusters?format=json"
_INFO = "/server_info"
_SIDECAR = "istio-proxy"
_PORT_NAMES = ("admin", "envoy-admin", "http-envoy-admin")


class PodPorts(Protocol):
    """HTTP to a port of a pod."""

    async def get(self, namespace: str, pod: str, port: int, path: str) -> bytes: ...


class ProxiedPorts:
    """Through the API server's proxy: to the pod's address, so the administration must listen there. For clients that
    have no connection to upgrade."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        target = f"{builtin('pods').path(namespace, quote(pod))}:{port}/proxy{path}"
        reply = await self._client.stream("GET", target, headers={"accept": "*/*"})
        try:
            return b"".join([chunk async for chunk in reply.chunks()])
        finally:
            await reply.close()


class Proxies:
    """``pod_of`` gives a pod as it is known here, None when there is none of that name."""

    def __init__(self, ports: PodPorts, pod_of: Callable[[str, str], Obj | None], *, admin_port: int) -> None:
        self._ports = ports
        self._pod_of = pod_of
        self.admin_port = admin_port

    async def config(self, namespace: str, pod: str, *, raw: bool) -> bytes:
        """The configuration as one JSON document."""
        found = self._pod_of(namespace, pod)
        if found is None:
            raise NotFound.of("pods", "", pod)
        port = admin_port_of(found, self.admin_port)
        dump = await self._ports.get(namespace, pod, port, _DUMP)
        if raw:
            return dump
        live = await self._optional(namespace, pod, port, _LIVE)
        info = await self._optional(namespace, pod, port, _INFO)
        return orjson.dumps(parsed(_document(dump), live, info))

    async def _optional(self, namespace: str, pod: str, port: int, path: str) -> Obj | None:
        try:
            return _document(await self._ports.get(namespace, pod, port, path))
        except ApiError:
            return None  # older ones do not have it


def admin_port_of(pod: Obj, usual: int) -> int:
    """The port of the admin interface; ``BadRequest`` when the pod seems to have no Envoy."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in containers:
        for port in container.get("ports") or ():
            if port.get("name") in _PORT_NAMES:
                return int(port["containerPort"])
    for container in containers:
        if container.get("name") == _SIDECAR or "envoy" in f"{container.get('name')} {container.get('image')}".lower():
            return usual
    raise BadRequest(f"pod {pod['metadata']['name']} has no proxy: neither {_SIDECAR} nor a port named admin")


def _document(data: bytes) -> Obj:
    try:
        found = orjson.loads(data)
    except ValueError as error:
        raise InternalError(f"the proxy's answer is not JSON: {data[:60]!r}") from error
    if not isinstance(found, dict):
        raise InternalError("the proxy's answer is not a JSON object")
    return found
