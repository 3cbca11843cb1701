"""What the API answers: JSON, and errors of one shape with stable codes, as the control plane's API has them.

{"error": {"code": "BadRequest", "message": "…", "details": [{"field": "query", "message": "…"}],
           "correlation": "…"}}
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from shoal.errors import ApiError, InternalError, MethodNotAllowed, NotFound, Unauthorized

JSON = "application/json"
_FIELD_LENGTH = 512
_MESSAGE_LENGTH = 8192

CODES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""By status, what an error's ``code`` says; clients may rely on these words."""


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, dict(headers or {}), JSON)


def error_answer(error: ApiError, correlation: str) -> Response:
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="shoal"'
    return json_answer({"error": error_json(error, correlation)}, error.code, headers)


def error_json(error: ApiError, correlation: str) -> dict[str, Any]:
    message = error.message
    return {
        "code": error.reason,
        "message": message if len(message) <= _MESSAGE_LENGTH else message[:_MESSAGE_LENGTH] + "…",
        "details": [
            {"field": cause.get("field", "")[:_FIELD_LENGTH], "message": cause.get("message", "")}
            for cause in error.causes
        ],
        "correlation": correlation,
    }


def unknown_path(path: str) -> NotFound:
    return NotFound(f"there is nothing at {path[:200]}: see /openapi.json")


def unknown_method(method: str, path: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"{method[:16]} is not possible at {path[:200]}: see /openapi.json")


def fault_of_ours() -> InternalError:
    return InternalError("something went wrong here; the log has the details under this correlation id")


def position_of(parts: Sequence[str]) -> str:
    """Where a list goes on, as clients hand it back."""
    return base64.urlsafe_b64encode(orjson.dumps(list(parts))).decode().rstrip("=")


def parts_of_position(text: str, count: int) -> tuple[str, ...] | None:
    """None for what is no position."""
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        return None
    if isinstance(found, list) and len(found) == count and all(isinstance(part, str) for part in found):
        return tuple(found)
    return None
