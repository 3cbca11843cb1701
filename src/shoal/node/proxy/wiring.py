"""Watches services and their endpoint slices, and runs the proxy in a manager."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock
from shoal.client import builtin
from shoal.kube.objects import Obj
from shoal.node.proxy.config import ProxyConfig
from shoal.node.proxy.reconcile import BY_SERVICE, ServiceProxy, service_of
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
) -> ServiceProxy:
    """Add the proxy to the manager; its listeners are closed when the manager stops."""
    services = manager.informer(builtin("services"))
    slices = manager.informer(builtin("endpointslices", "discovery.k8s.io"), indexes={BY_SERVICE: service_of})
    proxy = ServiceProxy(manager.client, services, slices, events, clock=clock, config=config or ProxyConfig())
    controller = Controller(
        "service-proxy", proxy.reconcile, clock=clock, random=random, new_id=new_id, metrics=metrics,
        config=ControllerConfig(workers=1),
    )  # fmt: skip
    controller.watches(services).maps(slices, _keys)
    manager.add(_Running(controller, proxy))
    return proxy


def _keys(piece: Obj) -> tuple[ObjectKey, ...]:
    return tuple(ObjectKey(*each.split("/", 1)) for each in service_of(piece))


class _Running:
    """Runs the controller, then closes its listeners."""

    def __init__(self, controller: Controller, proxy: ServiceProxy) -> None:
        self.name = controller.name
        self._controller = controller
        self._proxy = proxy

    async def run(self) -> None:
        try:
            await self._controller.run()
        finally:
            await self._proxy.close()

    def stop(self) -> None:
        self._controller.stop()
