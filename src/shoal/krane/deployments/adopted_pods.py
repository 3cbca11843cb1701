"""The pods of Deployments that were adopted. They do not have our labels, so each Deployment has an informer of its
own, by its own selector, as long as it is adopted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from shoal.base.clock import Clock
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import Client, Scope, builtin
from shoal.krane.deployments.adoptable import selector_text
from shoal.krane.labels import is_adopted, key_of
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Change, Informer
from shoal.reconcile.cache import Transform

_PODS = builtin("pods")


@dataclass(frozen=True, slots=True)
class _Followed:
    scope: Scope
    informer: Informer
    task: asyncio.Task[None]


class AdoptedPods:
    """``roots`` is the cache of the Deployments of the agent."""

    def __init__(
        self, client: Client, roots: Cache, transform: Transform, *, clock: Clock, random: Callable[[], float]
    ) -> None:
        self._client = client
        self._clock = clock
        self._roots = roots
        self._make = partial(Informer, clock=clock, random=random, transform=transform)
        self._followed: dict[str, _Followed] = {}
        self._changed = asyncio.Event()
        self._tasks = OwnedTasks()
        roots.add_handler(self._root_changed)

    async def run(self, changed: Callable[[str], None]) -> None:
        """Follow the pods of what is adopted until cancelled; ``changed(key)`` for each change."""
        try:
            while True:
                self._changed.clear()
                await self._follow(changed)
                await self._changed.wait()
        finally:
            await self._tasks.close()
            self._followed.clear()

    def of(self, key: str) -> Iterable[Obj]:
        followed = self._followed.get(key)
        return tuple(followed.informer.cache) if followed is not None else ()

    @property
    def synced(self) -> bool:
        """Whether the pods of every adopted Deployment that is seen have been listed."""
        for key in self._wanted():
            followed = self._followed.get(key)
            if followed is None or not followed.informer.synced:
                return False
        return True

    async def _follow(self, changed: Callable[[str], None]) -> None:
        wanted = self._wanted()
        for key, followed in list(self._followed.items()):
            if wanted.get(key) != followed.scope:
                del self._followed[key]
                await cancel_all(followed.task)
        for key, scope in wanted.items():
            if key not in self._followed:
                informer = self._make(self._client.of(_PODS), scope=scope)
                informer.cache.add_handler(partial(_tell, changed, key))
                watching = supervise("krane/adopted-pods", informer.run, clock=self._clock, detail=key)
                task = self._tasks.start(watching, name=f"adopted-pods/{key}")
                self._followed[key] = _Followed(scope, informer, task)

    def _wanted(self) -> dict[str, Scope]:
        found: dict[str, Scope] = {}
        for root in self._roots:
            key = key_of(root)
            if key is not None and is_adopted(root):
                labels = (root["spec"].get("selector") or {}).get("matchLabels") or {}
                found[key] = Scope(namespace=root["metadata"]["namespace"], label_selector=selector_text(labels))
        return found

    def _root_changed(self, change: Change) -> None:
        if any(obj is not None and is_adopted(obj) for obj in (change.old, change.new)):
            self._changed.set()


def _tell(changed: Callable[[str], None], key: str, change: Change) -> None:
    changed(key)
