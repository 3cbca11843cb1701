"""Create and replace: the one path on which every write of an object goes to the store.

    body → prune, canonicalise → defaults → who owns which field → admission changes it → what the kind prepares →
    valid? → admission agrees? → commit

``create_object`` and ``replace_object`` take decoded objects, so that patches, apply, subresources and the server's
own housekeeping use the same path as a client's POST and PUT.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import orjson

from shoal.apiserver import objects
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
from shoal.apiserver.context import Call, Core, User
from shoal.apiserver.creation import check_dry_run, create_requires, explain, not_generated
from shoal.apiserver.effects import NOTHING, Effects, Extra, NoEffects
from shoal.apiserver.fencing import deposed, fences
from shoal.apiserver.http import Response
from shoal.apiserver.negotiate import PLAIN, representation
from shoal.apiserver.objects import meta
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.read import represent, represent_object
from shoal.apiserver.registry import Served
from shoal.apiserver.shapes import Shape, ShapeKey, Shapes
from shoal.apiserver.writing.identity import (
    drop_duplicate_owners,
    drop_early_status,
    drop_empty,
    generated_name,
    give_identity,
)
from shoal.apiserver.writing.model import Author, Retry
from shoal.apiserver.writing.operations import put
from shoal.apiserver.writing.ownership import own_all
from shoal.errors import (
    BadRequest,
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    invalid,
)
from shoal.kube.kinds.access import signing
from shoal.kube.kinds.checks import validate_metadata, validate_metadata_update
from shoal.kube.objects import Obj
from shoal.kube.ownership import managed
from shoal.kube.resources import Resource
from shoal.store import At, Delete, Entry, Key, Op, Put, Require, RequirementFailed

ATTEMPTS = 5  # how often a write without a resourceVersion is tried again after a race
NAME_ATTEMPTS = 8
CHARGE_ATTEMPTS = 50  # other servers may be charging the same quota
_IDENTITY = frozenset({"kind", "apiVersion", "metadata"})
_NO_EFFECTS = NoEffects()
_SIGNING = "certificatesigningrequests.certificates.k8s.io"
_OWN_OBJECT = frozenset({"scale", "binding"})  # admission sees the Scale or Binding, not what it does to the object
_SLICES = frozenset({"ephemeralcontainers", "resize"})  # parts of a pod's spec, and nothing else
_API_GROUPS = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})


Guard = Callable[[Call, Obj, Obj | None], None]  # (call, new, old): raises when this user may not write this


class Writer:
    """Creates, replaces and removes objects of every kind."""

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
        self.guards = guards
        self.check_create = check_create
        self.shapes = Shapes()

    # -- verbs -----------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        """POST to a collection."""
        options = write_options(call)
        served = call.served
        obj, faults = read_raw(call, options)
        key = self.shapes.key(served, obj, self._spec_context(served, call.namespace or ""))
        shape = self.shapes.get(key, obj["spec"]) if key is not None else None
        if shape is not None:
            del obj["spec"]
        found = tidy(obj, served)
        report_faults(call, options, found + faults)
        if shape is not None:
            obj["spec"] = shape.parsed
        check_place(obj, call)
        author = Author(manager_of(call, options))
        new_shape = key if shape is None and not found else None
        made = await self.create_object(served, obj, call, options, author, shape=shape, new_shape=new_shape)
        return self.answer(call, made, 201)

    async def update(self, call: Call) -> Response:
        """PUT of an object."""
        options = write_options(call, "UpdateOptions")
        body = read_object(call, options)
        metadata = check_place(body, call)
        given = _given_revision(metadata, call.served)
        text = orjson.dumps(body)
        author = Author(manager_of(call, options), call.target.subresource)
        for _ in range(ATTEMPTS):
            entry = await self.stored(call)
            if entry is None:
                if call.served.resource.create_on_update and not call.target.subresource:
                    return await self._create_by_update(call, body, options, author)
                raise self.missing(call)
            try:
                result = await self.replace_object(
                    call.served, body, entry, call, options, author, given_revision=given
                )
            except Retry:
                if given:
                    raise self.conflict(call) from None
                body = orjson.loads(text)  # the attempt has filled fields in: start from what the client sent
                continue
            return self.answer(call, result, 200)
        raise self.conflict(call)

    async def _create_by_update(self, call: Call, body: Obj, options: WriteOptions, author: Author) -> Response:
        self.check_create(call.user, call.target)
        metadata = meta(body)
        if metadata.get("uid"):
            raise self.conflict(call, f"StorageError: invalid object, the UID {metadata['uid']} does not exist")
        metadata.pop("resourceVersion", None)
        result = await self.create_object(call.served, body, call, options, author)
        return self.answer(call, result, 201)

    def _spec_context(self, served: Served, namespace: str) -> Hashable | None:
        plan = self.admission.plan(served, CREATE, "")
        if plan is None:
            return ()
        return None if plan.dynamic_mutators else self.admission.spec_context(served.key, namespace)

    async def stored(self, call: Call) -> Entry | None:
        """What is stored of the call's object, in the call's version."""
        served = call.served
        entry = self.core.store.get(served.key_of(call.namespace, call.name))
        if entry is None or served.converter is None:
            return entry
        return await served.converter.entry(served, entry)

    # -- create ----------------------------------------------------------------------------------------------------

    async def create_object(
        self, served: Served, obj: Obj, call: Call | None, options: WriteOptions, author: Author,
        *, managed_already: bool = False, trusted: bool = False, shape: Shape | None = None,
        new_shape: ShapeKey | None = None,
    ) -> Entry | Obj:  # fmt: skip
        """Store a new object; the entry, or on a dry run the object as it would be. ``trusted`` objects are the
        server's own: they may say what clients may not (an endpoint on the loopback address). ``shape`` is what is
        known of the spec already, ``new_shape`` under what to remember it otherwise."""
        resource = served.resource
        if meta(obj).get("resourceVersion") not in (None, "", "0"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        if shape is None:
            served.rules.default(obj)
        storage = served
        if served.to_storage is not None:
            obj, storage = served.to_storage(obj), served.storage
        generate = give_identity(self.core, storage, obj, shape)
        drop_duplicate_owners(obj["metadata"], call)
        if not managed_already:
            own_all(storage, obj, author, resource.api_version, self.core.now(), shape)
        admission = begin_pass(
            self.admission, call, served, CREATE, options=options,
            name="" if generate else obj["metadata"].get("name", ""), namespace=obj["metadata"].get("namespace", ""),
        )  # fmt: skip
        if admission is not None and shape is None:
            obj = await admission.mutate(obj)
            drop_early_status(resource, obj)
        spec = orjson.dumps(obj["spec"]) if new_shape is not None else b""
        storage.rules.prepare_create(obj)
        if resource.status and not resource.custom:
            obj.setdefault("status", {})  # always there in built-in kinds: patches add to it
        if "spec" not in obj:
            _add_spec(storage, obj)
        if storage.key == _SIGNING and call is not None:
            user = call.user
            signing.stamp_requester(obj, username=user.name, uid=user.uid, groups=user.groups, extra=dict(user.extra))
        effects = self.effects.get(storage.key, _NO_EFFECTS)
        untouched = b"" if effects is _NO_EFFECTS else orjson.dumps(obj)
        extra = effects.on_create(obj) if effects.before_validation else NOTHING
        if not trusted:
            self._validate_create(storage, obj, shape)
        self._guard(storage, call, obj, None)
        self._add_warnings(storage, obj, call, shape)
        if admission is not None:
            await admission.validate(obj)
        if new_shape is not None:
            self.shapes.keep(new_shape, storage, obj, spec)
        fenced = () if call is None else fences(call.request)
        charged = admission is not None and admission.charges(obj)
        for attempt in range(CHARGE_ATTEMPTS if charged else NAME_ATTEMPTS):
            if attempt and untouched:
                obj = orjson.loads(untouched) | {"metadata": obj["metadata"]}
            if attempt or not effects.before_validation:
                extra = effects.on_create(obj)
            if options.dry_run:
                check_dry_run(self.core.store, storage, obj)
                if charged and admission is not None:
                    admission.charge(obj)
                return obj if served.from_storage is None else served.from_storage(obj)
            try:
                return await self._commit_new(storage, obj, extra, fenced, shape, admission if charged else None)
            except RequirementFailed as failed:
                explain(failed, storage, obj, generate)
                await self.core.store.fresh()  # what has failed it may not be known here yet
            if generate:
                obj["metadata"]["name"] = generated_name(generate, self.core.ids)
        raise not_generated(served, generate or obj["metadata"]["name"])

    def _guard(self, storage: Served, call: Call | None, new: Obj, old: Obj | None) -> None:
        """Ask who may write what, beyond the verb: nobody hands out rights that they do not have."""
        if call is not None:
            guard = self.guards.get(storage.key)
            if guard is not None:
                guard(call, new, old)

    async def _commit_new(
        self, storage: Served, obj: Obj, extra: Extra, fenced: tuple[Require, ...], shape: Shape | None,
        charged: AdmissionPass | None,
    ) -> Entry:  # fmt: skip
        metadata = obj["metadata"]
        key = storage.key_of(metadata.get("namespace"), metadata["name"])
        requires = [*create_requires(storage, key), *extra.requires, *fenced]
        if storage.converter is None:
            op = put(storage, obj, key, shape)
        else:
            op = await self.put_converted(storage, obj, key)
        if charged is None:
            entry = (await self.core.store.commit([op, *extra.ops], requires))[0]
        else:
            entry = (await self._commit_charged(charged, obj, [op, *extra.ops], requires))[0]
        return entry if storage.converter is None else await storage.converter.entry(storage, entry)

    async def _commit_charged(
        self, admission: AdmissionPass, obj: Obj, ops: Sequence[Op], requires: Sequence[Require]
    ) -> Sequence[Entry]:
        """Commit together with what the quotas of the namespace say; one at a time, since all change the same quota."""
        async with self.admission.turn(admission.admission.namespace):
            charge = admission.charge(obj)
            return await self.core.store.commit([*ops, *charge.ops], [*requires, *charge.requires])

    def _validate_create(self, storage: Served, obj: Obj, shape: Shape | None = None) -> None:
        resource, rules = storage.resource, storage.rules
        errors = validate_metadata(
            obj, namespaced=resource.namespaced, name_errors=rules.name_errors,
            qualified_finalizers=_qualified_finalizers(resource),
        )  # fmt: skip
        known = rules.spec_alone if shape is not None else None
        errors = errors + (rules.validate_create(obj) if known is None else known.validate_rest(obj))
        if errors:
            raise_invalid(storage, obj, errors)

    # -- replace ---------------------------------------------------------------------------------------------------

    async def replace_object(
        self, served: Served, new: Obj, entry: Entry, call: Call | None, options: WriteOptions, author: Author,
        *, given_revision: str = "", managed_already: bool = False,
    ) -> Entry | Obj:  # fmt: skip
        """Store ``new`` in place of ``entry``. Nothing is written when nothing changes; the object is removed when
        this was the last thing its deletion waited for. Raises Retry when ``entry`` is no longer current."""
        core, resource = self.core, served.resource
        old = objects.decode(entry)
        storage = served
        bound = author.subresource == "binding"  # as stored but for a name: has its defaults, was warned of
        if not bound:
            served.rules.default(new)
        if served.to_storage is not None:
            new, storage = served.to_storage(new), served.storage
        elif served.crd is not None:
            old = served.present(old, entry)  # stored as the version it is written in: reads bring it up to theirs
        self._check_preconditions(served, new, old, given_revision, entry)
        self._carry_over(storage, new, old, author.subresource)
        metadata = new["metadata"]
        if not managed_already:
            managed.update_managers(
                old, new, storage.type, manager=author.manager, api_version=resource.api_version,
                subresource=author.subresource, now=core.now(),
            )  # fmt: skip
        admission = None
        if author.subresource not in _OWN_OBJECT:
            shown = old if served.from_storage is None else served.from_storage(old)
            admission = begin_pass(
                self.admission, call, served, UPDATE, subresource=author.subresource, old=shown, options=options,
                name=entry.key.name, namespace=entry.key.namespace,
            )  # fmt: skip
            if admission is not None:
                new = await admission.mutate(new)
                if admission.plan.dynamic_mutators:
                    self._carry_over(storage, new, old, author.subresource)
                metadata = new["metadata"]
        self._prepare_update(storage, new, old, author.subresource)
        if "spec" not in new:
            _add_spec(storage, new)
        if resource.generation and author.subresource not in ("status", "binding"):
            _count_generation(new, old, resource.status)
        self._validate_update(storage, new, old, author.subresource)
        self._guard(storage, call, new, old)
        if not bound:
            self._add_warnings(storage, new, call)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if admission is not None:
            await admission.validate(new)
        if new == old:
            return entry
        managed.keep_times_of_no_change(old, new)
        if new == old:
            return entry
        effects = self.effects.get(storage.key, _NO_EFFECTS)
        gone = finished_deletion(new)
        extra = effects.on_delete(old) if gone else effects.on_update(new, old)
        if options.dry_run:
            if admission is not None and admission.charges(new):
                admission.charge(new)
            return new if served.from_storage is None else served.from_storage(new)
        fenced = () if call is None else fences(call.request)
        op: Op
        if gone:
            op = Delete(entry.key)
        elif storage.converter is None:
            op = put(storage, new, entry.key)
        else:
            op = await self.put_converted(storage, new, entry.key)
        requires = [At(entry.key, entry.revision), *extra.requires, *fenced]
        try:
            if admission is not None and not gone and admission.charges(new):
                entries = await self._commit_charged(admission, new, [op, *extra.ops], requires)
            else:
                entries = await core.store.commit([op, *extra.ops], requires)
        except RequirementFailed as failed:
            await core.store.fresh()  # what has failed it may not be known here yet
            raise deposed(failed) or Retry from None
        if gone:
            new["metadata"]["resourceVersion"] = str(entries[0].revision)
            return new if served.from_storage is None else served.from_storage(new)
        return entries[0] if storage.converter is None else await storage.converter.entry(storage, entries[0])

    def _check_preconditions(self, served: Served, new: Obj, old: Obj, given: str, entry: Entry) -> None:
        metadata, resource = meta(new), served.resource
        uid = metadata.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise Conflict.of(
                resource.plural, resource.group, entry.key.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}",
            )  # fmt: skip
        if given and given != str(entry.revision):
            raise Conflict.of(resource.plural, resource.group, entry.key.name)

    def _carry_over(self, storage: Served, new: Obj, old: Obj, subresource: str) -> None:
        """What a writer of this path may not change comes from the stored object."""
        resource = storage.resource
        metadata, before = meta(new), old["metadata"]
        if subresource == "status" and resource.custom:
            metadata = new["metadata"] = {**before, "managedFields": metadata.get("managedFields") or []}
        for name in (
            "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
            "generation", "generateName", "selfLink",
        ):  # fmt: skip
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        metadata["resourceVersion"] = before["resourceVersion"]
        if subresource == "status":
            for name in ("ownerReferences", "finalizers"):
                _keep(metadata, before, name)
            for name in [n for n in new if n not in _IDENTITY and n != "status"]:
                if name not in old:
                    del new[name]
            for name in old:
                if name not in _IDENTITY and name != "status":
                    new[name] = old[name]
        elif resource.status and subresource in ("", "scale", "ephemeralcontainers", "resize", "finalize"):
            _keep(new, old, "status")
            if subresource in _SLICES:
                for name in ("labels", "annotations", "ownerReferences", "finalizers"):
                    _keep(metadata, before, name)
        drop_empty(metadata)

    def _prepare_update(self, storage: Served, new: Obj, old: Obj, subresource: str) -> None:
        prepare = storage.rules.subresource_prepare.get(subresource)
        if prepare is not None:
            prepare(new, old)
        elif subresource == "status":
            storage.rules.prepare_status(new, old)
        elif not subresource or subresource == "scale":
            storage.rules.prepare_update(new, old)
        if storage.key == _SIGNING and subresource:
            signing.stamp_conditions(new, old, self.core.now())

    def _validate_update(self, storage: Served, new: Obj, old: Obj, subresource: str) -> None:
        rules = storage.rules
        errors = validate_metadata_update(new, old, qualified_finalizers=_qualified_finalizers(storage.resource))
        if subresource == "status":
            errors = errors + rules.validate_status(new, old)
        elif subresource == "binding":
            pass  # sets what nobody else may; the node's name was checked when the binding was read
        elif subresource in rules.subresource_validation:
            errors = errors + rules.subresource_validation[subresource](new, old)
        else:
            errors = errors + rules.validate_update(new, old)
        if errors:
            raise_invalid(storage, new, errors)

    # -- shared ----------------------------------------------------------------------------------------------------

    async def put_converted(self, served: Served, obj: Obj, key: Key) -> Put:
        """The same for a kind whose versions a webhook converts: stored in the storage version only."""
        assert served.converter is not None
        storage = self.core.registry.stored(served.key) or served
        return put(storage, await served.converter.to_store(storage, obj), key)

    def _add_warnings(self, storage: Served, obj: Obj, call: Call | None, shape: Shape | None = None) -> None:
        if call is not None:
            alone = storage.rules.spec_alone
            if shape is not None and alone is not None:
                texts = [*alone.warnings_rest(obj), *shape.warnings]
            else:
                texts = storage.rules.warnings(obj)
            if texts:
                call.warnings.extend(texts)

    def answer(self, call: Call, result: Entry | Obj, status: int) -> Response:
        choice = representation(call.request.headers.get(b"accept"), collection=False)
        if isinstance(result, Entry):
            if choice is PLAIN or choice == PLAIN:
                return Response(status, call.served.render(result))
            return represent(self.core, call, result, choice, status)
        result = {"kind": call.served.resource.kind, "apiVersion": call.served.resource.api_version, **result}
        return represent_object(self.core, call, result, choice, status)

    def missing(self, call: Call) -> NotFound:
        return NotFound.of(call.served.resource.plural, call.served.resource.group, call.name)

    def conflict(self, call: Call, why: str = "") -> Conflict:
        return Conflict.of(call.served.resource.plural, call.served.resource.group, call.name, why)


def _qualified_finalizers(resource: Resource) -> bool:
    """Whether finalizers must have a domain: not those of custom objects, nor of the kinds that define APIs."""
    return not resource.custom and resource.group not in _API_GROUPS


def raise_invalid(storage: Served, obj: Obj, errors: list[FieldError]) -> None:
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
    raise Invalid.of(storage.resource.kind, storage.resource.group, name, errors)


def finished_deletion(obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    return not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))


def _add_spec(storage: Served, obj: Obj) -> None:
    """Built-in kinds that have a spec always show one, as they do their status."""
    if not storage.resource.custom and "spec" in storage.type.fields:
        obj["spec"] = {}


def _keep(new: Obj, old: Obj, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _count_generation(new: Obj, old: Obj, has_status: bool) -> None:
    ignored = _IDENTITY | {"status"} if has_status else _IDENTITY
    for name in new.keys() | old.keys():
        if name not in ignored and new.get(name) != old.get(name):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            return


def _given_revision(metadata: Obj, served: Served) -> str:
    given: str = metadata.get("resourceVersion") or ""
    if given == "0":
        given = ""
    if not given and not served.resource.blind_update:
        errors = [invalid("metadata.resourceVersion", 0, "must be specified for an update")]
        raise Invalid.of(served.resource.kind, served.resource.group, metadata.get("name", ""), errors)
    if given and not given.isdigit():
        errors = [invalid("metadata.resourceVersion", given, "must be a number as the server gave it")]
        raise Invalid.of(served.resource.kind, served.resource.group, metadata.get("name", ""), errors)
    return given


__all__ = ["ATTEMPTS", "Author", "Retry", "Writer", "finished_deletion", "raise_invalid"]
