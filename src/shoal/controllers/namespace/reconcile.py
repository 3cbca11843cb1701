"""One pass over a terminating namespace: deletes all its objects, and reports what is left."""

from __future__ import annotations

import asyncio

from shoal.client import MetadataClient, Propagation, Scope, TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.discovery import Discovered, ServedResource, discover
from shoal.controllers.namespace.plan import (
    FINALIZER,
    Emptied,
    conditions,
    finalizers_of,
    is_empty,
    recheck_s,
    unexpected,
)
from shoal.errors import ApiError, MethodNotAllowed, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_time, parse_epoch
from shoal.reconcile import DONE, Change, ObjectKey, Result

_AT_ONCE = 8  # concurrent resources of one namespace


def deletion_began(change: Change) -> bool:
    """A predicate that ignores the controller's own writes of conditions."""
    new, old = change.new, change.old
    if new is None or not new["metadata"].get("deletionTimestamp"):
        return False
    if old is None or not old["metadata"].get("deletionTimestamp"):
        return True
    return bool(new["metadata"].get("finalizers") != old["metadata"].get("finalizers") or new["spec"] != old["spec"])


class NamespaceDeleter:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._namespaces = context.informer("namespaces").cache
        self._pods = context.informer("pods").cache
        self._resource = context.resource("namespaces")

    def namespaces_of(self, pod: Obj) -> list[ObjectKey]:
        """The namespace of a pod, if it is terminating."""
        key = ObjectKey("", pod["metadata"].get("namespace") or "")
        namespace = self._namespaces.get(key)
        return [key] if namespace is not None and namespace["metadata"].get("deletionTimestamp") else []

    async def reconcile(self, key: ObjectKey) -> Result:
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return DONE
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return DONE  # another finalizer's turn
        found = await discover(self._context.client)
        now = self._context.clock.wall_s()
        deleting_for_s = now - parse_epoch(namespace["metadata"]["deletionTimestamp"])
        results = await self._empty(key.name, found, deleting_for_s)
        try:
            namespace = await self._report(namespace, conditions(
                namespace.get("status") or {}, results, found.stale, format_time(now)
            ))  # fmt: skip
            if not is_empty(results, found.stale):
                return Result(after_s=recheck_s(deleting_for_s))
            await self._finalize(namespace)
        except NotFound:
            pass
        return DONE

    async def _empty(self, namespace: str, found: Discovered, deleting_for_s: float) -> list[Emptied]:
        wanted = [each for each in found.resources if each.type.namespaced and each.can("delete", "list")]
        pods = [each for each in wanted if (each.type.group, each.type.plural) == ("", "pods")]
        first = [await self._empty_one(namespace, each, deleting_for_s) for each in pods]
        if any(each.left or each.error for each in first):
            return first  # terminating pods may still need other objects
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(resource: ServedResource) -> Emptied:
            async with gate:
                return await self._empty_one(namespace, resource, deleting_for_s)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each), name=f"namespace/{each.type.qualified}") for each in wanted]
        return [task.result() for task in tasks]

    async def _empty_one(self, namespace: str, resource: ServedResource, deleting_for_s: float) -> Emptied:
        name = f"{resource.type.plural}.{resource.type.group}"
        try:
            left = await self._delete_all(namespace, resource)
        except (MethodNotAllowed, NotFound):
            return Emptied(resource=name)  # a resource without stored objects, or one that was just removed
        except (ApiError, TransportError) as error:
            return Emptied(resource=name, error=str(error))
        graceful = resource.type.plural == "pods" and self._longest_grace_s(namespace) > deleting_for_s
        odd = f"unexpected items still remain in namespace: {namespace} for gvr: {_gvr(resource)}"
        fault = odd if unexpected(left, graceful=graceful) else ""
        return Emptied(resource=name, left=len(left), finalizers=finalizers_of(left), error=fault)

    async def _delete_all(self, namespace: str, resource: ServedResource) -> list[Obj]:
        """Delete all objects; return the metadata of those left."""
        client, scope = MetadataClient(self._context.client, resource.type), Scope(namespace=namespace)
        present = (await client.list(scope)).items
        if not present:
            return []
        if resource.can("deletecollection"):
            await client.delete_collection(scope, propagation=Propagation.BACKGROUND)
        else:
            for each in present:
                try:
                    await client.delete(each["metadata"]["name"], namespace, propagation=Propagation.BACKGROUND)
                except NotFound:
                    continue
        return (await client.list(scope)).items

    def _longest_grace_s(self, namespace: str) -> float:
        pods = self._pods.select(namespace=namespace)
        running = [p for p in pods if (p.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        return max((float(p["spec"].get("terminationGracePeriodSeconds") or 0) for p in running), default=0.0)

    async def _report(self, namespace: Obj, wanted: list[Obj]) -> Obj:
        status = namespace.get("status") or {}
        if wanted == (status.get("conditions") or []):
            return namespace
        return await self._resource.replace_status({**namespace, "status": {**status, "conditions": wanted}})

    async def _finalize(self, namespace: Obj) -> None:
        spec = namespace.get("spec") or {}
        kept = [each for each in spec.get("finalizers") or () if each != FINALIZER]
        await self._resource.replace({**namespace, "spec": {**spec, "finalizers": kept}}, subresource="finalize")


def _gvr(resource: ServedResource) -> str:
    return f"{resource.type.group}/{resource.type.version}, Resource={resource.type.plural}"
