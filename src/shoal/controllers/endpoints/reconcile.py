"""Keeps the Endpoints of services with a selector, and removes those of deleted services."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.endpoints.plan import LEADER, plan_endpoints
from shoal.controllers.endpointslice.selection import pods_of, selects_pods
from shoal.controllers.endpointslice.trigger import TriggerTimes
from shoal.controllers.pods.control import namespace_ends
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey, key_of, version_of


class EndpointsController:
    """Reconciles services."""

    def __init__(self, context: ControllerContext) -> None:
        self.services = context.informer("services")
        self.pods = context.informer("pods")
        self.endpoints = context.informer("endpoints")
        self._resource = context.resource("endpoints")
        self._events = context.events
        self._expectations = Expectations(context.clock)
        self._triggers = TriggerTimes()
        self._uids: dict[ObjectKey, str] = {}
        self._versions: dict[ObjectKey, str] = {}  # resourceVersion of the last write of each

    def wrote(self, endpoints: Obj) -> bool:
        """Whether this version is the controller's own write."""
        return version_of(endpoints) == self._versions.get(key_of(endpoints))

    async def reconcile(self, key: ObjectKey) -> Result:
        service = self.services.cache.get(key)
        if service is None:
            await self._remove(key)
            return DONE
        if not selects_pods(service):
            return DONE
        uid = self._uids[key] = service["metadata"]["uid"]
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        pods = pods_of(service, self.pods.cache)
        trigger = self._triggers.observe(key, service, pods)
        present = self.endpoints.cache.get(key)
        wanted = plan_endpoints(service, pods, present, trigger)
        if wanted is not None:
            await self._write(service, wanted, create=present is None)
        return DONE

    async def _write(self, service: Obj, wanted: Obj, *, create: bool) -> None:
        try:
            answer = await (self._resource.create(wanted) if create else self._resource.replace(wanted))
        except (Conflict, AlreadyExists):
            raise
        except ApiError as error:
            if namespace_ends(error):
                return
            about = service["metadata"]
            name = f"{about['namespace']}/{about['name']}"
            if create:
                reason, text = "FailedToCreateEndpoint", f"Failed to create endpoint for service {name}: {error}"
            else:
                reason, text = "FailedToUpdateEndpoint", f"Failed to update endpoint {name}: {error}"
            self._events.record(wanted, EventType.WARNING, reason, text)
            raise
        self._versions[key_of(answer)] = version_of(answer)
        self._expectations.wrote(service["metadata"]["uid"], self.endpoints.cache, answer)

    async def _remove(self, key: ObjectKey) -> None:
        self._triggers.forget(key)
        self._versions.pop(key, None)
        self._expectations.forget(self._uids.pop(key, ""))
        left = self.endpoints.cache.get(key)
        if left is None or LEADER in (left["metadata"].get("annotations") or {}):
            return
        try:
            await self._resource.delete(key.name, key.namespace, uid=left["metadata"]["uid"])
        except (NotFound, Conflict):
            pass  # deleted, or another object has its name
