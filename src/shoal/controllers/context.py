"""The context of every controller: informers, a client with fenced writes, events, clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.client import Client, ResourceClient, builtin
from shoal.reconcile import Controller, ControllerConfig, EventRecorder, Informer, Manager, ReconcileMetrics, Result
from shoal.reconcile.cache import IndexFunction
from shoal.reconcile.keys import ObjectKey


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The argument of every ``wiring.add(context)``."""

    manager: Manager
    events: EventRecorder
    clock: Clock
    random: Callable[[], float]
    new_id: Callable[[], str]
    metrics: ReconcileMetrics
    own: Client | None = None  # uses the controller's own service account; fenced like the manager's

    @property
    def client(self) -> Client:
        """A client whose writes carry the fence of the elected process."""
        return self.own or self.manager.client

    def resource(self, plural: str, group: str = "") -> ResourceClient:
        return self.client.of(builtin(plural, group))

    def informer(self, plural: str, group: str = "", **indexes: IndexFunction) -> Informer:
        """The informer of a built-in resource, shared by all controllers of the process."""
        return self.manager.informer(builtin(plural, group), indexes=indexes)

    def controller(
        self,
        name: str,
        reconcile: Callable[[ObjectKey], Awaitable[Result]],
        *,
        workers: int = 5,
        resync_s: float = 0.0,
        timeout_s: float = 60.0,
    ) -> Controller:
        """A controller that the manager runs while this process leads; wire it with watches, owns and maps."""
        made = Controller(
            name, reconcile, clock=self.clock, random=self.random, new_id=self.new_id, metrics=self.metrics,
            config=ControllerConfig(workers=workers, resync_s=resync_s, timeout_s=timeout_s),
        )  # fmt: skip
        self.manager.add(made)
        return made
