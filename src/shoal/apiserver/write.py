"""Create and replace: the one path on which every write of an object goes to the store.

    verb: body → prune, canonicalise → ``Write``

    default     absent fields are filled in; the object takes the version it is stored in
    identity    a new object gets name, uid and times; one that replaces another keeps its own
    ownership   which manager owns which fields
    mutate      admission changes the object
    prepare     the kind derives fields; effects add operations to the transaction
    validate    all errors of the object are reported at once
    guard       authorization beyond the verb; warnings
    admit       admission accepts or rejects
    commit      one transaction, with its conditions

``Writer.store`` passes a ``Write`` through these steps (``apiserver.writing``). Patches, apply, subresources and the
server's own housekeeping use the same path as a client's POST and PUT.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from shoal.apiserver.admission.chain import Chain
from shoal.apiserver.admission.model import CREATE, UPDATE
from shoal.apiserver.admission.passes import AdmissionPass, begin_pass
from shoal.apiserver.body import (
    WriteOptions,
    check_place,
    manager_of,
    read_object,
    read_raw,
    report_faults,
    tidy,
    write_options,
)
from shoal.apiserver.context import Call, Core, Guard
from shoal.apiserver.effects import Effects
from shoal.apiserver.http import Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.negotiate import PLAIN, representation
from shoal.apiserver.objects import meta
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.read import represent, represent_object
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shapes
from shoal.apiserver.user import User
from shoal.apiserver.writing.commit import Committer
from shoal.apiserver.writing.content import prepare, validate, warnings
from shoal.apiserver.writing.identity import default, identify, settle
from shoal.apiserver.writing.model import Author, Retry, Write, author_of
from shoal.apiserver.writing.ownership import own
from shoal.errors import Conflict, Invalid, NotFound, invalid
from shoal.kube.objects import Obj
from shoal.store import Entry

ATTEMPTS = 5  # how often a write without a resourceVersion is tried again after a race
_OWN_OBJECT = frozenset({"scale", "binding"})  # admission sees the Scale or Binding, not what it does to the object


class Writer:
    """Creates and replaces objects of every kind."""

    def __init__(
        self,
        core: Core,
        *,
        admission: Chain,
        effects: Mapping[str, Effects],
        guards: Mapping[str, Guard],
        check_create: Callable[[User, ResourcePath], None],
    ) -> None:
        """``effects`` and ``guards`` are by store key; ``check_create`` raises Forbidden where a PUT or an apply would
        create an object that its user may not create."""
        self.core = core
        self.admission = admission
        self.effects = effects
        self.committer = Committer(core, admission)
        self.check_create = check_create
        self.shapes = Shapes()
        self._guards = guards

    # -- verbs -----------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        """POST to a collection."""
        options = write_options(call)
        served = call.served
        obj, faults = read_raw(call, options)
        key = None
        if served.rules.spec_alone is not None:
            key = self.shapes.key(served, obj, self._spec_context(served, call.namespace or ""))
        shape = self.shapes.get(key, obj["spec"]) if key is not None else None
        if shape is not None:
            del obj["spec"]
        found = tidy(obj, served)
        report_faults(call, options, found + faults)
        if shape is not None:
            obj["spec"] = shape.parsed
        check_place(obj, call)
        author = author_of(manager_of(call, options))
        new_shape = key if shape is None and not found else None
        made = await self.store(Write(served, obj, None, call, options, author, shape=shape, new_shape=new_shape))
        return self.answer(call, made, 201)

    async def update(self, call: Call) -> Response:
        """PUT of an object."""
        options = write_options(call, "UpdateOptions")
        body = read_object(call, options)
        metadata = check_place(body, call)
        given = _given_revision(metadata, call.served)
        author = author_of(manager_of(call, options), call.target.subresource)
        for _ in range(ATTEMPTS):
            entry = await self.stored(call)
            if entry is None:
                if call.served.resource.create_on_update and not call.target.subresource:
                    return await self._create_by_update(call, body, options, author)
                raise self.missing(call)
            try:
                result = await self.store(Write(call.served, body, entry, call, options, author, given_revision=given))
            except Retry:
                if given:
                    raise self.conflict(call) from None
                body = read_object(call, options)  # the attempt has filled fields in: start from the client's object
                check_place(body, call)
                continue
            return self.answer(call, result, 200)
        raise self.conflict(call)

    async def _create_by_update(self, call: Call, body: Obj, options: WriteOptions, author: Author) -> Response:
        self.check_create(call.user, call.target)
        metadata = meta(body)
        if metadata.get("uid"):
            raise self.conflict(call, f"StorageError: invalid object, the UID {metadata['uid']} does not exist")
        metadata.pop("resourceVersion", None)
        result = await self.store(Write(call.served, body, None, call, options, author))
        return self.answer(call, result, 201)

    def _spec_context(self, served: Served, namespace: str) -> Hashable | None:
        plan = self.admission.plan(served, CREATE, "")
        if plan is None:
            return ()
        return None if plan.dynamic_mutators else self.admission.spec_context(served.key, namespace)

    async def stored(self, call: Call) -> Entry | None:
        """The stored object of the call, in the call's version."""
        served = call.served
        entry = self.core.store.get(served.key_of(call.namespace, call.name))
        if entry is None or served.converter is None:
            return entry
        return await served.converter.entry(served, entry)

    # -- steps -----------------------------------------------------------------------------------------------------

    async def store(self, write: Write) -> Entry | Obj:
        """Run every step and return the stored entry; or the object itself, on a dry run and when this write completed
        its deletion. Raises ``Retry`` when another write has replaced the entry."""
        core = self.core
        default(write)
        identify(write, core)
        own(write, core.now())
        admission = write.admission = self._admission_of(write)
        if admission is not None and write.shape is None:
            write.new = await admission.mutate(write.new)
            settle(write)
        prepare(write, core, self.effects)
        validate(write)
        if write.call is not None:
            self._guard(write, write.call)
        if admission is not None:
            await admission.validate(write.new)
        if write.new_shape is not None:
            self.shapes.keep(write.new_shape, write.storage, write.new, write.spec)
        return await (self.committer.create(write) if write.old is None else self.committer.replace(write))

    def _admission_of(self, write: Write) -> AdmissionPass | None:
        entry, old = write.entry, write.old
        if entry is None or old is None:
            metadata = write.new["metadata"]
            return begin_pass(
                self.admission, write.call, write.served, CREATE, options=write.options,
                name="" if write.prefix else metadata.get("name", ""), namespace=metadata.get("namespace", ""),
            )  # fmt: skip
        subresource, from_storage = write.author.subresource, write.served.from_storage
        if subresource in _OWN_OBJECT:
            return None
        return begin_pass(
            self.admission, write.call, write.served, UPDATE, subresource=subresource, options=write.options,
            old=old if from_storage is None else from_storage(old), name=entry.key.name, namespace=entry.key.namespace,
        )  # fmt: skip

    def _guard(self, write: Write, call: Call) -> None:
        """Run the guards: checks beyond the verb, such as privilege escalation."""
        guard = self._guards.get(write.storage.key)
        if guard is not None:
            guard(call, write.new, write.old)
        texts = warnings(write)
        if texts:
            call.warnings.extend(texts)

    # -- answers ---------------------------------------------------------------------------------------------------

    def answer(self, call: Call, result: Entry | Obj, status: int) -> Response:
        choice = representation(call.request.headers.get(b"accept"), collection=False)
        if isinstance(result, Entry):
            if choice is PLAIN or choice == PLAIN:
                return DocumentResponse(status, call.served.render(result))
            return represent(self.core, call, result, choice, status)
        result = {"kind": call.served.resource.kind, "apiVersion": call.served.resource.api_version, **result}
        return represent_object(self.core, call, result, choice, status)

    def missing(self, call: Call) -> NotFound:
        return NotFound.of(call.served.resource.plural, call.served.resource.group, call.name)

    def conflict(self, call: Call, why: str = "") -> Conflict:
        return Conflict.of(call.served.resource.plural, call.served.resource.group, call.name, why)


def _given_revision(metadata: Obj, served: Served) -> str:
    given: str = metadata.get("resourceVersion") or ""
    if given == "0":
        given = ""
    if not given and not served.resource.blind_update:
        errors = [invalid("metadata.resourceVersion", 0, "must be specified for an update")]
        raise Invalid.of(served.resource.kind, served.resource.group, metadata.get("name", ""), errors)
    if given and not given.isdigit():
        errors = [invalid("metadata.resourceVersion", given, "must be a number returned by the server")]
        raise Invalid.of(served.resource.kind, served.resource.group, metadata.get("name", ""), errors)
    return given
