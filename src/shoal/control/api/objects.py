"""The ten kinds as paths: read, list, create, replace, patch, delete, and what is known of one object.

    fleet, workspace    /api/v1/regions/eu                     Region, Cluster, Project, shared Sentinels
    project             /api/v1/projects/P/environments/E
    environment         /api/v1/projects/P/environments/E/apps/A

Lists of what is in a project or an environment also exist over all of them: ``/api/v1/apps``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from shoal.control.api import openapi as describe
from shoal.control.api.answers import applied_answer, deleted_json, etag, json_answer, object_answer
from shoal.control.api.bodies import read_object
from shoal.control.api.calls import Call, Handler, Operation
from shoal.control.api.conditions import again_on_conflict, condition_of, under
from shoal.control.api.idempotency import Answers, Remembered
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import API_VERSION, Applied, Ref, Scope
from shoal.control.domain.specs import KINDS, Kind
from shoal.errors import AlreadyExists, BadRequest, FieldError, Invalid, forbidden, invalid, type_invalid
from shoal.kube.patch import merge_patch

ROOT = "/api/v1"
PROJECT = f"{ROOT}/projects/{{project}}"
ENVIRONMENT = f"{PROJECT}/environments/{{environment}}"
_COLLECTIONS = {
    "fleet": ROOT, "workspace": ROOT, "project": PROJECT, "environment": ENVIRONMENT, "either": ENVIRONMENT,
}  # fmt: skip
_PATCHABLE = ("metadata", "spec")
_PATCHABLE_METADATA = ("labels", "annotations")

Edit = Callable[[dict[str, Any]], dict[str, Any]]


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

    def _of_kind(self, kind: Kind, path: str, which: str) -> list[Operation]:
        named, applied = f"{path}/{{name}}", f"{kind.name}Applied"
        changing = (400, 404, 409, 412, 413, 415)

        def at(method: str, path: str, verb: str, summary: str, handler: Any, **more: Any) -> Operation:
            return Operation(
                method=method, path=path, id=f"{verb}{which.capitalize()}{kind.name}", tag=kind.plural,
                summary=f"{summary} {which} {kind.name}".replace("  ", " "), handler=_of(kind.name, handler), **more,
            )  # fmt: skip

        return [
            self._list_operation(kind, path, "every" if which else ""),
            at("POST", path, "create", "Create a", self.create, answers={200: applied, 201: applied}, body=kind.name,
               parameters=(describe.DRY_RUN, describe.IDEMPOTENCY_KEY), errors=changing),
            at("GET", named, "get", "Read a", self.get, answers={200: kind.name}, errors=(404,)),
            at("PUT", named, "put", "Create or replace a", self.put, answers={200: applied, 201: applied},
               body=kind.name, parameters=(describe.DRY_RUN, describe.IF_MATCH, describe.IF_NONE_MATCH),
               errors=changing),
            at("PATCH", named, "patch", "Change parts of a", self.patch, answers={200: applied}, body="Patch",
               description="A JSON merge patch (RFC 7386) of metadata.labels, metadata.annotations and spec. The "
               "values of a Secret are replaced as a whole.",
               parameters=(describe.DRY_RUN, describe.IF_MATCH), errors=changing),
            at("DELETE", named, "delete", "Delete a", self.delete, answers={200: "Deleted"},
               parameters=(describe.DRY_RUN, describe.CASCADE, describe.IF_MATCH), errors=(400, 404, 409, 412)),
            at("GET", f"{named}/status", "status", "What should be and what is, place by place, of a", self.status,
               answers={200: "Anything"}, errors=(404,)),
            at("GET", f"{named}/history", "history", "Who changed what when of a", self.history,
               answers={200: "Items"}, parameters=(describe.LIMIT,), errors=(404,)),
            at("GET", f"{named}/events", "events", "What happened lately to a", self.events,
               answers={200: "Items"}, parameters=(describe.LIMIT,), errors=(404,)),
        ]  # fmt: skip

    def _list_operation(self, kind: Kind, path: str, which: str) -> Operation:
        return Operation(
            method="GET", path=path, id=f"list{which.capitalize()}{kind.name}", tag=kind.plural,
            summary=f"List {which} {kind.plural}".replace("  ", " "), handler=_of(kind.name, self.list_),
            answers={200: f"{kind.name}List"}, errors=(400, 404),
            parameters=(describe.LIMIT, describe.CONTINUE, describe.LABELS),
        )  # fmt: skip

    async def list_(self, call: Call, kind: str) -> Response:
        project, environment = call.name("project"), call.name("environment")
        if project:
            call.ref(kind)
        page = await self._fleet.list_(
            call.who, kind, Scope(project, environment), limit=call.limit(), after=call.position(),
            labels=call.text("labels"),
        )  # fmt: skip
        return json_answer({"items": page.items, "continue": page.next})

    async def get(self, call: Call, kind: str) -> Response:
        return object_answer(await self._fleet.get(call.who, call.ref(kind)))

    async def create(self, call: Call, kind: str) -> Response:
        document = await read_object(call.request)
        placed = _placed(document, call.ref(kind))
        dry_run = call.flag("dryRun")
        asked = None if dry_run else self._answers.asked(call, kind, document)
        if asked is not None and (before := await asked.answered()):
            return _replayed(before)
        also = asked.remember(201) if asked is not None else None
        try:
            applied = await self._fleet.apply(call.who, placed, dry_run=dry_run, create_only=True, also=also)
        except AlreadyExists:
            # the same request may have been under way at the same time
            if asked is not None and (before := await asked.answered()):
                return _replayed(before)
            raise
        return applied_answer(applied)

    async def put(self, call: Call, kind: str) -> Response:
        ref, condition = call.ref(kind), condition_of(call)
        document, dry_run = _placed(await read_object(call.request), ref), call.flag("dryRun")
        # of two places that name a version, the header wins
        own = None if condition.given else _metadata(document).get("version")
        if own is not None and (not isinstance(own, int) or isinstance(own, bool) or own < 0):
            raise Invalid.of(
                kind, "shoal.dev", ref.name, [type_invalid("metadata.version", own, "must be a whole number")]
            )

        async def change(version: int | None) -> Applied:
            wanted = version if version is not None else own or None
            return await self._fleet.apply(call.who, document, dry_run=dry_run, if_match=wanted)

        return applied_answer(await under(self._fleet, call, ref, condition, change))

    async def patch(self, call: Call, kind: str) -> Response:
        body = await read_object(call.request)

        def merged(found: dict[str, Any]) -> dict[str, Any]:
            return patched(kind, found, body)

        return applied_answer(await self.edit(call, call.ref(kind), merged))

    async def edit(self, call: Call, ref: Ref, change_of: Edit) -> Applied:
        """Read, change, write: again when somebody else wrote in between, unless the caller named a version."""
        condition, dry_run = condition_of(call), call.flag("dryRun")
        if condition.exists is False:
            raise BadRequest("If-None-Match cannot be used to change an object")

        async def write(version: int | None) -> Applied:
            found = await self._fleet.get(call.who, ref)
            wanted = found["metadata"]["version"] if version is None else version
            return await self._fleet.apply(call.who, change_of(found), dry_run=dry_run, if_match=wanted)

        if condition.given:
            await self._fleet.get(call.who, ref)  # what does not exist is 404, not 412
            return await under(self._fleet, call, ref, condition, write)
        return await again_on_conflict(lambda: write(None))

    async def delete(self, call: Call, kind: str) -> Response:
        ref, condition = call.ref(kind), condition_of(call)
        dry_run, cascade = call.flag("dryRun"), call.flag("cascade")
        if condition.exists is False:
            raise BadRequest("If-None-Match cannot be used to delete an object")
        if condition.given:
            await self._fleet.get(call.who, ref)
        deleted = await under(
            self._fleet, call, ref, condition,
            lambda version: self._fleet.delete(call.who, ref, if_match=version, dry_run=dry_run, cascade=cascade),
        )  # fmt: skip
        return json_answer(deleted_json(deleted))

    async def status(self, call: Call, kind: str) -> Response:
        return json_answer(await self._fleet.status(call.who, call.ref(kind)))

    async def history(self, call: Call, kind: str) -> Response:
        found = await self._fleet.history(call.who, call.ref(kind), limit=call.limit())
        return json_answer({"items": found["changes"]})

    async def events(self, call: Call, kind: str) -> Response:
        return json_answer({"items": await self._fleet.events(call.who, call.ref(kind), limit=call.limit())})


def _replayed(before: Remembered) -> Response:
    headers = {"ETag": etag(before.answer["object"]), "Idempotency-Replayed": "true"}
    return json_answer(before.answer, before.status, headers)


def patched(kind: str, found: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The document to write for an object and a merge patch of it."""
    _check_patch(kind, found, patch)
    base = writable(found)
    spec = patch.get("spec")
    if kind == "Secret" and isinstance(spec, dict) and spec.get("values") is not None and "variables" not in spec:
        base["spec"].pop("variables", None)
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


def _of(kind: str, handler: Callable[[Call, str], Any]) -> Handler:
    async def handle(call: Call) -> Response:
        found: Response = await handler(call, kind)
        return found

    return handle


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _placed(document: dict[str, Any], ref: Ref) -> dict[str, Any]:
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
