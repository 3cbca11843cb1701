"""Watches services and their endpoint slices, and runs the proxy in a manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shoal.base.clock import Clock
from shoal.base.tasks import wait_first
from shoal.client import builtin
from shoal.kube.objects import Obj
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.model import InsideNetwork
from shoal.node.proxy.names import ServiceDns
from shoal.node.proxy.policies import ALL, NetworkPolicies
from shoal.node.proxy.process import ProxyProcess
from shoal.node.proxy.reconcile import BY_SERVICE, ServiceProxy, service_of
from shoal.node.proxy.relays import LocalRelays, Relays
from shoal.reconcile import Controller, ControllerConfig, EventRecorder, Manager, ReconcileMetrics
from shoal.reconcile.keys import ObjectKey


def add(
    manager: Manager,
    events: EventRecorder,
    *,
    clock: Clock,
    random: Callable[[], float],
    new_id: Callable[[], str],
    metrics: ReconcileMetrics,
    config: ProxyConfig | None = None,
    relays: Relays | None = None,
) -> ServiceProxy:
    """Add the proxy to the manager. Without ``relays`` they are in this process, and its listeners are closed when the
    manager stops."""
    config = config or ProxyConfig()
    relays = relays or LocalRelays(clock=clock, connections=config.connections, drain_s=config.drain_s)
    services = manager.informer(builtin("services"))
    slices = manager.informer(builtin("endpointslices", "discovery.k8s.io"), indexes={BY_SERVICE: service_of})
    proxy = ServiceProxy(manager.client, services, slices, events, relays, config)
    controller = Controller(
        "service-proxy", proxy.reconcile, clock=clock, random=random, new_id=new_id, metrics=metrics,
        config=ControllerConfig(workers=1),
    )  # fmt: skip
    controller.watches(services).maps(slices, _keys)
    manager.add(_Running(controller, proxy, relays))
    return proxy


def _keys(piece: Obj) -> tuple[ObjectKey, ...]:
    return tuple(ObjectKey(*each.split("/", 1)) for each in service_of(piece))


def add_inside(
    manager: Manager,
    *,
    clock: Clock,
    random: Callable[[], float],
    new_id: Callable[[], str],
    metrics: ReconcileMetrics,
    network: InsideNetwork,
    process: ProxyProcess,
) -> None:
    """Add what only a network of sandboxes has: names of Services, and policies."""
    config = ControllerConfig(workers=1)
    services = manager.informer(builtin("services"))
    slices = manager.informer(builtin("endpointslices", "discovery.k8s.io"), indexes={BY_SERVICE: service_of})
    dns = ServiceDns(manager.client, services, slices, process, network.dns)
    names = Controller(
        "service-dns", dns.reconcile, clock=clock, random=random, new_id=new_id, metrics=metrics, config=config
    )
    names.watches(services).maps(slices, _keys)
    manager.add(_Begun(names, dns.begin))
    policies, pods = (
        manager.informer(builtin("networkpolicies", "networking.k8s.io")),
        manager.informer(builtin("pods")),
    )
    namespaces = manager.informer(builtin("namespaces"))
    rules = NetworkPolicies(policies, pods, namespaces, process, network.dns)
    enforcing = Controller(
        "network-policies", rules.reconcile, clock=clock, random=random, new_id=new_id, metrics=metrics, config=config
    )
    for each in (policies, pods, namespaces):
        enforcing.maps(each, _all)
    manager.add(enforcing)


def _all(obj: Obj) -> tuple[ObjectKey, ...]:
    return (ALL,)


class _Begun:
    """Runs a controller after its beginning."""

    def __init__(self, controller: Controller, begin: Callable[[], Awaitable[None]]) -> None:
        self.name = controller.name
        self._controller = controller
        self._begin = begin

    async def run(self) -> None:
        await self._begin()
        await self._controller.run()

    def stop(self) -> None:
        self._controller.stop()


class _Running:
    """Runs the controller and its relays, and releases them at the end."""

    def __init__(self, controller: Controller, proxy: ServiceProxy, relays: Relays) -> None:
        self.name = controller.name
        self._controller = controller
        self._proxy = proxy
        self._relays = relays

    async def run(self) -> None:
        try:
            await wait_first(self._serve(), self._relays.run())
        finally:
            await self._proxy.close()

    async def _serve(self) -> None:
        await self._proxy.begin()
        await self._controller.run()

    def stop(self) -> None:
        self._controller.stop()
