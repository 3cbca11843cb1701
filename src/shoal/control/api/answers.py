"""What the API answers: JSON, and errors of one shape with stable codes.

    {"error": {"code": "Invalid", "message": "…", "details": [{"field": "spec.image", "message": "…"}],
               "correlation": "…"}}

``code`` is the reason of an error of ``shoal.errors``; its HTTP status comes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from shoal.control.database.failures import DatabaseAway, Unsure
from shoal.control.domain.model import Applied, Deleted, Ref
from shoal.errors import ApiError, InternalError, MethodNotAllowed, NotFound, Unauthorized

JSON = "application/json"
MESSAGE_LENGTH = 8192
_FIELD_LENGTH = 512


class PreconditionFailed(ApiError):
    """The object is not at the version that the request was made for."""

    reason, code = "PreconditionFailed", 412


class KeyReused(ApiError):
    """An idempotency key came back with another request."""

    reason, code = "IdempotencyKeyReused", 422


# What an answer with an error may say in ``code``; clients may rely on these words.
CODES = {
    400: ("BadRequest",),
    401: ("Unauthorized",),
    403: ("Forbidden",),
    404: ("NotFound",),
    405: ("MethodNotAllowed",),
    409: ("AlreadyExists", "Conflict"),
    412: ("PreconditionFailed",),
    413: ("RequestEntityTooLarge",),
    415: ("UnsupportedMediaType",),
    422: ("Invalid", "IdempotencyKeyReused"),
    429: ("TooManyRequests",),
    500: ("InternalError",),
    503: ("ServiceUnavailable",),
}


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, dict(headers or {}), JSON)


def object_answer(obj: dict[str, Any]) -> Response:
    return json_answer(obj, headers={"ETag": etag(obj)})


def applied_answer(applied: Applied) -> Response:
    status = 201 if applied.created and not applied.dry_run else 200
    return json_answer(applied_json(applied), status, {"ETag": etag(applied.object)})


def etag(obj: Mapping[str, Any]) -> str:
    return f'"{obj["metadata"]["version"]}"'


def applied_json(applied: Applied) -> dict[str, Any]:
    return {
        "object": applied.object,
        "created": applied.created,
        "changed": [diff.as_json() for diff in applied.changed],
        "effects": [effect.as_json() for effect in applied.effects],
        "warnings": applied.warnings,
        "dryRun": applied.dry_run,
    }


def deleted_json(deleted: Deleted) -> dict[str, Any]:
    return {
        "object": deleted.object,
        "also": [ref_json(ref) for ref in deleted.also],
        "effects": [effect.as_json() for effect in deleted.effects],
        "dryRun": deleted.dry_run,
    }


def ref_json(ref: Ref) -> dict[str, str]:
    return {"kind": ref.kind, "name": ref.name, "project": ref.project, "environment": ref.environment}


def error_json(error: ApiError, correlation: str) -> dict[str, Any]:
    return {
        "code": error.reason,
        "message": public_message(error),
        "details": [
            {"field": cause.get("field", "")[:_FIELD_LENGTH], "message": cause.get("message", "")}
            for cause in error.causes
        ],
        "correlation": correlation,
    }


def error_answer(error: ApiError, correlation: str, *, more: Mapping[str, Any] | None = None) -> Response:
    found: dict[str, str] = {}
    if error.retry_after_s is not None:
        found["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        found["WWW-Authenticate"] = 'Bearer realm="shoal"'
    return json_answer({"error": error_json(error, correlation), **(more or {})}, error.code, found)


def public_message(error: ApiError) -> str:
    """What a driver says of its connection is for the log: it names hosts and users."""
    if isinstance(error, Unsure):
        return "the database went away while the change was made, so it may have been made or not: look, then try again"
    if isinstance(error, DatabaseAway):
        return f"the database is away, so nothing was changed: try again in {error.retry_after_s or 1} s"
    return error.message if len(error.message) <= MESSAGE_LENGTH else error.message[:MESSAGE_LENGTH] + "…"


def unknown_path(path: str) -> NotFound:
    return NotFound(f"there is nothing at {path[:200]}: see /docs, or /openapi.json")


def unknown_method(method: str, path: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"{method[:16]} is not possible at {path[:200]}: see /docs, or /openapi.json")


def fault_of_ours() -> InternalError:
    return InternalError("something went wrong here; the log has the details under this correlation id")
