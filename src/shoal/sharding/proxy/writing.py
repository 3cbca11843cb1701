"""Forwards writes of owned objects, with their epoch, and refuses writes of other shards' objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import orjson

from shoal.base.logs import get_logger
from shoal.client import Client, PatchType, ResourceType, Scope
from shoal.client.transport import Reply
from shoal.errors import Conflict, MethodNotAllowed, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile.keys import controller_of, key_of
from shoal.sharding.model import epoch_annotation, epoch_of, slot_of, slot_selector
from shoal.sharding.proxy.guarding import carries_version, guarded_body, media_type, read_object, stamped
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.proxy.requests import RequestTarget
from shoal.sharding.worker import Worker

log = get_logger("shard.proxy")

_TRIES = 5  # of a write to which the proxy added the version
_WITHOUT_METADATA = ("status", "scale")


class ProxyWrites:
    """Counts the writes under way per slot, so that a slot is handed over only when there are none."""

    def __init__(self, worker: Worker, reading: Client, kinds: Kinds) -> None:
        self._worker = worker
        self._reading = reading
        self._kinds = kinds
        self._under_way: Counter[int] = Counter()
        self._ended = asyncio.Event()
        self.refused = 0

    async def over(self, slot: int) -> None:
        """Return when no write of the slot is under way."""
        while self._under_way[slot]:
            self._ended.clear()
            await self._ended.wait()

    @asynccontextmanager
    async def _owned(self, slot: int, what: str) -> AsyncIterator[int]:
        """The epoch to write with; ``Conflict`` when another shard owns the slot."""
        epoch = self._worker.epoch_of(slot)
        if epoch is None:
            self.refused += 1
            log.warning("refused a write of another shard's object", slot=slot, object=what, audit=True)
            raise Conflict(f"{what} belongs to another shard")
        self._under_way[slot] += 1
        try:
            yield epoch
        finally:
            self._under_way[slot] -= 1
            self._ended.set()

    async def write(
        self,
        method: str,
        target: RequestTarget,
        kind: ResourceType,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Reply:
        if not target.name:
            if method == "POST":
                return await self._create("POST", kind.path(target.namespace), target, query, headers, body)
            raise MethodNotAllowed("the proxy does not support deletecollection: delete objects one by one")
        theirs = carries_version(method, headers.get("content-type", ""), body)
        tries = 1 if theirs else _TRIES
        while True:
            tries -= 1
            reply = await self._change(method, target, kind, query, headers, body)
            if reply.status not in (409, 422) or not tries or not _by_version(reply):
                return reply

    async def _create(
        self, method: str, path: str, target: RequestTarget, query: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        """A child gets the slot of its owner. Any shard may create objects without a sharded owner."""
        obj = read_object(body)
        reference = controller_of({"metadata": {}, **obj})
        owner_kind = self._kinds.owner(reference)
        if reference is None or owner_kind is None:
            return await self._send(method, path, query, headers, body)
        owner = await self._reading.of(owner_kind).get(
            reference["name"], target.namespace if owner_kind.namespaced else ""
        )
        if owner["metadata"]["uid"] != reference["uid"]:
            raise NotFound(f"the owner {reference['name']} was replaced by another object")
        slot = self._slot(owner)
        async with self._owned(slot, f"{reference['kind']} {key_of(owner)}") as epoch:
            await self._claim(owner, owner_kind, slot, epoch)
            made = stamped(obj, self._worker.config, slot, epoch)
            return await self._send(method, path, query, headers, orjson.dumps(made))

    async def _change(
        self,
        method: str,
        target: RequestTarget,
        kind: ResourceType,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Reply:
        path = kind.path(target.namespace, target.name, target.subresource)
        try:
            current = await self._reading.of(kind).get(target.name, target.namespace)
        except NotFound:
            applies = method == "PATCH" and media_type(headers.get("content-type", "")) == PatchType.APPLY
            if not applies or target.subresource:
                raise
            # apply cannot require absence; the fence and the policy of epochs refuse late writes
            return await self._create(method, path, target, query, headers, body)
        slot = slot_of(current, self._worker.config)
        if slot is None and self._kinds.owner(controller_of(current)) is None and not self._kinds.is_target(kind):
            return await self._send(method, path, query, headers, body)  # not sharded
        slot = self._slot(current)
        async with self._owned(slot, f"{kind.kind} {key_of(current)}") as epoch:
            current = await self._claim_with_owner(current, kind, slot, epoch)
            stamp = target.subresource not in _WITHOUT_METADATA
            sent = guarded_body(
                method, headers.get("content-type", ""), body, current,
                config=self._worker.config, slot=slot, epoch=epoch, stamp=stamp,
            )  # fmt: skip
            return await self._send(method, path, query, headers, sent)

    def _slot(self, obj: Obj) -> int:
        slot = slot_of(obj, self._worker.config)
        if slot is None:
            raise Conflict(f"{key_of(obj)} has no slot yet; try again")
        return slot

    async def _claim_with_owner(self, obj: Obj, kind: ResourceType, slot: int, epoch: int) -> Obj:
        """Claim an object and, before its first write in an epoch, its owner: late writes to both are refused."""
        reference = controller_of(obj)
        owner_kind = self._kinds.owner(reference)
        if reference is None or owner_kind is None or epoch_of(obj, self._worker.config) >= epoch:
            return await self._claim(obj, kind, slot, epoch)
        place = obj["metadata"].get("namespace", "")
        try:
            owner = await self._reading.of(owner_kind).get(reference["name"], place if owner_kind.namespaced else "")
        except NotFound:
            return await self._claim(obj, kind, slot, epoch)  # only the child is left
        if owner["metadata"]["uid"] == reference["uid"]:
            await self._claim(owner, owner_kind, slot, epoch)
            obj = await self._reading.of(kind).get(obj["metadata"]["name"], place)
        return await self._claim(obj, kind, slot, epoch)

    async def _claim(self, obj: Obj, kind: ResourceType, slot: int, epoch: int) -> Obj:
        """Write the epoch to an object that does not have it yet, and before that to its children."""
        config = self._worker.config
        known = epoch_of(obj, config)
        if known > epoch:
            raise Conflict(f"{key_of(obj)} has an owner of a later epoch")
        if known == epoch:
            return obj
        uid = obj["metadata"]["uid"]
        for child_kind in self._kinds.controlled(kind):
            scope = Scope(namespace=obj["metadata"].get("namespace", ""), label_selector=slot_selector(config, [slot]))
            for child in (await self._reading.of(child_kind).list(scope)).items:
                if (controller_of(child) or {}).get("uid") == uid and epoch_of(child, config) < epoch:
                    await self._stamp(child, child_kind, epoch)
        return await self._stamp(obj, kind, epoch)

    async def _stamp(self, obj: Obj, kind: ResourceType, epoch: int) -> Obj:
        about = obj["metadata"]
        patch = {
            "metadata": {
                "resourceVersion": about["resourceVersion"],
                "annotations": {epoch_annotation(self._worker.config): str(epoch)},
            }
        }
        return await self._worker.client.of(kind).patch(about["name"], patch, about.get("namespace", ""))

    async def _send(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Reply:
        return await self._worker.client.send(
            method, f"{path}?{query}" if query else path, body=body or None,
            content_type=headers.get("content-type") or "application/json",
            headers={"accept": headers.get("accept", "application/json")}, retry=False,
        )  # fmt: skip


def _by_version(reply: Reply) -> bool:
    """Whether a write was refused because the object changed meanwhile. A JSON patch says that its test failed."""
    return reply.status == 409 or b"resourceVersion" in reply.body or b"test" in reply.body
