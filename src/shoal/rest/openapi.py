"""The OpenAPI 3.1 document of an API, made of its operations and their types; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.errors import ApiError, BadRequest, TooLarge
from shoal.rest.answers import JSON, Error
from shoal.rest.bodies import BodyReader, is_plain
from shoal.rest.operations import Operation
from shoal.rest.routes import parameters_of

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_WORDS = {200: "Done", 201: "Created", 207: "Partly done"}


class CommonHeaders(msgspec.Struct):
    """What every request may carry."""

    correlation: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="Returned, logged and audited; generated if absent"),
    ] = msgspec.field(name="X-Correlation-Id", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDescription:
    """What holds for a whole API. ``errors`` any operation may answer; ``path_types`` has the types of the paths'
    parameters by name, which are texts otherwise; ``body_types`` are the media types that a JSON body may have;
    ``texts`` has what fields mean, by type and field, where the type does not say it; "" is the type itself."""

    title: str
    version: str
    text: str
    errors: Sequence[type[ApiError]]
    body_errors: Sequence[type[ApiError]] = (BadRequest, TooLarge)
    path_types: Mapping[str, Any] = field(default_factory=dict)
    headers: type[msgspec.Struct] = CommonHeaders
    body_types: Collection[str] = (JSON,)
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def document(operations: Sequence[Operation], about: ApiDescription) -> Schema:
    schemas = _Schemas(operations)
    _describe(schemas.components, about.texts)
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, about, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": about.version,
            "description": about.text,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "The token of a user"}},
            "schemas": schemas.components,
        },
    }


def _describe(components: Mapping[str, Schema], texts: Mapping[str, Mapping[str, str]]) -> None:
    """Add the texts to the schemas. A field that says something itself keeps that after its text."""
    for name, fields in texts.items():
        schema = components[name]
        if text := fields.get(""):
            schema["description"] = text
        for key, text in fields.items():
            if key:
                found: Schema = schema["properties"][key]
                own = found.get("description", "")
                found["description"] = f"{text}. {own}" if own else text


class _Schemas:
    """The schema of every type that the operations use, each struct once."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        used: list[Any] = [Error]
        for operation in operations:
            used += [body_of(operation), *operation.answers.values()]
        types: list[Any] = []
        for each in used:
            if each is not None and each not in types:
                types.append(each)
        found, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        self._of = list(zip(types, found, strict=True))

    def of(self, type_: Any) -> Schema:
        return next(schema for each, schema in self._of if each == type_)


def body_of(operation: Operation) -> Any:
    """The type that describes the body; None when there is none."""
    return operation.body if operation.body is not None else operation.taken().get("body")


def _operation(operation: Operation, about: ApiDescription, schemas: _Schemas) -> Schema:
    taken = operation.taken()
    found: Schema = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation.path, about.path_types),
            *_parameters(taken.get("query"), "query"),
            *_parameters(taken.get("headers"), "header"),
            *_parameters(about.headers, "header"),
        ],
        "responses": _responses(operation, about, schemas),
    }
    if operation.description:
        found["description"] = operation.description
    if operation.needs:
        found["x-needs"] = operation.needs
    body = body_of(operation)
    if body is not None:
        content = {"schema": schemas.of(body)}
        medias = [operation.body_media, *(each for each in about.body_types if each != JSON)]
        required = is_plain(taken["body"]) or not BodyReader(taken["body"]).optional
        found["requestBody"] = {"required": required, "content": dict.fromkeys(medias, content)}
    return found


def _path_parameters(path: str, types: Mapping[str, Any]) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(types.get(name, str))}
        for name in parameters_of(path)
    ]


def _parameters(type_: type[msgspec.Struct] | None, where: str) -> list[Schema]:
    if type_ is None:
        return []
    _, components = msgspec.json.schema_components([type_], ref_template=_REF)
    described: Schema = components[type_.__name__]
    found: list[Schema] = []
    for name, schema in described["properties"].items():
        shown = _without_null(dict(schema))
        text = shown.pop("description", "")
        found.append(
            {"name": name, "in": where, "required": name in described["required"], "description": text, "schema": shown}
        )
    return found


def _without_null(schema: Schema) -> Schema:
    """A parameter that is left out is None or empty for the handler, but there is no way to send a null."""
    if schema.get("default", "") in (None, ""):
        schema.pop("default", None)
    kinds = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    return {**schema, **kinds[0]} if kinds else schema


def _responses(operation: Operation, about: ApiDescription, schemas: _Schemas) -> Schema:
    found: Schema = {
        str(status): {"description": _WORDS[status], "content": {operation.media: {"schema": schemas.of(type_)}}}
        for status, type_ in operation.answers.items()
    }
    errors: dict[int, list[str]] = {}
    with_body = about.body_errors if body_of(operation) is not None else ()
    for error in sorted({*about.errors, *with_body, *operation.errors}, key=lambda each: (each.code, each.reason)):
        errors.setdefault(error.code, []).append(error.reason)
    for status, reasons in errors.items():
        content = {JSON: {"schema": schemas.of(Error)}}
        found[str(status)] = {"description": " or ".join(reasons), "content": content}
    return found
