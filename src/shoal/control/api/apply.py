"""Applies documents of any kind, one or many at once.

All documents are applied in one transaction, in the order in which kinds need each other (a project before its
environments), whatever their order in the file. If one is refused, for its fields or for other objects, nothing is
applied, and the answer names the wrong fields of each. A dry run does the same and undoes it. Answers are in the order
of the documents.
"""

from __future__ import annotations

from typing import Any

from shoal.control.api.answers import applied_json, public_message
from shoal.control.api.documents import AppliedAll, Documents
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import CHANGING, Applying, Call
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Applied, ObjectRef
from shoal.control.domain.refusals import DocumentsRefused
from shoal.control.domain.specs import KINDS, SpecDocument, parse
from shoal.errors import (
    ApiError,
    BadRequest,
    FieldError,
    Invalid,
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
                description="One document, a list, or YAML with several. All are applied together, in the order in "
                "which kinds need each other, or none is: then `error.details` names the wrong fields of every "
                "document, and each item has its `error` (NotApplied for those that are not wrong themselves). 207: "
                "regions and clusters, which may be in another database, were applied before the others failed.",
            )
        ]  # fmt: skip

    async def apply(self, call: Call, query: Applying, body: list[Any]) -> RestAnswer:
        who, dry_run = call.caller.who, query.dry_run
        parsed = _checked(body)
        order = sorted(range(len(parsed)), key=lambda each: _ORDER[parsed[each].ref.kind])
        try:
            applied = await self._fleet.apply_all(
                who, [parsed[each] for each in order], dry_run=dry_run, forced=query.force
            )
        except DocumentsRefused as refused:
            errors = {order[at]: error for at, error in refused.errors.items()}
            kept = {order[at]: each for at, each in refused.applied.items()}
            return _refusal(parsed, errors, kept, who.correlation, dry_run=dry_run)
        items: list[dict[str, Any]] = [{} for _ in parsed]
        for position, each in zip(order, applied, strict=True):
            items[position] = applied_json(each)
        return json_answer({"items": items, "dryRun": dry_run})


class NotApplied(ApiError):
    """The document itself is not refused, but another one of the same request is."""

    reason, code = "NotApplied", 409


def _refusal(
    parsed: list[SpecDocument],
    errors: dict[int, ApiError],
    kept: dict[int, Applied],
    correlation: str,
    *,
    dry_run: bool,
) -> RestAnswer:
    """Every document with its error; the answer's own error names the wrong fields of all documents."""
    other = NotApplied("not applied: another document of this request is refused")
    items = [
        applied_json(kept[position])
        if position in kept
        else {**_named(one.ref), "error": _error_json(errors.get(position, other), correlation)}
        for position, one in enumerate(parsed)
    ]
    body: dict[str, Any] = {"items": items, "dryRun": dry_run}
    if kept:
        return json_answer(body, 207)
    first = next((error for error in errors.values() if not isinstance(error, Invalid)), None)
    if first is None and len(parsed) > 1:
        first = bad_fields([each for position in sorted(errors) for each in _placed(errors[position], position)])
    first = first or next(iter(errors.values()))
    return error_answer(first, correlation, message=public_message(first), more=body)


def _placed(error: ApiError, position: int) -> list[FieldError]:
    """The faults of a document, with its position in the request."""
    assert isinstance(error, Invalid)
    return [FieldError(one.cause, f"documents[{position}].{one.field}", one.detail, one.value) for one in error.errors]


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


def _named(ref: ObjectRef) -> dict[str, Any]:
    metadata = {"name": ref.name, "project": ref.project, "environment": ref.environment}
    named = {name: value for name, value in metadata.items() if value}
    return {"object": {"apiVersion": "shoal.dev/v1", "kind": ref.kind, "metadata": named}}
