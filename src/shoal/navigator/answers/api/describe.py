"""The OpenAPI document, made of the operations, and the parameters and shapes that they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shoal.navigator.answers.api.answers import CODES
from shoal.navigator.answers.api.calls import MAX_LIMIT, MAX_TEXT, Operation, Parameter
from shoal.navigator.model import KINDS

Schema = dict[str, Any]

_in_path = re.compile(r"{(\w+)}").findall

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
ANYTHING: Schema = {"type": "object"}


def shown(**properties: Schema) -> Schema:
    """An object of an answer: more may come to it."""
    return {"type": "object", "properties": properties}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


AT = Parameter(
    "at", {"type": "string", "maxLength": 64}, "As it was: `2026-01-31T12:00:00Z`, or how long ago: `5m`, `2h`, `1d`"
)
CLUSTER = Parameter("cluster", TEXT, "Only of this cluster")
NAMESPACE = Parameter("namespace", TEXT, "Only of this namespace")
LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}, "How many to answer at most")
CONTINUE = Parameter("continue", {"type": "string", "maxLength": MAX_TEXT}, "Where the last page ended: its `continue`")
KIND = Parameter("kind", TEXT, f"Only of these kinds, with commas between them: {', '.join(KINDS)}")

_FIELD = shown(path=TEXT, before={}, after={})
_REF = shown(kind=TEXT, cluster=TEXT, namespace=TEXT, name=TEXT)
_CHECK = shown(name=TEXT, query=TEXT, expect={"type": "string", "enum": ["empty", "some"]}, description=TEXT)
_KIND_STATUS = shown(kind=TEXT, state=TEXT, error=TEXT, rows=WHOLE, sinceSeconds=NUMBER)
_PAGE = {"total": WHOLE, "continue": TEXT, "at": TEXT, "notFresh": many(ANYTHING)}

SCHEMAS: dict[str, Schema] = {
    "Error": shown(
        error=shown(
            code=TEXT, message=TEXT, correlation=TEXT, details=many(shown(field=TEXT, message=TEXT)),
        )
    ),
    "Anything": ANYTHING,
    "Text": TEXT,
    "Clusters": shown(items=many(reference("Cluster")), at=TEXT),
    "Cluster": shown(
        name=TEXT, region=TEXT, environment=TEXT, metadata={"type": "object", "additionalProperties": TEXT},
        freshness={"type": "string", "enum": ["initializing", "healthy", "stale", "disconnected"]}, edge=TEXT,
        epoch=WHOLE, connectedAt=TEXT, heardAt=TEXT, heardSecondsAgo=NUMBER, kinds=many(_KIND_STATUS),
    ),
    "Kinds": shown(items=many(shown(name=TEXT, words=many(TEXT), columns=many(TEXT), fields=many(ANYTHING)))),
    "QueryResult": shown(
        kind=TEXT, columns=many(shown(name=TEXT, type=TEXT)), items=many(ANYTHING), plan=TEXT, **_PAGE
    ),
    "Services": shown(items=many(reference("Service")), **_PAGE),
    "Service": shown(
        namespace=TEXT, name=TEXT, types=many(TEXT), ports=many(WHOLE), endpoints=WHOLE, readyEndpoints=WHOLE,
        clusters=many(ANYTHING),
    ),
    "Workloads": shown(items=many(reference("Workload")), **_PAGE),
    "Workload": shown(
        namespace=TEXT, kind=TEXT, name=TEXT, app=TEXT, pods=WHOLE, ready=WHOLE, images=many(TEXT),
        proxies=many(TEXT), revisions=many(WHOLE), clusters=many(ANYTHING),
    ),
    "Pod": ANYTHING,
    "Items": shown(items=many(ANYTHING)),
    "Acting": shown(
        cluster=TEXT, namespace=TEXT, pod=TEXT, proxy=TEXT, rootNamespace=TEXT,
        items=many(shown(kind=TEXT, namespace=TEXT, name=TEXT, reason=TEXT)),
    ),
    "Mistakes": shown(
        items=many(
            shown(
                cluster=TEXT, code=TEXT, severity={"type": "string", "enum": ["error", "warning"]}, kind=TEXT,
                namespace=TEXT, name=TEXT, path=TEXT, message=TEXT, fix=TEXT, related=many(TEXT),
            )
        )
    ),
    "Graph": shown(
        connections=many(
            shown(
                source=ANYTHING, destination=ANYTHING, requestsPerSecond=NUMBER, errorsPerSecond=NUMBER,
                successRate={"type": ["number", "null"], "minimum": 0, "maximum": 1},
                p99Ms={"type": ["number", "null"]}, between=many(ANYTHING),
            )
        ),
        clusters=many(TEXT), failed=many(shown(cluster=TEXT, code=TEXT, message=TEXT)), warnings=many(ANYTHING),
    ),
    "Hits": shown(items=many(shown(kind=TEXT, cluster=TEXT, namespace=TEXT, name=TEXT, score=WHOLE)), total=WHOLE),
    "Diff": shown(
        added=many(_REF), removed=many(_REF), changed=many(shown(kind=TEXT, fields=many(_FIELD))), totals=ANYTHING,
        complete=FLAG,
    ),
    "Check": _CHECK,
    "CheckWritten": {"type": "object", "required": ["query"], "properties": {
        "query": TEXT, "expect": {"type": "string", "enum": ["empty", "some"], "default": "empty"},
        "description": TEXT}, "additionalProperties": False},
    "Checks": shown(items=many(_CHECK)),
    "CheckResult": shown(name=TEXT, ok=FLAG, total=WHOLE, examples=many(ANYTHING), error=TEXT),
    "CheckResults": shown(items=many(reference("CheckResult")), ok=FLAG),
}  # fmt: skip

DESCRIPTION = """
All clusters in one view: ask for objects, services, workloads, the mesh, and what was before.

**Tokens.** Every path below `/api` needs `Authorization: Bearer TOKEN`.

**Time travel.** Where `at` is taken, the answer is as of that moment.

**Errors** have one shape, with a stable `code`; those of a query show the place with a caret.
"""


def document(operations: Sequence[Operation], *, title: str, version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _in_path(operation.path)
    ]
    in_query = [
        {"name": each.name, "in": "query", "required": each.required, "description": each.description,
         "schema": dict(each.schema)}
        for each in operation.parameters
    ]  # fmt: skip
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*in_path, *in_query],
        "responses": {
            "200": {"description": "Done", "content": {operation.media: {"schema": reference(operation.answer)}}},
            **{
                str(status): {
                    "description": CODES[status],
                    "content": {"application/json": {"schema": reference("Error")}},
                }
                for status in sorted({401, 422, 500, *operation.errors})
            },
        },
    }
    if operation.description:
        found["description"] = operation.description
    if operation.body:
        body = {"application/json": {"schema": reference(operation.body)}}
        found["requestBody"] = {"required": True, "content": body}
    return found
