"""Deletion: at once, gracefully, or when the last finalizer is gone; one object or a collection."""

from __future__ import annotations

from datetime import timedelta

import orjson

from shoal.apiserver import objects
from shoal.apiserver.admission.model import DELETE
from shoal.apiserver.admission.passes import begin_pass
from shoal.apiserver.body import DeleteOptions, delete_options, options_object
from shoal.apiserver.context import Call, Core
from shoal.apiserver.effects import NO_EFFECTS
from shoal.apiserver.http import Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.read import list_body
from shoal.apiserver.selection import select
from shoal.apiserver.write import ATTEMPTS, Writer
from shoal.apiserver.writing.commit import finished_deletion, put, unchanged
from shoal.errors import Conflict, Forbidden
from shoal.kube.objects import Obj
from shoal.store import Delete, Entry, Op, RequirementFailed, StorePage

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
MAX_GRACE_S = 100 * 365 * 86_400  # longer periods are stored unchanged, but the deletion timestamp stays a valid date


class Deleter:
    """Removes objects."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.core: Core = writer.core

    async def delete(self, call: Call) -> Response:
        options = delete_options(call)
        served = call.served
        entry, gone = await self.delete_object(call, call.name, options)
        if served.resource.returns_deleted or not gone:
            if served.converter is not None:
                entry = await served.converter.entry(served, entry)
            return DocumentResponse(200, served.render(entry))
        return DocumentResponse(200, self._success(call, entry))

    async def delete_object(
        self, call: Call, name: str, options: DeleteOptions, namespace: str | None = None
    ) -> tuple[Entry, bool]:
        """Delete or begin to delete one object; return its current (or last) entry and whether it was removed."""
        core, served = self.core, call.served
        key = served.key_of(namespace if namespace is not None else call.namespace, name)
        for _ in range(ATTEMPTS):
            entry = core.store.get(key)
            if entry is None:
                raise self.writer.missing(call) if call.name else _gone(call, name)
            obj = objects.decode(entry)
            self.check_preconditions(call, obj, entry, options)
            self._check_allowed(call, obj)
            await self._admit(call, entry, options)
            gone = self._mark(obj, served.key, options)
            if not gone and obj == objects.decode(entry):
                return entry, False  # nothing more to do: already being deleted at least this soon
            if options.dry_run:
                return entry, gone
            storage = core.registry.stored(served.key) or served
            effects = self.writer.effects.get(storage.key, NO_EFFECTS)
            if gone:
                extra = effects.on_delete(obj)
                op: Op = Delete(key)
            else:
                extra = effects.on_update(obj, objects.decode(entry))
                if storage.converter is None:
                    op = put(storage, obj, key)
                else:
                    op = await self.writer.committer.converted(storage, obj, key)
            try:
                entries = await core.store.commit([op, *extra.ops], unchanged(entry, extra, call))
            except RequirementFailed as failed:
                lost = await self.writer.committer.lost(failed)
                if isinstance(lost, Conflict):
                    raise lost from None
                continue
            return entries[0], gone
        raise Conflict.of(served.resource.plural, served.resource.group, name)

    async def _admit(self, call: Call, entry: Entry, options: DeleteOptions) -> None:
        served, key = call.served, entry.key
        chain = self.writer.admission
        if chain.plan(served, DELETE, "") is None:
            return
        if served.converter is not None:
            entry = await served.converter.entry(served, entry)
        admission = begin_pass(
            chain, call, served, DELETE, old=served.decode(entry), options=options_object(options),
            name=key.name, namespace=key.namespace,
        )  # fmt: skip
        if admission is not None:
            await admission.agree()

    def check_preconditions(self, call: Call, obj: Obj, entry: Entry, options: DeleteOptions) -> None:
        resource, uid = call.served.resource, obj["metadata"]["uid"]
        if options.uid and options.uid != uid:
            raise Conflict.of(
                resource.plural, resource.group, entry.key.name,
                f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {uid}",
            )  # fmt: skip
        if options.revision and options.revision != str(entry.revision):
            raise Conflict.of(
                resource.plural, resource.group, entry.key.name,
                f"Precondition failed: ResourceVersion in precondition: {options.revision}, "
                f"ResourceVersion in object meta: {entry.revision}",
            )  # fmt: skip

    def _check_allowed(self, call: Call, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        if call.served.key == "namespaces" and name in PROTECTED_NAMESPACES:
            raise Forbidden(
                f'namespaces "{name}" is forbidden: this namespace may not be deleted',
                details={"name": name, "kind": "namespaces"},
            )

    def _mark(self, obj: Obj, key: str, options: DeleteOptions) -> bool:
        """Turn ``obj`` into its state after the request; True when it can be removed at once."""
        metadata = obj["metadata"]
        self._set_propagation(metadata, options, key)
        grace = self._grace_s(obj, key, options)
        if metadata.get("deletionTimestamp"):
            self._shorten(metadata, grace, options)
        else:
            if grace == 0 and not metadata.get("finalizers") and key != "namespaces":
                return True
            metadata["deletionTimestamp"] = self._at(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
            if key == "namespaces":
                obj.setdefault("status", {})["phase"] = "Terminating"
        return finished_deletion(obj)

    def _set_propagation(self, metadata: Obj, options: DeleteOptions, key: str) -> None:
        finalizers = list(metadata.get("finalizers") or ())
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.propagation, "")
        if options.orphan is True:
            wanted = ORPHAN
        if not options.propagation and options.orphan is None:
            if ORPHAN in finalizers or FOREGROUND in finalizers:
                return  # an earlier request decided
            if key == "replicationcontrollers":
                wanted = ORPHAN  # the one kind whose dependents stay by default
        changed = [f for f in finalizers if f not in (ORPHAN, FOREGROUND)]
        if wanted:
            changed.append(wanted)
        if changed != finalizers:
            if changed:
                metadata["finalizers"] = changed
            else:
                metadata.pop("finalizers", None)

    def _grace_s(self, obj: Obj, key: str, options: DeleteOptions) -> int:
        """The grace period: only for pods that may be running on a node."""
        if key != "pods":
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        grace = options.grace_s
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds")
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            grace = 0
        return 0 if grace is None else grace

    def _shorten(self, metadata: Obj, grace: int, options: DeleteOptions) -> None:
        """A second delete may only shorten the grace period."""
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if options.grace_s is None or grace >= before:
            if grace == 0 and before:
                metadata["deletionGracePeriodSeconds"] = 0
            return
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["deletionTimestamp"] = self._at(grace)

    def _at(self, grace: int) -> str:
        if not grace:
            return self.core.now()
        return (self.core.clock.now() + timedelta(seconds=min(grace, MAX_GRACE_S))).strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _success(call: Call, entry: Entry) -> bytes:
        resource = call.served.resource
        details = {"name": entry.key.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = objects.decode(entry)["metadata"]["uid"]
        return orjson.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {name: value for name, value in details.items() if value},
            }
        )

    async def delete_collection(self, call: Call) -> Response:
        """DELETE of a collection: delete the matching objects one by one; return the list of deleted ones."""
        options = delete_options(call)
        selection = select(call)
        await self.core.store.fresh()
        page = self.core.store.range(call.served.key, selection.namespace, where=selection.where, index=selection.index)
        deleted: list[Entry] = []
        for entry in page.entries:
            try:
                after, _ = await self.delete_object(call, entry.key.name, options, namespace=entry.key.namespace)
            except _Gone:
                continue
            deleted.append(after)
        if call.served.converter is not None:
            deleted = list(await call.served.converter.entries(call.served, deleted))
        done = StorePage(deleted, self.core.store.revision, False, 0)
        return Response(200, list_body(call, done, "", None))


class _Gone(Exception):
    """Another request deleted an object of the collection first."""


def _gone(call: Call, name: str) -> _Gone:
    return _Gone(name)
