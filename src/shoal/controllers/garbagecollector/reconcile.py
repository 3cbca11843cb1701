"""Executes the plan for one object at a time. Keys are uids.

Every write carries the resourceVersion of the decision, so that an object that gets an owner meanwhile is not deleted:
the server refuses the write, and the decision is repeated.
"""

from __future__ import annotations

import asyncio
from typing import assert_never

from shoal.base.tasks import outcomes
from shoal.client import MetadataClient, PatchType, Propagation, ResourceClient, ResourceType
from shoal.controllers.context import ControllerContext
from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.model import FOREGROUND, ORPHAN, GraphNode, OwnerReference, node_of
from shoal.controllers.garbagecollector.monitors import Monitors, type_of
from shoal.controllers.garbagecollector.plan import (
    Action,
    DeleteDependents,
    DropReferences,
    KeepObject,
    Orphan,
    OwnerState,
    ReleaseObject,
    Remove,
    decide,
    deletion_step,
    known_state,
)
from shoal.errors import NotFound, ShoalError
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Informer, ObjectKey, Result

_AT_ONCE = 20  # concurrent writes to orphan dependents of one owner


class UnknownKind(ShoalError):
    """An owner has a kind that the server does not serve, so its existence is unknown."""


class Collector:
    def __init__(self, context: ControllerContext, graph: Graph) -> None:
        self._context = context
        self._graph = graph
        self._controller = context.controller("garbage-collector", self.reconcile, workers=20)
        self.monitors = Monitors(context, graph, self.enqueue, self._resyncs)
        context.manager.add(self.monitors)

    def enqueue(self, uid: str) -> None:
        self._controller.queue.add(ObjectKey("", uid))

    def _resyncs(self, informer: Informer) -> None:
        """After a resync look again at all objects that have an owner or are being deleted."""

        def keys() -> list[ObjectKey]:
            found = (each["metadata"] for each in informer.cache)
            return [
                ObjectKey("", about["uid"])
                for about in found
                if about.get("ownerReferences") or about.get("deletionTimestamp")
            ]

        self._controller.resyncs(informer, keys)

    async def reconcile(self, key: ObjectKey) -> Result:
        await self.monitors.synced()
        item = self._graph.get(key.name)
        if item is None:
            return DONE
        action = deletion_step(self._graph, item)
        if action is None:
            action = decide(self._graph, item, await self._states(item))
        try:
            await self._execute(item, action)
        except NotFound:
            pass  # deleted meanwhile: the watch delivers it
        return DONE

    # the owners

    async def _states(self, item: GraphNode) -> list[OwnerState]:
        known = [known_state(self._graph, item, each) for each in item.owners]
        if OwnerState.SOLID in known and None not in known:
            return [state for state in known if state is not None]
        return [
            state if state is not None else await self._ask(item, reference)
            for state, reference in zip(known, item.owners, strict=True)
        ]

    async def _ask(self, item: GraphNode, reference: OwnerReference) -> OwnerState:
        """Ask the server for the state of an owner that is not in the graph, or is there under another identity."""
        resource = self.monitors.resource_of(reference.group, reference.kind)
        if resource is None:
            await self.monitors.rediscover()
            resource = self.monitors.resource_of(reference.group, reference.kind)
        if resource is None:
            raise UnknownKind(f"{reference.kind} of {reference.api_version}, which owns {item.name}, is not served")
        if resource.namespaced and not item.namespace:
            return OwnerState.UNRESOLVABLE
        namespace = item.namespace if resource.namespaced else ""
        try:
            found = await MetadataClient(self._context.client, resource).get(reference.name, namespace)
        except NotFound:
            found = None
        if found is None or found["metadata"]["uid"] != reference.uid:
            self._warn_of_other_namespace(item, reference)
            return OwnerState.ABSENT
        return OwnerState.WAITING if node_of(type_of(resource), found).waits else OwnerState.SOLID

    def _warn_of_other_namespace(self, item: GraphNode, reference: OwnerReference) -> None:
        owner = self._graph.get(reference.uid)
        if owner is None or not owner.namespace or owner.namespace == item.namespace:
            return
        about = (
            f"[{reference.api_version}/{reference.kind}, namespace: {item.namespace}, name: {reference.name}, "
            f"uid: {reference.uid}]"
        )
        self._context.events.record(
            _described(item), EventType.WARNING, "OwnerRefInvalidNamespace",
            f'ownerRef {about} does not exist in namespace "{item.namespace}"',
        )  # fmt: skip

    # actions

    async def _execute(self, item: GraphNode, action: Action) -> None:
        match action:
            case KeepObject():
                return
            case DropReferences(owners):
                await self._set_owners(item, owners)
            case Remove(policy, unblock):
                version = await self._unblock(item) if unblock else item.version
                propagation = Propagation(policy.value)
                await self._resource(item).delete(
                    item.name, item.namespace, propagation=propagation, uid=item.uid, resource_version=version
                )
            case DeleteDependents(dependents):
                for uid in dependents:
                    self.enqueue(uid)
            case ReleaseObject(finalizer):
                await self._release(item, finalizer)
            case Orphan(dependents):
                await self._orphan(item, dependents)
            case _:
                assert_never(action)

    def _resource(self, item: GraphNode) -> ResourceClient:
        of = item.type
        return self._context.client.of(ResourceType(of.group, of.version, of.plural, of.namespaced, of.kind))

    async def _patch(self, item: GraphNode, metadata: Obj) -> Obj:
        guarded = {"metadata": {"uid": item.uid, "resourceVersion": item.version, **metadata}}
        return await self._resource(item).patch(item.name, guarded, item.namespace, type=PatchType.MERGE)

    async def _set_owners(self, item: GraphNode, owners: tuple[OwnerReference, ...]) -> Obj:
        return await self._patch(item, {"ownerReferences": [each.as_object() for each in owners] or None})

    async def _unblock(self, item: GraphNode) -> str:
        """Remove its blocking references, since it waits for its owner in turn; return its new resourceVersion."""
        references = [{**each.as_object(), "blockOwnerDeletion": False} for each in item.owners]
        patched = await self._patch(item, {"ownerReferences": references})
        version: str = patched["metadata"]["resourceVersion"]
        return version

    async def _release(self, item: GraphNode, finalizer: str) -> None:
        assert finalizer in (FOREGROUND, ORPHAN)
        await self._patch(item, {"finalizers": [each for each in item.finalizers if each != finalizer] or None})

    async def _orphan(self, owner: GraphNode, dependents: tuple[GraphNode, ...]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def remove_reference(dependent: GraphNode) -> None:
            rest = tuple(each for each in dependent.owners if each.uid != owner.uid)
            async with gate:
                try:
                    await self._set_owners(dependent, rest)
                except NotFound:
                    pass

        for result in await outcomes(*(remove_reference(each) for each in dependents), name=f"orphan/{owner.name}"):
            if isinstance(result, BaseException):
                raise result
        await self._release(owner, ORPHAN)


def _described(item: GraphNode) -> Obj:
    about = {"name": item.name, "namespace": item.namespace, "uid": item.uid}
    return {"apiVersion": item.type.api_version, "kind": item.type.kind, "metadata": about}
