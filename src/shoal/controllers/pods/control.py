"""Creates and deletes pods for a workload: in growing batches, with events and expectations."""

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

BURST: Final = 500  # maximum of pods that one reconcile creates or deletes
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"

Failure = ApiError | TransportError
T = TypeVar("T")
Call = Callable[[], Coroutine[Any, Any, T]]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of a batch: the stored objects, and the first failure."""

    done: tuple[Obj, ...] = ()
    failure: Failure | None = None


def namespace_ends(error: BaseException) -> bool:
    """Whether the server refused because the namespace is being deleted."""
    return isinstance(error, ApiError) and any(c.get("reason") == _NAMESPACE_TERMINATING for c in error.causes)


async def all_of(calls: Sequence[Call[T]]) -> tuple[list[T], Failure | None]:
    """Run the calls concurrently; return their results and the first API failure. Other errors are raised."""
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
    """Run the calls in batches of 1, 2, 4, ...; stop after a batch with a failure, so that one cause does not fail
    hundreds of calls."""
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
    """Creates and deletes the pods of one controller."""

    def __init__(self, context: ControllerContext, pods: Cache, expectations: Expectations) -> None:
        self._resource = context.resource("pods")
        self._pods = pods
        self._events = context.events
        self._expectations = expectations

    async def create(self, owner: Obj, pods: Sequence[Obj]) -> BatchOutcome:
        """Create at most ``BURST`` of the pods. A terminating namespace is not a failure."""
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
        """Delete at most ``BURST`` of the pods. ``done`` are those that existed and are now terminating."""
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
            return None  # deleted, or another object has its name
        return pod
