"""OpenAPI 3.0: one document per group version, and one each for ``api``, ``apis`` and ``version``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from shoal.kube.openapi.operations import STATUS, OpenApiOperation, group_version_operations, root_operation, schemas_of
from shoal.kube.openapi.parameters import OpenApiParameter
from shoal.kube.openapi.schemas import (
    GVK,
    Schema,
    builtin_definitions,
    closure,
    convert_v3,
    custom_definitions,
    only_of,
)
from shoal.kube.resources import Resource
from shoal.kube.schema.builtin import described_definitions

_REASONS: Final = {200: "OK", 201: "Created", 202: "Accepted"}
_REFERENCE: Final = "#/components/schemas/"


def root_document(name: str, version: str) -> dict[str, Any]:
    """The document of ``api``, ``apis`` or ``version``."""
    return _document([root_operation(name)], _definitions(), version, "", "")


def group_version_document(
    group: str, group_version: str, resources: list[tuple[Resource, Schema | None]], version: str
) -> dict[str, Any]:
    """The document of a group version. ``resources`` are pairs of a resource and, if it is custom, its schema."""
    definitions = _definitions()
    for resource, schema in resources:
        if resource.custom:
            definitions.update(custom_definitions(resource, schema, version=3))
    operations = list(group_version_operations(group, group_version, [resource for resource, _ in resources]))
    return _document(operations, definitions, version, group, group_version)


def _definitions() -> dict[str, Schema]:
    described = described_definitions()
    builtin_definitions(described, version=3)
    return described


def _document(
    operations: list[OpenApiOperation], definitions: dict[str, Schema], version: str, group: str, group_version: str
) -> dict[str, Any]:
    schemas = closure({STATUS} | schemas_of(operations), definitions, convert_v3)
    for schema in schemas.values():
        only_of(schema, group, group_version)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": _paths(operations),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "BearerToken": {
                    "description": "Bearer token",
                    "in": "header",
                    "name": "authorization",
                    "type": "apiKey",
                }
            },
        },
        "security": [{"BearerToken": []}],
    }


def _paths(operations: Iterable[OpenApiOperation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        if operation.path_parameters:
            item["parameters"] = [_parameter(parameter) for parameter in operation.path_parameters]
        item[operation.method] = _operation(operation)
    return paths


def _operation(operation: OpenApiOperation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "description": operation.description,
        "operationId": operation.id,
        "responses": _responses(operation),
        "tags": [operation.tag],
    }
    if operation.parameters:
        made["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        content = _content(operation.body, operation.body_types)
        made["requestBody"] = (
            {"content": content, "required": True} if operation.body_required else {"content": content}
        )
    if operation.action:
        made["x-kubernetes-action"] = operation.action
    if operation.kind is not None:
        group, version, kind = operation.kind
        made[GVK] = {"group": group, "version": version, "kind": kind}
    return made


def _parameter(parameter: OpenApiParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    made: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": schema,
    }
    if parameter.place == "path":
        made["required"] = True
    return made


def _content(schema: str, types: tuple[str, ...]) -> dict[str, Any]:
    described = {"schema": {"$ref": _REFERENCE + schema} if schema else {"type": "string"}}
    return dict.fromkeys(types, described)


def _responses(operation: OpenApiOperation) -> dict[str, Any]:
    made: dict[str, Any] = {
        str(code): {"description": _REASONS[code], "content": _content(schema, operation.response_types)}
        for code, schema in operation.responses
    }
    made["401"] = {"description": "Unauthorized"}
    made["default"] = {
        "description": "Whatever went wrong, as a Status",
        "content": _content(STATUS, ("application/json",)),
    }
    return made
