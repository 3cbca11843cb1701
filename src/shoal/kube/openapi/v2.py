"""Swagger 2.0: one document for all resources, written one group version at a time to limit memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from shoal.kube.openapi.operations import ROOTS, OpenApiOperation, group_version_operations, root_operation, schemas_of
from shoal.kube.openapi.parameters import OpenApiParameter
from shoal.kube.openapi.schemas import GVK, Schema, builtin_definitions, closure, convert_v2, custom_definitions
from shoal.kube.resources import Resource
from shoal.kube.schema.builtin import described_definitions

_REASONS: Final = {200: "OK", 201: "Created", 202: "Accepted"}
_REFERENCE: Final = "#/definitions/"

Part = tuple[dict[str, Any], dict[str, Schema]]  # paths and definitions
GroupVersion = tuple[str, str, list[tuple[Resource, Schema | None]]]


def header(version: str) -> dict[str, Any]:
    """The document without paths and definitions."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "securityDefinitions": {
            "BearerToken": {
                "description": "Bearer token",
                "in": "header",
                "name": "authorization",
                "type": "apiKey",
            }
        },
        "security": [{"BearerToken": []}],
    }


def builtin_parts(group_versions: Iterable[GroupVersion]) -> Iterator[Part]:
    """Paths and definitions per group version; a shared definition is part of the first that needs it."""
    described = described_definitions()
    builtin_definitions(described, version=2)
    written: set[str] = set()
    for operations in _builtin_operations(group_versions):
        definitions = closure(schemas_of(operations), described, convert_v2, written)
        written.update(definitions)
        yield _paths(operations), definitions


def _builtin_operations(group_versions: Iterable[GroupVersion]) -> Iterator[list[OpenApiOperation]]:
    yield [root_operation(name) for name in ROOTS]
    for group, version, resources in group_versions:
        yield list(group_version_operations(group, version, [resource for resource, _ in resources]))


def custom_parts(group_versions: Iterable[GroupVersion]) -> Iterator[Part]:
    """Paths and definitions of custom resources. Definitions that they refer to are built-in ones."""
    for group, version, resources in group_versions:
        operations = group_version_operations(group, version, [resource for resource, _ in resources])
        definitions: dict[str, Schema] = {}
        for resource, schema in resources:
            definitions.update(custom_definitions(resource, schema, version=2))
        yield _paths(operations), {name: convert_v2(schema, set()) for name, schema in definitions.items()}


def _paths(operations: Iterable[OpenApiOperation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        if operation.path_parameters:
            item["parameters"] = [_parameter(parameter) for parameter in operation.path_parameters]
        item[operation.method] = _operation(operation)
    return paths


def _operation(operation: OpenApiOperation) -> dict[str, Any]:
    given = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        given.insert(0, _body(operation))
    made: dict[str, Any] = {
        "description": operation.description,
        "operationId": operation.id,
        "consumes": list(operation.body_types or ("*/*",)),
        "produces": list(operation.response_types),
        "responses": _responses(operation),
        "schemes": ["https"],
        "tags": [operation.tag],
    }
    if given:
        made["parameters"] = given
    if operation.action:
        made["x-kubernetes-action"] = operation.action
    if operation.kind is not None:
        group, version, kind = operation.kind
        made[GVK] = {"group": group, "version": version, "kind": kind}
    return made


def _body(operation: OpenApiOperation) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "body", "in": "body", "schema": {"$ref": _REFERENCE + operation.body}}
    if operation.body_required:
        made["required"] = True
    return made


def _parameter(parameter: OpenApiParameter) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.type,
        "uniqueItems": True,
    }
    if parameter.choices:
        made["enum"] = list(parameter.choices)
    if parameter.place == "path":
        made["required"] = True
    return made


def _responses(operation: OpenApiOperation) -> dict[str, Any]:
    made: dict[str, Any] = {
        str(code): {
            "description": _REASONS[code],
            "schema": {"$ref": _REFERENCE + schema} if schema else {"type": "string"},
        }
        for code, schema in operation.responses
    }
    made["401"] = {"description": "Unauthorized"}
    return made
