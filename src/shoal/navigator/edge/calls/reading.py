"""Reads the counters of the cluster's proxies at an interval, through the API server, with the rights that the edge has
for proxies' configuration anyway.

Gateways are pods with the component ``sentinel`` and a port named ``metrics``. Istio's proxies serve their counters on
port 15020; they are read only if the settings say so, since there is one in every pod of a mesh.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import orjson

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.client import TransportError
from shoal.errors import ApiError, BadRequest
from shoal.kube.objects import Obj
from shoal.navigator.connections import CallEndpoint, ServiceConnection
from shoal.navigator.edge.calls.counters import Counted, connection_of, gateway_calls, istio_calls
from shoal.navigator.edge.calls.history import CallHistory
from shoal.navigator.edge.config import CallsConfig
from shoal.navigator.edge.kind_objects import KindObjects
from shoal.navigator.edge.reading import ROW
from shoal.navigator.edge.requests.proxies import PodPorts
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import ObjectKey

_COMPONENT, _SENTINEL = "app.kubernetes.io/component", "sentinel"
_ISTIO_PORT, _ISTIO_PATH, _SIDECAR = 15020, "/stats/prometheus", "istio-proxy"
_READ_S = 5.0
_AT_A_TIME = 8
_MAYBE_GATEWAY, _MAYBE_SIDECAR = b'"sentinel"', b'"istio-proxy"'


@dataclass(frozen=True, slots=True)
class CountingProxy:
    """A pod whose counters can be read. ``gateway`` is None for Istio's."""

    key: ObjectKey
    uid: str
    port: int
    path: str
    gateway: CallEndpoint | None
    running: bool
    started_here: bool  # after the edge had seen all pods


class ProxyCalls:
    """``pods`` is the cache of reported pods. ``run`` it as a task."""

    def __init__(self, ports: PodPorts, pods: KindObjects, config: CallsConfig, *, clock: Clock) -> None:
        self._ports = ports
        self._pods = pods
        self._clock = clock
        self._history = CallHistory(keep_s=config.keep_s)
        self._proxies: dict[ObjectKey, CountingProxy] = {}
        self._errors: dict[ObjectKey, str] = {}
        self._config = config
        self._begun = False

    def configure(self, config: CallsConfig) -> None:
        self._config = config
        self._history.keep_s = config.keep_s

    @property
    def has_proxies(self) -> bool:
        return bool(self._wanted())

    async def run(self) -> None:
        """Until cancelled."""
        self._pods.add_handler(self._changed)
        try:
            await self._pods.synced.wait()
            self._begun = True
            self._history.begin(self._clock.wall_s())
            while True:
                await self.look()
                await self._clock.sleep(self._config.interval_s)
        finally:
            self._pods.remove_handler(self._changed)

    async def look(self) -> None:
        """Read all proxies once."""
        at_s, places = self._clock.wall_s(), asyncio.Semaphore(_AT_A_TIME)
        async with asyncio.TaskGroup() as tasks:
            for proxy in self._wanted():
                tasks.create_task(self._read(proxy, at_s, places), name=f"edge/calls/{proxy.key}")

    def between(
        self, start_s: float, end_s: float, *, namespace: str, service: str
    ) -> tuple[list[ServiceConnection], list[str]]:
        """Rates over the period, as far as it is known, and what is missing."""
        if not 0 <= start_s < end_s:
            raise BadRequest("the start must be before the end")
        known_s = self._history.since_s(start_s)
        seconds = max(self._config.interval_s, end_s - known_s)
        found = [
            connection_of(pair, calls, seconds)
            for pair, calls in self._history.between(start_s, end_s).items()
            if _concerns(pair[1], namespace, service) or _concerns(pair[2], namespace, service)
        ]
        wanted = {proxy.key for proxy in self._wanted()}
        failed = {str(key): text for key, text in sorted(self._errors.items()) if key in wanted}
        return found, [f"the counters of {key} cannot be read: {text}" for key, text in list(failed.items())[:3]]

    def _wanted(self) -> list[CountingProxy]:
        config = self._config
        return [
            proxy
            for proxy in self._proxies.values()
            if proxy.running and (config.gateways if proxy.gateway is not None else config.istio_proxies)
        ]

    async def _read(self, proxy: CountingProxy, at_s: float, places: asyncio.Semaphore) -> None:
        try:
            async with places, within(self._clock, _READ_S):
                page = await self._ports.get(proxy.key.namespace, proxy.key.name, proxy.port, proxy.path)
        except (ApiError, TransportError) as error:
            self._errors[proxy.key] = str(error)
            return
        except TimeoutError:
            self._errors[proxy.key] = f"no answer within {_READ_S:g} s"
            return
        self._errors.pop(proxy.key, None)
        now = self._proxies.get(proxy.key)
        if now is not None and now.uid == proxy.uid:
            self._history.take(proxy.uid, _counted(proxy, page), at_s, started_here=proxy.started_here)

    def _changed(self, change: Change) -> None:
        before = self._proxies.get(change.key)
        proxy = None
        if change.type is not ChangeType.DELETED:
            data = change.object[ROW]
            if _MAYBE_GATEWAY in data or _MAYBE_SIDECAR in data:
                proxy = proxy_of(change.key, orjson.loads(data), started_here=self._begun)
        if proxy is not None and before is not None and proxy.uid == before.uid:
            proxy = replace(proxy, started_here=before.started_here)
        if proxy is not None:
            self._proxies[change.key] = proxy
        elif before is not None:
            del self._proxies[change.key]
            self._errors.pop(change.key, None)
        if before is not None and (proxy is None or proxy.uid != before.uid):
            self._history.forget((before.uid,))


def proxy_of(key: ObjectKey, pod: Obj, *, started_here: bool) -> CountingProxy | None:
    """The proxy of a pod whose counters can be read; None when it has none."""
    about, spec = pod["metadata"], pod.get("spec") or {}
    running = (pod.get("status") or {}).get("phase") == "Running"
    uid = str(about.get("uid") or "")
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if (about.get("labels") or {}).get(_COMPONENT) == _SENTINEL:
        name = spec.get("serviceAccountName") or key.name
        for port in (each for container in containers for each in container.get("ports") or ()):
            if port.get("name") == "metrics":
                gateway = CallEndpoint("", key.namespace, name)
                return CountingProxy(key, uid, int(port["containerPort"]), "/metrics", gateway, running, started_here)
    if any(container.get("name") == _SIDECAR for container in containers):
        return CountingProxy(key, uid, _ISTIO_PORT, _ISTIO_PATH, None, running, started_here)
    return None


def _counted(proxy: CountingProxy, page: bytes) -> Counted:
    text = page.decode(errors="replace")
    return gateway_calls(text, proxy.gateway) if proxy.gateway is not None else istio_calls(text)


def _concerns(end: CallEndpoint, namespace: str, service: str) -> bool:
    """Deployments are only known to the manager, which compares their names."""
    return bool(end.deployment) or (namespace in ("", end.namespace) and service in ("", end.service))
