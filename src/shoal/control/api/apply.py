"""Applies documents of any kind, one or many at once.

Every document is read before anything is written. If one is invalid, nothing is applied, and the answer names the wrong
fields of each. Then each document is applied in a transaction of its own, in the order in which kinds need each other
(a project before its environments), whatever their order in the file. One that fails neither stops nor undoes the
others: after a correction, applying the file again does the rest. Answers are in the order of the documents.
"""

from __future__ import annotations

from typing import Any

from shoal.control.api.answers import applied_json, public_message
from shoal.control.api.documents import AppliedAll, Documents
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import CHANGING, Call, DryRun
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.specs import KINDS, SpecDocument, parse
from shoal.errors import (
    ApiError,
    BadRequest,
    Cause,
    FieldError,
    Invalid,
    ServiceUnavailable,
    duplicate,
    invalid,
)
from shoal.rest.answers import RestAnswer, bad_fields, error_answer, error_json, json_answer
from shoal.rest.operations import Operation

_ORDER = {name: position for position, name in enumerate(KINDS)}


class Apply:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="POST", path=f"{ROOT}/apply", id="apply", tag="apply", handler=self.apply,
                summary="Apply documents of any kind", body=Documents, errors=CHANGING,
                answers={200: AppliedAll, 207: AppliedAll},
                description="One document, a list, or YAML with several. All are checked before any is applied; then "
                "each is applied by itself, in the order in which kinds need each other. Those that fail have `error` "
                "in their place: 207 when some were applied, the first error's status when none was.",
            )
        ]  # fmt: skip

    async def apply(self, call: Call, query: DryRun, body: list[Any]) -> RestAnswer:
        who, documents, dry_run = call.caller.who, body, query.dry_run
        parsed = _checked(documents)
        results: list[dict[str, Any]] = [{} for _ in documents]
        failures: list[ApiError] = []
        made: set[str] = set()  # names of the objects that a dry run would have created
        away: ServiceUnavailable | None = None
        for position in sorted(range(len(documents)), key=lambda each: _ORDER[parsed[each].ref.kind]):
            ref, document = parsed[position].ref, documents[position]
            try:
                if away is not None:
                    raise ServiceUnavailable("not tried: the database is unavailable", retry_after_s=1)
                applied = await self._fleet.apply(who, parsed[position], dry_run=dry_run)
            except ApiError as error:
                if isinstance(error, ServiceUnavailable):
                    away = error
                if dry_run and (needs := _awaited(error, made)):
                    results[position] = _untold(document, needs)
                    made.add(ref.name)
                    continue
                failures.append(error)
                results[position] = {**_named(ref), "error": _error_json(error, who.correlation)}
            else:
                if applied.created:
                    made.add(ref.name)
                results[position] = applied_json(applied)
        return _answer(results, failures, who.correlation, dry_run=dry_run)


def _answer(results: list[dict[str, Any]], failures: list[ApiError], correlation: str, *, dry_run: bool) -> RestAnswer:
    body: dict[str, Any] = {"items": results, "dryRun": dry_run}
    if not failures:
        return json_answer(body)
    if len(failures) < len(results):
        return json_answer(body, 207)
    return error_answer(failures[0], correlation, message=public_message(failures[0]), more=body)


def _error_json(error: ApiError, correlation: str) -> dict[str, Any]:
    return error_json(error, correlation, message=public_message(error))


def _checked(documents: list[Any]) -> list[SpecDocument]:
    """The documents, parsed; ``Invalid`` with every fault of every document."""
    parsed: dict[ObjectRef, SpecDocument] = {}
    errors: list[FieldError] = []
    for position, document in enumerate(documents):
        at = f"documents[{position}]." if len(documents) > 1 else ""
        try:
            one = parse(document)
        except Invalid as error:
            if len(documents) == 1:
                raise
            errors += [FieldError(each.cause, f"{at}{each.field}", each.detail, each.value) for each in error.errors]
            continue
        except BadRequest as error:
            if len(documents) == 1:
                raise
            errors.append(invalid(at.rstrip("."), None, error.message))
            continue
        if one.ref in parsed:
            errors.append(duplicate(f"{at}metadata.name", f"{one.ref.kind} {one.ref}"))
        parsed[one.ref] = one
    if errors:
        raise bad_fields(errors)
    return list(parsed.values())


def _awaited(error: ApiError, made: set[str]) -> list[str]:
    """Objects that a document needs and the same file would create; empty if the document has other errors."""
    if not isinstance(error, Invalid) or not error.errors:
        return []
    needs = [str(each.value) for each in error.errors if each.cause is Cause.NOT_FOUND and str(each.value) in made]
    return needs if len(needs) == len(error.errors) else []


def _untold(document: dict[str, Any], needs: list[str]) -> dict[str, Any]:
    spec = document.get("spec") or {}
    if document["kind"] == "Secret":
        spec = {"variables": sorted(spec.get("values") or spec.get("variables") or ())}
    shown = {**document, "spec": spec}
    why = f"needs {', '.join(sorted(set(needs)))}, which this file creates: the placement is known only after that"
    return {"object": shown, "created": True, "changed": [], "effects": [], "warnings": [why], "dryRun": True}


def _named(ref: ObjectRef) -> dict[str, Any]:
    metadata = {"name": ref.name, "project": ref.project, "environment": ref.environment}
    named = {name: value for name, value in metadata.items() if value}
    return {"object": {"apiVersion": "shoal.dev/v1", "kind": ref.kind, "metadata": named}}
