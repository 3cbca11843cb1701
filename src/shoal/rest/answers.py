"""Answers of an API: JSON, and errors of one shape with stable codes.

    {"error": {"code": "Invalid", "message": "…", "details": [{"field": "spec.image", "message": "…"}],
               "correlation": "…"}}

``code`` is the reason of an error of ``shoal.errors``; its HTTP status comes with it. An answer is an ASGI application
by itself, so anything else that is one can be returned in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from shoal.base.asgi_common import Receive, Scope, Send
from shoal.errors import ApiError, FieldError, InternalError, Invalid, MethodNotAllowed, NotFound, Unauthorized

JSON = "application/json"
_MESSAGE_LENGTH = 8192
_FIELD_LENGTH = 512


class PreconditionFailed(ApiError):
    """The object is not at the version that the request was made for."""

    reason, code = "PreconditionFailed", 412


class ErrorField(msgspec.Struct):
    """One field of the request that is wrong."""

    field: str
    message: str


class ErrorFacts(msgspec.Struct):
    """Codes are stable, messages are for people."""

    code: str
    message: str
    details: list[ErrorField]
    correlation: str


class Error(msgspec.Struct):
    """The body of every answer that is not success."""

    error: ErrorFacts


class RestAnswer:
    """A whole answer."""

    __slots__ = ("body", "headers", "media", "status")

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, media: str = JSON
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers
        self.media = media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self.media.encode("latin-1")),
            (b"content-length", str(len(self.body)).encode()),
        ]
        for name, value in (self.headers or {}).items():
            headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else self.body
        await send({"type": "http.response.body", "body": body})


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> RestAnswer:
    """``content`` is made of plain values and structs."""
    return RestAnswer(orjson.dumps(content, default=msgspec.to_builtins), status, headers)


def error_answer(
    error: ApiError, correlation: str, *, message: str = "", more: Mapping[str, Any] | None = None
) -> RestAnswer:
    """``message`` replaces the error's own; ``more`` is added beside the error."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="shoal"'
    return json_answer({"error": error_json(error, correlation, message=message), **(more or {})}, error.code, headers)


def error_json(error: ApiError, correlation: str, *, message: str = "") -> dict[str, Any]:
    text = message or error.message
    return {
        "code": error.reason,
        "message": text if len(text) <= _MESSAGE_LENGTH else text[:_MESSAGE_LENGTH] + "…",
        "details": [
            {"field": cause.get("field", "")[:_FIELD_LENGTH], "message": cause.get("message", "")}
            for cause in error.causes
        ],
        "correlation": correlation,
    }


def bad_fields(errors: Sequence[FieldError]) -> Invalid:
    """The request itself has these faults."""
    found = Invalid.of("the request", "", "", errors)
    made = Invalid(found.message.replace('the request "" is', "the request is", 1), causes=found.causes)
    made.errors = tuple(errors)
    return made


def bad_query(error: FieldError) -> Invalid:
    """A parameter of the query has this fault."""
    return bad_fields([FieldError(error.cause, f"query.{error.field}", error.detail, error.value)])


def no_such(what: str, name: str) -> NotFound:
    return NotFound(f"{what} {name[:100]!r} not found")


def unknown_path(path: str) -> NotFound:
    return NotFound(f"path {path[:200]} not found: see /docs, or /openapi.json")


def unknown_method(method: str, path: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"{method[:16]} is not possible at {path[:200]}: see /docs, or /openapi.json")


def internal_error() -> InternalError:
    return InternalError("internal error: find the details in the server's log under this correlation id")
