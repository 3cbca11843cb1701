"""The ten kinds as paths: read, list, create, replace, patch, delete, and status, history and events of an object.

    fleet, workspace    /api/v1/regions/eu                     Region, Cluster, Project, shared Sentinels
    project             /api/v1/projects/P/environments/E
    environment         /api/v1/projects/P/environments/E/apps/A

Lists of kinds inside a project or environment also exist across all of them: ``/api/v1/apps``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from shoal.control.api.answers import applied_answer, deleted_json, object_answer
from shoal.control.api.documents import APPLIED, DOCUMENTS, LISTS, DeletedObject, Items, Json, Patch
from shoal.control.api.idempotency import Answers, KeyReused, Remembered
from shoal.control.api.parameters import CHANGING, Applying, Call, DryRun, IdempotencyKey, Limited, Paged, ref_of
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import API_VERSION, Applied, Deleted, ListScope, ObjectRef
from shoal.control.domain.specs import KINDS, ObjectKind
from shoal.errors import AlreadyExists, BadRequest, FieldError, Invalid, NotFound, forbidden, invalid, type_invalid
from shoal.kube.patch import merge_patch
from shoal.rest.answers import RestAnswer, json_answer
from shoal.rest.conditions import IfMatch, IfMatchOrNone, again_on_conflict, etag, precondition, under
from shoal.rest.operations import Operation

ROOT = "/api/v1"
PROJECT = f"{ROOT}/projects/{{project}}"
ENVIRONMENT = f"{PROJECT}/environments/{{environment}}"
_COLLECTIONS = {
    "fleet": ROOT, "workspace": ROOT, "project": PROJECT, "environment": ENVIRONMENT, "either": ENVIRONMENT,
}  # fmt: skip
_PATCHABLE = ("metadata", "spec")
_PATCHABLE_METADATA = ("labels", "annotations")

Edit = Callable[[Json], Json]


class Listed(Paged, frozen=True, kw_only=True):
    labels: Annotated[str, Meta(max_length=2048, description="A label selector, such as `tier=web,env!=dev`")] = ""


class Deletion(DryRun, frozen=True, kw_only=True):
    cascade: Annotated[bool, Meta(description="Also delete the contents of the project or environment")] = False


class AppDeletion(Deletion, frozen=True, kw_only=True):
    release: Annotated[
        bool, Meta(description="What runs of it goes on, in every cluster, and is not managed by Shoal any more")
    ] = False


class Objects:
    """What every kind can do."""

    def __init__(self, fleet: Fleet, answers: Answers) -> None:
        self._fleet = fleet
        self._answers = answers

    def operations(self) -> list[Operation]:
        found: list[Operation] = []
        for kind in KINDS.values():
            found += self._of_kind(kind, f"{_COLLECTIONS[kind.scope]}/{kind.plural}", "")
            if kind.scope == "either":
                found += self._of_kind(kind, f"{ROOT}/{kind.plural}", "shared")
            elif kind.scope in ("project", "environment"):
                found.append(self._list_operation(kind, f"{ROOT}/{kind.plural}", "every"))
        return found

    def _of_kind(self, kind: ObjectKind, path: str, which: str) -> list[Operation]:
        named, document, applied = f"{path}/{{name}}", DOCUMENTS[kind.name], APPLIED[kind.name]
        delete = self.delete_app if kind.name == "App" else self.delete

        def at(method: str, path: str, verb: str, summary: str, handler: Any, **more: Any) -> Operation:
            return Operation(
                method=method, path=path, id=f"{verb}{which.capitalize()}{kind.name}", tag=kind.plural,
                summary=f"{summary} {which} {kind.name}".replace("  ", " "), handler=partial(handler, kind.name),
                **{"errors": (NotFound,), **more},
            )  # fmt: skip

        return [
            self._list_operation(kind, path, "every" if which else ""),
            at("POST", path, "create", "Create a", self.create, answers={200: applied, 201: applied}, body=document,
               errors=(*CHANGING, KeyReused)),
            at("GET", named, "get", "Read a", self.get, answers={200: document}),
            at("PUT", named, "put", "Create or replace a", self.put, answers={200: applied, 201: applied},
               body=document, errors=CHANGING),
            at("PATCH", named, "patch", "Change parts of a", self.patch, answers={200: applied}, body=Patch,
               body_media="application/merge-patch+json", errors=CHANGING,
               description="A JSON merge patch (RFC 7386) of metadata.labels, metadata.annotations and spec. The "
               "values of a Secret or a Credential are replaced as a whole."),
            at("DELETE", named, "delete", "Delete a", delete, answers={200: DeletedObject}, errors=CHANGING),
            at("GET", f"{named}/status", "status", "Desired and actual state, per cluster and shard, of a", self.status,
               answers={200: Json}),
            at("GET", f"{named}/history", "history", "The audit log of a", self.history,
               answers={200: Items}),
            at("GET", f"{named}/events", "events", "Recent events of a", self.events, answers={200: Items}),
        ]  # fmt: skip

    def _list_operation(self, kind: ObjectKind, path: str, which: str) -> Operation:
        return Operation(
            method="GET", path=path, id=f"list{which.capitalize()}{kind.name}", tag=kind.plural,
            summary=f"List {which} {kind.plural}".replace("  ", " "), handler=partial(self.list_, kind.name),
            answers={200: LISTS[kind.name]}, errors=(BadRequest, NotFound),
        )  # fmt: skip

    async def list_(self, kind: str, call: Call, query: Listed) -> Json:
        project, environment = call.path.get("project", ""), call.path.get("environment", "")
        if project:
            ref_of(call, kind)
        page = await self._fleet.list_(
            call.caller.who, kind, ListScope(project, environment), limit=query.limit, after=query.position,
            labels=query.labels,
        )  # fmt: skip
        return {"items": page.items, "continue": page.next}

    async def get(self, kind: str, call: Call) -> RestAnswer:
        return object_answer(await self._fleet.get(call.caller.who, ref_of(call, kind)))

    async def create(
        self, kind: str, call: Call, query: Applying, headers: IdempotencyKey, body: dict[str, Any]
    ) -> RestAnswer:
        placed = _placed(body, ref_of(call, kind))
        keyed = None if query.dry_run else await self._answers.keyed(call, headers.key, kind, body)
        if keyed is not None and (before := await keyed.answered()):
            return _replayed(before)
        also = keyed.remember(201) if keyed is not None else None
        try:
            applied = await self._fleet.apply(
                call.caller.who, placed, dry_run=query.dry_run, create_only=True, also=also, forced=query.force
            )  # fmt: skip
        except AlreadyExists:
            # the same request may have been under way at the same time
            if keyed is not None and (before := await keyed.answered()):
                return _replayed(before)
            raise
        return applied_answer(applied)

    async def put(
        self, kind: str, call: Call, query: Applying, headers: IfMatchOrNone, body: dict[str, Any]
    ) -> RestAnswer:
        ref, condition = ref_of(call, kind), precondition(headers)
        document = _placed(body, ref)
        # of two places that name a version, the header wins
        own = None if condition.given else _metadata(document).get("version")
        if own is not None and (not isinstance(own, int) or isinstance(own, bool) or own < 0):
            raise Invalid.of(
                kind, "shoal.dev", ref.name, [type_invalid("metadata.version", own, "must be a whole number")]
            )

        async def change(version: int | None) -> Applied:
            wanted = version if version is not None else own or None
            return await self._fleet.apply(
                call.caller.who, document, dry_run=query.dry_run, if_match=wanted, forced=query.force
            )  # fmt: skip

        return applied_answer(await under(condition, f"{kind} {ref}", partial(self._version, call, ref), change))

    async def patch(self, kind: str, call: Call, query: Applying, headers: IfMatch, body: dict[str, Any]) -> RestAnswer:
        def merged(found: Json) -> Json:
            return patched(kind, found, body)

        edited = await self.edit(call, ref_of(call, kind), query, headers, merged, forced=query.force)
        return applied_answer(edited)

    async def change(
        self,
        call: Call,
        ref: ObjectRef,
        change_of: Edit,
        *,
        forced: bool = False,
        is_hurried: bool = False,
        why: str = "",
    ) -> Applied:
        """``edit`` without conditions."""
        how: dict[str, Any] = {"forced": forced, "is_hurried": is_hurried, "why": why}
        return await self.edit(call, ref, DryRun(), IfMatch(), change_of, **how)

    async def edit(
        self,
        call: Call,
        ref: ObjectRef,
        query: DryRun,
        headers: IfMatch,
        change_of: Edit,
        *,
        forced: bool = False,
        is_hurried: bool = False,
        why: str = "",
    ) -> Applied:
        """Read, change, write: again when others wrote in between, unless the caller named a version."""
        who, condition = call.caller.who, precondition(headers)

        async def write(version: int | None) -> Applied:
            found = await self._fleet.get(who, ref)
            wanted = found["metadata"]["version"] if version is None else version
            return await self._fleet.apply(
                who, change_of(found), dry_run=query.dry_run, if_match=wanted, forced=forced, is_hurried=is_hurried,
                why=why,
            )  # fmt: skip

        if condition.given:
            await self._fleet.get(who, ref)  # what does not exist is 404, not 412
            return await under(condition, f"{ref.kind} {ref}", partial(self._version, call, ref), write)
        return await again_on_conflict(lambda: write(None))

    async def delete(self, kind: str, call: Call, query: Deletion, headers: IfMatch) -> Json:
        return await self._delete(kind, call, query, headers)

    async def delete_app(self, kind: str, call: Call, query: AppDeletion, headers: IfMatch) -> Json:
        return await self._delete(kind, call, query, headers, keeps_running=query.release)

    async def _delete(
        self, kind: str, call: Call, query: Deletion, headers: IfMatch, *, keeps_running: bool = False
    ) -> Json:
        who, ref, condition = call.caller.who, ref_of(call, kind), precondition(headers)
        if condition.given:
            await self._fleet.get(who, ref)

        async def change(version: int | None) -> Deleted:
            return await self._fleet.delete(
                who, ref, if_match=version, dry_run=query.dry_run, cascade=query.cascade, keeps_running=keeps_running
            )  # fmt: skip

        return deleted_json(await under(condition, f"{kind} {ref}", partial(self._version, call, ref), change))

    async def status(self, kind: str, call: Call) -> Json:
        return await self._fleet.status(call.caller.who, ref_of(call, kind))

    async def history(self, kind: str, call: Call, query: Limited) -> Json:
        found = await self._fleet.history(call.caller.who, ref_of(call, kind), limit=query.limit)
        return {"items": found["changes"]}

    async def events(self, kind: str, call: Call, query: Limited) -> Json:
        return {"items": await self._fleet.events(call.caller.who, ref_of(call, kind), limit=query.limit)}

    async def _version(self, call: Call, ref: ObjectRef) -> int:
        try:
            return int((await self._fleet.get(call.caller.who, ref))["metadata"]["version"])
        except NotFound:
            return 0


def _replayed(before: Remembered) -> RestAnswer:
    headers = {"ETag": etag(before.answer["object"]["metadata"]["version"]), "Idempotency-Replayed": "true"}
    return json_answer(before.answer, before.status, headers)


def patched(kind: str, found: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The document to write for an object and a merge patch of it."""
    _check_patch(kind, found, patch)
    base = writable(found)
    spec = patch.get("spec")
    names = {"Secret": "variables", "Credential": "headers"}.get(kind)
    if names and isinstance(spec, dict) and spec.get("values") is not None and names not in spec:
        base["spec"].pop(names, None)
    return merge_patch.apply(base, {name: patch[name] for name in _PATCHABLE if name in patch})


