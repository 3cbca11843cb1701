"""The types of objects as users write and read them, and of the answers to changes.

They describe the API only: ``shoal.control.domain`` reads documents and reports their errors. A test checks that the
fields of every spec here are the ones that the domain reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.control.api.parameters import Name
from shoal.control.api.specs import SPECS, Maybe
from shoal.control.domain.model import API_VERSION
from shoal.control.domain.specs import KINDS
from shoal.rest.answers import ErrorFacts

Json = dict[str, Any]
_READ_ONLY = {"readOnly": True}
OurText = Annotated[Maybe[str], Meta(extra_json_schema=_READ_ONLY)]
OurNumber = Annotated[Maybe[int], Meta(extra_json_schema=_READ_ONLY)]


class Metadata(Struct, forbid_unknown_fields=True):
    """Project and environment are those of the path where it names them."""

    name: Maybe[Name] = UNSET
    project: Maybe[Name] = UNSET
    environment: Maybe[Name] = UNSET
    labels: Maybe[dict[str, str]] = UNSET
    annotations: Maybe[dict[str, str]] = UNSET
    id: OurText = UNSET
    version: OurNumber = UNSET
    generation: OurNumber = UNSET
    createdAt: OurText = UNSET
    updatedAt: OurText = UNSET
    namespace: OurText = UNSET
    workspace: OurText = UNSET


class ChangedPath(Struct):
    """One field that a change changes."""

    path: str
    before: Any = None
    after: Any = None


class Effect(Struct):
    """What a change means for one place."""

    region: str
    cluster: str
    shard: str
    key: str
    action: str
    kind: str
    name: str


class Items(Struct):
    items: list[Json]
    position: str = msgspec.field(name="continue", default="")


class MetadataPatch(Struct, forbid_unknown_fields=True):
    labels: Maybe[Json] = UNSET
    annotations: Maybe[Json] = UNSET


class Patch(Struct, forbid_unknown_fields=True):
    """A JSON merge patch."""

    metadata: Maybe[MetadataPatch] = UNSET
    spec: Maybe[Json] = UNSET


# For types that are made of values, which a type checker cannot follow.
_LIST: Any = list
_LITERAL: Any = Literal


def _maybe(type_: Any) -> Any:
    return type_ | UnsetType


def _document(kind: str) -> type[Struct]:
    fields: list[tuple[str, Any, Any]] = [
        ("apiVersion", _maybe(_LITERAL[API_VERSION]), UNSET),
        ("kind", _maybe(_LITERAL[kind]), UNSET),
        ("metadata", _maybe(Metadata), UNSET),
        ("spec", _maybe(SPECS[kind]), UNSET),
        ("status", Annotated[_maybe(Json), Meta(extra_json_schema=_READ_ONLY)], UNSET),
    ]
    return msgspec.defstruct(kind, fields, forbid_unknown_fields=True)


def _list(kind: str) -> type[Struct]:
    fields: list[tuple[str, Any]] = [("items", _LIST[DOCUMENTS[kind]]), ("position", str)]
    return msgspec.defstruct(f"{kind}List", fields, rename={"position": "continue"})


def _applied(name: str, document: Any, *more: tuple[str, Any, Any]) -> type[Struct]:
    fields: list[Any] = [
        ("object", document),
        ("created", bool),
        ("changed", list[ChangedPath]),
        ("effects", list[Effect]),
        ("warnings", list[str]),
        ("dryRun", bool),
    ]
    return msgspec.defstruct(name, [*fields, *more])


DOCUMENTS = {kind: _document(kind) for kind in KINDS}
LISTS = {kind: _list(kind) for kind in KINDS}
APPLIED = {kind: _applied(f"{kind}Applied", DOCUMENTS[kind]) for kind in KINDS}

_ONE_OF = {"oneOf": [{"$ref": f"#/components/schemas/{kind}"} for kind in KINDS]}
AnyDocument = Annotated[Json, Meta(extra_json_schema=_ONE_OF)]
Documents = AnyDocument | list[AnyDocument]


class AppliedOrError(Struct):
    """What applying one document did, or why it was not applied."""

    object: AnyDocument
    created: bool = False
    changed: list[ChangedPath] = []
    effects: list[Effect] = []
    warnings: list[str] = []
    dryRun: bool = False
    error: Maybe[ErrorFacts] = UNSET


class AppliedAll(Struct):
    """In the order of the documents."""

    items: list[AppliedOrError]
    dryRun: bool


class ObjectName(Struct):
    kind: str
    name: str
    project: str
    environment: str


class DeletedObject(Struct):
    """``also`` is what was in it."""

    object: AnyDocument
    also: list[ObjectName]
    effects: list[Effect]
    dryRun: bool
