"""Objects that pods refer to, such as config maps, secrets and claims, each watched by name while a pod needs it.

A node may read only objects that its pods name, so there is one watch per object, not one per resource. Pods share
watches; a watch ends with its last pod. A change wakes the pods that use the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.supervision import supervise
from shoal.base.tasks import OwnedTasks
from shoal.client import Client, Scope, builtin
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer, ObjectKey

_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object of a built-in resource; the namespace is empty for cluster-scoped resources."""

    resource: str
    namespace: str
    name: str


@dataclass(slots=True)
class _Watched:
    informer: Informer
    task: asyncio.Task[None]
    users: set[str] = field(default_factory=set)  # uids of pods


class References:
    """Watches objects for pods, which are identified by uid."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        random: Callable[[], float],
        changed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._changed = changed
        self._tasks = OwnedTasks()
        self._watched: dict[ObjectReference, _Watched] = {}
        self._of: dict[str, set[ObjectReference]] = {}  # by uid of the pod

    def use(self, uid: str, references: Iterable[ObjectReference]) -> None:
        """Set the references of a pod."""
        wanted = {each for each in references if each.name}
        before = self._of.get(uid, set())
        self._of[uid] = wanted
        for each in wanted - before:
            self._watch(each).users.add(uid)
        for each in before - wanted:
            self._drop(each, uid)

    def release(self, uid: str) -> None:
        """Drop the references of a removed pod."""
        for each in self._of.pop(uid, set()):
            self._drop(each, uid)

    async def get(self, reference: ObjectReference) -> Obj | None:
        """The object as last seen, or None if it does not exist. An object without a watch is read from the API."""
        watched = self._watched.get(reference)
        if watched is not None:
            try:
                async with within(self._clock, _WAIT_S):
                    await watched.informer.cache.synced.wait()
            except TimeoutError:
                pass  # the watch does not work: read the object from the API
            else:
                return watched.informer.cache.get(ObjectKey(reference.namespace, reference.name))
        try:
            return await self._client.of(builtin(reference.resource)).get(reference.name, reference.namespace)
        except NotFound:
            return None

    async def close(self) -> None:
        self._watched.clear()
        await self._tasks.close()

    def _watch(self, reference: ObjectReference) -> _Watched:
        found = self._watched.get(reference)
        if found is None:
            scope = Scope(namespace=reference.namespace, field_selector=f"metadata.name={reference.name}")
            resource = self._client.of(builtin(reference.resource))
            informer = Informer(resource, clock=self._clock, random=self._random, scope=scope)

            def wake_users(change: Change, reference: ObjectReference = reference) -> None:
                watched = self._watched.get(reference)
                for uid in tuple(watched.users) if watched is not None else ():
                    self._changed(uid)

            informer.cache.add_handler(wake_users)
            name = f"reference/{reference.resource}/{reference.namespace}/{reference.name}"
            watching = supervise(
                "node/references", informer.run, clock=self._clock, detail=name, ready=informer.cache.synced.is_set
            )
            found = _Watched(informer, self._tasks.start(watching, name=name))
            self._watched[reference] = found
        return found

    def _drop(self, reference: ObjectReference, uid: str) -> None:
        watched = self._watched.get(reference)
        if watched is None:
            return
        watched.users.discard(uid)
        if not watched.users:
            del self._watched[reference]
            watched.task.cancel()