def writable(found: dict[str, Any]) -> dict[str, Any]:
    """An object that was read, as a document to apply."""
    kept = ("name", "project", "environment", "labels", "annotations")
    metadata = {name: found["metadata"][name] for name in kept if name in found["metadata"]}
    return {"apiVersion": API_VERSION, "kind": found["kind"], "metadata": metadata, "spec": found["spec"]}


def _check_patch(kind: str, found: dict[str, Any], patch: dict[str, Any]) -> None:
    errors: list[FieldError] = []
    for name in patch:
        if name in ("apiVersion", "kind"):
            if patch[name] != found[name]:
                errors.append(forbidden(name, "cannot be changed"))
        elif name not in _PATCHABLE:
            errors.append(forbidden(str(name), f"cannot be patched; known fields: {', '.join(_PATCHABLE)}"))
        elif not isinstance(patch[name], dict):
            errors.append(type_invalid(name, patch[name], "must be an object"))
    metadata = patch.get("metadata")
    for name, value in metadata.items() if isinstance(metadata, dict) else ():
        if name not in _PATCHABLE_METADATA and value != found["metadata"].get(name):
            errors.append(forbidden(f"metadata.{name}", "cannot be changed"))
        elif name in _PATCHABLE_METADATA and value is not None and not isinstance(value, dict):
            errors.append(type_invalid(f"metadata.{name}", value, "must be an object"))
    if errors:
        raise Invalid.of(kind, "shoal.dev", found["metadata"]["name"], errors)


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _placed(document: dict[str, Any], ref: ObjectRef) -> dict[str, Any]:
    """The document with what the path says: it may be left out, but not be something else. The path of a collection
    says nothing of the name."""
    errors: list[FieldError] = []
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        errors.append(type_invalid("metadata", metadata, "must be an object"))
        metadata = {}
    said = {
        "apiVersion": (document, API_VERSION),
        "kind": (document, ref.kind),
        "metadata.project": (metadata, ref.project),
        "metadata.environment": (metadata, ref.environment),
    }
    if ref.name:
        said["metadata.name"] = (metadata, ref.name)
    placed: dict[str, Any] = {**metadata}
    for field, (where, wanted) in said.items():
        name = field.rpartition(".")[2]
        given = where.get(name)
        if given in (None, ""):
            if wanted and where is metadata:
                placed[name] = wanted
        elif given != wanted:
            errors.append(invalid(field, given, f"must be {wanted} as in the path" if wanted else "is not in the path"))
    if errors:
        raise Invalid.of(ref.kind, "shoal.dev", ref.name, errors)
    return {**document, "apiVersion": API_VERSION, "kind": ref.kind, "metadata": placed}
