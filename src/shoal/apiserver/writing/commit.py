"""The step *commit*: the store operations of a write, with its conditions and effects.

A creation that loses a race for a generated name or an address is tried again here. A replacement raises ``Retry``,
because another write has changed the object.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from shoal.apiserver import objects
from shoal.apiserver.admission.chain import Chain
from shoal.apiserver.admission.passes import AdmissionPass
from shoal.apiserver.context import Call, Core
from shoal.apiserver.creation import check_dry_run, create_requires, explain, not_generated
from shoal.apiserver.effects import Extra
from shoal.apiserver.fencing import deposed, fences
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape
from shoal.apiserver.writing.identity import generated_name, give_identity
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.apiserver.writing.ownership import own_all
from shoal.errors import Conflict, TooLarge
from shoal.kube.objects import Obj
from shoal.kube.ownership import managed
from shoal.store import At, Delete, Entry, Key, Op, Put, Require, RequirementFailed

MAX_OBJECT_BYTES = 3 * 1024 * 1024  # as stored, which is JSON; patches can make more of it than a request's body
NAME_ATTEMPTS = 8
CHARGE_ATTEMPTS = 50  # other servers may charge the same quota


class Committer:
    """Commits writes that have passed every other step."""

    def __init__(self, core: Core, admission: Chain) -> None:
        self._core = core
        self._admission = admission

    async def create(self, write: Write) -> Entry | Obj:
        """Return the new entry, or on a dry run the resulting object."""
        store, storage, admission, effects = self._core.store, write.storage, write.admission, write.effects
        fenced = () if write.call is None else fences(write.call.request)
        charged = admission is not None and admission.charges(write.new)
        for attempt in range(CHARGE_ATTEMPTS if charged else NAME_ATTEMPTS):
            if attempt and write.restored:
                write.new = orjson.loads(write.restored) | {"metadata": write.new["metadata"]}
            obj, extra = write.new, write.extra
            if attempt or not effects.before_validation:
                extra = effects.on_create(obj)
            if write.options.dry_run:
                check_dry_run(store, storage, obj)
                self._check_size(write, len(orjson.dumps(obj)))
                if charged and admission is not None:
                    admission.charge(obj)
                return write.shown()
            metadata = obj["metadata"]
            key = storage.key_of(metadata.get("namespace"), metadata["name"])
            op = (
                put(storage, obj, key, write.shape)
                if storage.converter is None
                else await self.converted(storage, obj, key)
            )
            if len(op.value) > MAX_OBJECT_BYTES:
                self._check_size(write, len(op.value))
            ops, requires = [op, *extra.ops], [*create_requires(storage, key), *extra.requires, *fenced]
            try:
                if charged and admission is not None:
                    entries = await self._commit_charged(admission, obj, ops, requires)
                else:
                    entries = await store.commit(ops, requires)
            except RequirementFailed as failed:
                explain(failed, storage, obj, write.prefix)
                await store.fresh()  # the conflicting write may not have reached this server's memory yet
            else:
                return entries[0] if storage.converter is None else await storage.converter.entry(storage, entries[0])
            if write.prefix:
                metadata["name"] = generated_name(write.prefix, self._core.ids)
        raise not_generated(write.served, write.prefix or write.new["metadata"]["name"])

    async def replace(self, write: Write) -> Entry | Obj:
        """Return the stored entry: the old one when nothing has changed. Return the object instead when this write
        completed its deletion (its last state) and on a dry run (the result)."""
        new, old, entry, storage, admission = write.new, write.old, write.entry, write.storage, write.admission
        assert old is not None and entry is not None
        if new == old:
            return entry
        managed.keep_times_of_no_change(old, new)
        if new == old:
            return entry
        gone = finished_deletion(new)
        extra = write.effects.on_delete(old) if gone else write.effects.on_update(new, old)
        charged = admission is not None and not gone and admission.charges(new)
        if write.options.dry_run:
            if charged and admission is not None:
                admission.charge(new)
            if not gone:
                self._check_size(write, len(orjson.dumps(new)))
            return write.shown()
        op: Op
        if gone:
            op = Delete(entry.key)
        else:
            op = (
                put(storage, new, entry.key)
                if storage.converter is None
                else await self.converted(storage, new, entry.key)
            )
            if len(op.value) > MAX_OBJECT_BYTES:
                self._check_size(write, len(op.value))
        ops, requires = [op, *extra.ops], unchanged(entry, extra, write.call)
        try:
            if charged and admission is not None:
                entries = await self._commit_charged(admission, new, ops, requires)
            else:
                entries = await self._core.store.commit(ops, requires)
        except RequirementFailed as failed:
            raise await self.lost(failed) from None
        if gone:
            new["metadata"]["resourceVersion"] = str(entries[0].revision)
            return write.shown()
        return entries[0] if storage.converter is None else await storage.converter.entry(storage, entries[0])

    def _check_size(self, write: Write, size: int) -> None:
        """Refuse an object over the limit, unless it was larger: one that is too large must be able to shrink."""
        before = None if write.entry is None else self._core.store.get(write.entry.key)  # not converted, as ``size``
        if size <= MAX_OBJECT_BYTES or before is not None and size <= len(before.value) - len(str(before.revision)):
            return
        resource, name = write.storage.resource, write.new["metadata"]["name"]
        raise TooLarge.of(resource.plural, resource.group, name, size, MAX_OBJECT_BYTES)

    async def _commit_charged(
        self, admission: AdmissionPass, obj: Obj, ops: Sequence[Op], requires: Sequence[Require]
    ) -> Sequence[Entry]:
        """Commit with the charges to the namespace's quotas; one at a time, since all change the same quota."""
        async with self._admission.lock(admission.admission.namespace):
            charge = admission.charge(obj)
            return await self._core.store.commit([*ops, *charge.ops], [*requires, *charge.requires])

    async def converted(self, served: Served, obj: Obj, key: Key) -> Put:
        """As ``put``, for a kind whose versions a webhook converts: it is stored in the storage version only."""
        assert served.converter is not None
        storage = self._core.registry.stored(served.key) or served
        return put(storage, await served.converter.to_store(storage, obj), key)

    async def lost(self, failed: RequirementFailed) -> Conflict | Retry:
        """The error when the entry to replace is not current, or the writer's fence does not hold."""
        await self._core.store.fresh()  # the conflicting write may not have reached this server's memory yet
        return deposed(failed) or Retry()


def unchanged(entry: Entry, extra: Extra, call: Call | None) -> list[Require]:
    """The conditions for replacing or removing an entry."""
    return [At(entry.key, entry.revision), *extra.requires, *(() if call is None else fences(call.request))]


def put(storage: Served, obj: Obj, key: Key, shape: Shape | None = None) -> Put:
    """The operation that stores an object of the storage version."""
    attrs = storage.attrs(obj, key)
    if shape is not None:
        obj = {**obj, "spec": shape.spec}  # encoded already
    value, hole = objects.encode(obj, storage.resource.kind, storage.resource.api_version)
    return Put(key, value, hole, attrs)


def own_put(core: Core, resource: str, obj: Obj, author: Author) -> Put:
    """The operation that creates an object of the server itself, for the transaction of another object."""
    storage = core.registry.stored(resource)
    assert storage is not None, resource
    storage.default(obj)
    give_identity(core, storage, obj)
    own_all(storage, obj, author, storage.resource.api_version, core.now())
    storage.rules.prepare_create(obj)
    return put(storage, obj, storage.key_of(obj["metadata"].get("namespace"), obj["metadata"]["name"]))


def finished_deletion(obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
