"""A sharded controller as its author writes it: handlers by kind, and hooks for state, health and figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shoal.errors import ConfigError, ShoalError
from shoal.kube.objects import Obj
from shoal.sharding.leases import WorkerReport
from shoal.sharding.worker.owned import Owned

Reconcile = Callable[[Owned], Awaitable[float | None]]  # seconds until the next run, or None
ReconcileMany = Callable[[list[Owned]], Awaitable[float | None]]
Gone = Callable[[Obj], Awaitable[None]]
Save = Callable[[int], Awaitable[bytes | None]]
Restore = Callable[[int, bytes], Awaitable[None]]
Health = Callable[[], tuple[bool, str]]
Figures = Callable[[], Mapping[str, float]]
Adjust = Callable[[WorkerReport], WorkerReport]
Journal = Callable[[str, Obj, int], None]  # uid of the target, what the server answered, epoch

F = TypeVar("F", bound=Callable[..., object])


class RetryLater(ShoalError):
    """A handler failed and says when to run it again. Changes of the object run it earlier."""

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(kw_only=True)
class Handler:
    """Handlers of one kind. ``controls`` are the kinds of the children that it creates: they are watched too, and a
    change of a child runs the handler of its owner."""

    group: str
    kind: str
    controls: tuple[tuple[str, str], ...] = ()
    reconcile: Reconcile | None = None
    reconcile_many: ReconcileMany | None = None
    gone: Gone | None = None


@dataclass
class ShardedController:
    """Collects handlers by decorators, as kopf does; or give it ``Handler`` objects."""

    handlers: list[Handler] = field(default_factory=list)
    save: Save | None = None
    restore: Restore | None = None
    health: Health | None = None
    figures: Figures | None = None
    adjust: Adjust | None = None  # changes each report before it is sent; for a worker whose handlers run elsewhere
    journal: Journal | None = None  # called with every write that the server accepted; for checks of ownership

    def reconcile(self, group: str, kind: str, *, controls: Iterable[tuple[str, str]] = ()) -> Callable[[F], F]:
        """The function reconciles one object. It runs again when the object or a child changes, after a failure, and
        with every new owner, so it must be idempotent."""

        def register(function: F) -> F:
            handler = self._handler(group, kind, controls)
            _once(handler.reconcile or handler.reconcile_many, group, kind)
            handler.reconcile = function  # type: ignore[assignment]
            return function

        return register

    def reconcile_many(self, group: str, kind: str, *, controls: Iterable[tuple[str, str]] = ()) -> Callable[[F], F]:
        """The same for several objects at once. A failure counts for all of them."""

        def register(function: F) -> F:
            handler = self._handler(group, kind, controls)
            _once(handler.reconcile or handler.reconcile_many, group, kind)
            handler.reconcile_many = function  # type: ignore[assignment]
            return function

        return register

    def gone(self, group: str, kind: str) -> Callable[[F], F]:
        """The function runs after an object was deleted while this shard owned it. Use a finalizer for work that must
        not be missed."""

        def register(function: F) -> F:
            handler = self._handler(group, kind, ())
            _once(handler.gone, group, kind)
            handler.gone = function  # type: ignore[assignment]
            return function

        return register

    def save_state(self, function: F) -> F:
        """The function returns the state of a slot that moves, at most 256 KB, or None."""
        self.save = function  # type: ignore[assignment]
        return function

    def restore_state(self, function: F) -> F:
        """The function loads the state that another shard has saved."""
        self.restore = function  # type: ignore[assignment]
        return function

    def healthy(self, function: F) -> F:
        """The function returns whether this worker is healthy, and the problem if not."""
        self.health = function  # type: ignore[assignment]
        return function

    def metrics(self, function: F) -> F:
        """The function returns the custom metrics that a ShardConfig can scale by."""
        self.figures = function  # type: ignore[assignment]
        return function

    def _handler(self, group: str, kind: str, controls: Iterable[tuple[str, str]]) -> Handler:
        for handler in self.handlers:
            if (handler.group, handler.kind) == (group, kind):
                handler.controls = tuple(dict.fromkeys((*handler.controls, *controls)))
                return handler
        self.handlers.append(Handler(group=group, kind=kind, controls=tuple(controls)))
        return self.handlers[-1]


def _once(present: object, group: str, kind: str) -> None:
    if present is not None:
        raise ConfigError(f"{kind}.{group} has two handlers: keep one")
