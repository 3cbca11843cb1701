"""Creating and deleting pods for a workload: in growing batches, told as events, remembered as expectations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from shoal.client import TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.expectations import Expectations
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.events import EventType

BURST: Final = 500  # pods that one reconcile creates or deletes at most
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"

Failure = ApiError | TransportError
T = TypeVar("T")
Call = Callable[[], Coroutine[Any, Any, T]]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch: the objects as the server has them, and the first failure."""

    done: tuple[Obj, ...] = ()
    failure: Failure | None = None


def namespace_ends(error: BaseException) -> bool:
    """Whether the server refused because the namespace is being deleted: nothing can be done about it."""
    return isinstance(error, ApiError) and any(c.get("reason") == _NAMESPACE_TERMINATING for c in error.causes)


async def all_of(calls: Sequence[Call[T]]) -> tuple[list[T], Failure | None]:
    """Run the calls at the same time; their results, and the first failure. Other errors are raised."""
    answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    done: list[T] = []
    failure: Failure | None = None
    for answer in answers:
        if isinstance(answer, ApiError | TransportError):
            failure = failure or answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            done.append(answer)
    return done, failure


async def slow_start(calls: Sequence[Call[T]]) -> tuple[list[T], Failure | None]:
    """Run the calls in batches of 1, 2, 4, ...; after a batch with a failure no other is begun. So what fails for one
    reason does not fail hundreds of times."""
    done: list[T] = []
    position, size = 0, 1
    while position < len(calls):
        batch, failure = await all_of(calls[position : position + size])
        done += batch
        if failure is not None:
            return done, failure
        position += size
        size *= 2
    return done, None


class PodControl:
    """Of one controller."""

    def __init__(self, context: ControllerContext, pods: Cache, expectations: Expectations) -> None:
        self._resource = context.resource("pods")
        self._pods = pods
        self._events = context.events
        self._expectations = expectations

    async def create(self, owner: Obj, pods: Sequence[Obj]) -> BatchOutcome:
        """At most ``BURST`` of the pods. A namespace that is being deleted is no failure."""
        uid, namespace = owner["metadata"]["uid"], owner["metadata"]["namespace"]

        def call(pod: Obj) -> Call[Obj]:
            return lambda: self._resource.create(pod, namespace)

        done, failure = await slow_start([call(pod) for pod in pods[:BURST]])
        for pod in done:
            self._expectations.wrote(uid, self._pods, pod)
            self._events.record(owner, EventType.NORMAL, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        if failure is not None and namespace_ends(failure):
            failure = None
        if failure is not None:
            self._events.record(owner, EventType.WARNING, "FailedCreate", f"Error creating: {failure}")
        return BatchOutcome(tuple(done), failure)

    async def delete(self, owner: Obj, pods: Sequence[Obj]) -> BatchOutcome:
        """At most ``BURST`` of the pods. ``done`` are those that were there and are going now."""
        uid = owner["metadata"]["uid"]

        def call(pod: Obj) -> Call[Obj | None]:
            return lambda: self._delete_one(pod)

        answers, failure = await all_of([call(pod) for pod in pods[:BURST]])
        done = tuple(pod for pod in answers if pod is not None)
        for pod in done:
            self._expectations.deleted(uid, self._pods, pod)
            self._events.record(owner, EventType.NORMAL, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        if failure is not None:
            self._events.record(owner, EventType.WARNING, "FailedDelete", f"Error deleting: {failure}")
        return BatchOutcome(done, failure)

    async def _delete_one(self, pod: Obj) -> Obj | None:
        about = pod["metadata"]
        try:
            await self._resource.delete(about["name"], about["namespace"], uid=about["uid"])
        except (NotFound, Conflict):
            return None  # it is gone, or another of its name is there
        return pod
