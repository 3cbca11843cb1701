"""The OpenAPI document, made of the operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.control.api import schemas
from shoal.control.api.answers import CODES
from shoal.control.api.calls import MAX_LIMIT, Operation, Parameter

_in_path = re.compile(r"{(\w+)}").findall

DRY_RUN = Parameter(
    "dryRun", {"type": "boolean", "default": False}, "Answer what would change where, and change nothing"
)
CASCADE = Parameter(
    "cascade", {"type": "boolean", "default": False}, "Also delete what is in the project or environment"
)
LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}, "How many to answer at most")
CONTINUE = Parameter("continue", {"type": "string", "maxLength": 256}, "Where the last page ended: its `continue`")
LABELS = Parameter("labels", {"type": "string", "maxLength": 2048}, "A label selector, such as `tier=web,env!=dev`")
IF_MATCH = Parameter(
    "If-Match",
    {"type": "string"},
    'The ETag that the object must have, such as `"17"`; 412 if it has another',
    "header",
)
IF_NONE_MATCH = Parameter(
    "If-None-Match", {"type": "string", "enum": ["*"]}, "The object must not exist; 412 if it does", "header"
)
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,128}$"},
    "Chosen by the client: the same request under the same key is done once and answered alike",
    "header",
)
LAST_EVENT_ID = Parameter("Last-Event-ID", {"type": "string"}, "The id of the last event that was received", "header")
_COMMON = (
    Parameter(
        "X-Correlation-Id", {"type": "string", "maxLength": 64}, "Echoed, logged, audited; made if absent", "header"
    ),
    Parameter("X-Shoal-Workspace", {"type": "string"}, "For administrators of the fleet: another workspace", "header"),
)

DESCRIPTION = """
Apps over many clusters, as objects: read them, change them, see what runs where.

**Tokens.** Every path below `/api` needs `Authorization: Bearer TOKEN` with the token of a user.

**Errors** have one shape: `{"error": {"code", "message", "details": [{"field", "message"}], "correlation"}}`. Codes are
stable. 503 carries `Retry-After`: the database is away, and nothing was changed unless the message says otherwise.

**Concurrency.** An object's ETag is its version. `If-Match` that does not hold is 412. A document that carries
`metadata.version` in a PUT must be of the current version, else 409. Without either the last write wins.

**Bodies** are JSON or YAML (`Content-Type: application/yaml`), up to 1 MiB. Fields that nobody knows are refused (422)
with their paths. Values of secrets go in and never come out.
""".strip()


def describe(operation: Operation) -> dict[str, Any]:
    """What OpenAPI says of an operation."""
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.id,
        "tags": [operation.tag],
        "parameters": [*_path_parameters(operation.path), *map(_parameter, (*operation.parameters, *_COMMON))],
        "responses": _responses(operation),
    }
    if operation.description:
        found["description"] = operation.description
    if operation.body:
        body = {"schema": schemas.reference(operation.body)}
        json_type = "application/merge-patch+json" if operation.method == "PATCH" else "application/json"
        found["requestBody"] = {
            "required": not operation.body_optional,
            "content": {json_type: body, "application/yaml": body},
        }
    return found


def document(operations: Sequence[Operation], *, title: str, version: str, url: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "The token of a user"}},
            "schemas": schemas.components(),
        },
    }


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": schemas.TOKEN_ID if name == "id" else schemas.NAME}
        for name in _in_path(path)
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": False,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, schema in operation.answers.items():
        found[str(status)] = _response(schemas.WORDS[status], schema, operation.media)
    common = (401, 403, 422, 500, 503)
    for status in sorted({*common, *operation.errors}):
        codes = " or ".join(CODES[status])
        found[str(status)] = _response(codes, "Error", "application/json")
    return found


def _response(text: str, schema: str, media: str) -> Mapping[str, Any]:
    if not schema:
        return {"description": text}
    return {"description": text, "content": {media: {"schema": schemas.reference(schema)}}}
