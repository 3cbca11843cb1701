"""The error tree of Shoal; each class knows its reason, and one table turns reasons into codes.

    ShoalError
    ├── ConfigError                a setting is wrong: names the key, the value and the fix
    └── ApiError                   an error answer of an API: becomes a Kubernetes ``Status`` or a Connect error
        ├── BadRequest 400 · Unauthorized 401 · Forbidden 403 · NotFound 404 · MethodNotAllowed 405
        ├── NotAcceptable 406 · AlreadyExists 409 · Conflict 409 · Expired 410 · TooLarge 413
        ├── UnsupportedMediaType 415 · Invalid 422 · TooManyRequests 429
        └── InternalError 500 · ServiceUnavailable 503 · Timeout 504

Servers raise these, clients raise the same classes back (``from_status``), so a caller in process and a caller
over the network handle one kind of error. Nothing here knows HTTP beyond the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

MAX_ERRORS_SHOWN = 250


class ShoalError(Exception):
    """Base of every error that Shoal raises on purpose."""


class ConfigError(ShoalError):
    """A setting cannot be used; the message names the key, the value and the fix."""


class Cause(StrEnum):
    """Kinds of field errors; the value is the ``reason`` of a Status cause."""

    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    NOT_FOUND = "FieldValueNotFound"
    TYPE_INVALID = "FieldValueTypeInvalid"
    INTERNAL = "InternalError"


_CAUSE_TEXT = {
    Cause.REQUIRED: "Required value",
    Cause.DUPLICATE: "Duplicate value",
    Cause.INVALID: "Invalid value",
    Cause.NOT_SUPPORTED: "Unsupported value",
    Cause.FORBIDDEN: "Forbidden",
    Cause.TOO_LONG: "Too long",
    Cause.TOO_MANY: "Too many",
    Cause.NOT_FOUND: "Not found",
    Cause.TYPE_INVALID: "Invalid value",
    Cause.INTERNAL: "Internal error",
}
_WITHOUT_VALUE = frozenset({Cause.REQUIRED, Cause.FORBIDDEN, Cause.TOO_LONG, Cause.INTERNAL})


def _show(value: Any) -> str:
    """A bad value as Kubernetes prints it: strings quoted, numbers bare, the rest as compact JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import json  # only for error texts

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field, worded as Kubernetes words it."""

    cause: Cause
    field: str
    detail: str = ""
    value: Any = None

    @property
    def body(self) -> str:
        """The message without the field's path."""
        text = _CAUSE_TEXT[self.cause]
        if self.cause not in _WITHOUT_VALUE:
            text += f": {_show(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(Cause.REQUIRED, field, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(Cause.INVALID, field, detail, value)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(Cause.FORBIDDEN, field, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(Cause.DUPLICATE, field, "", value)


def not_supported(field: str, value: Any, choices: Iterable[str]) -> FieldError:
    listed = ", ".join(_show(choice) for choice in sorted(choices))
    return FieldError(Cause.NOT_SUPPORTED, field, f"supported values: {listed}", value)


def too_long(field: str, limit: int) -> FieldError:
    return FieldError(Cause.TOO_LONG, field, f"may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError(Cause.TOO_MANY, field, f"must have at most {limit} items", count)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(Cause.TYPE_INVALID, field, detail, value)


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(Cause.NOT_FOUND, field, "", value)


def unknown_field(field: str, name: str, known: Iterable[str]) -> FieldError:
    """The error for an unknown field, with the most similar known one."""
    from difflib import get_close_matches  # only for error texts

    choices = sorted(set(known))
    folded = [choice for choice in choices if choice.lower() == name.lower()]
    meant = folded or get_close_matches(name, choices, n=1, cutoff=0.6)
    hint = f"did you mean {meant[0]}?" if meant else f"known fields: {', '.join(choices)}" if choices else ""
    return forbidden(field, f"unknown field; {hint}" if hint else "unknown field")


def qualified(resource: str, group: str) -> str:
    """``deployments.apps``, or ``pods`` for the core group, as messages name a resource."""
    return f"{resource}.{group}" if group else resource


class ApiError(ShoalError):
    """An answer that is not success. ``details`` is the Status' ``details`` field, without ``causes``."""

    reason: ClassVar[str] = ""
    code: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Mapping[str, str]] = (),
        retry_after_s: int | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.continue_token = continue_token

    def status(self) -> dict[str, Any]:
        """The Kubernetes ``Status`` object of this error."""
        details = dict(self.details)
        if self.causes:
            details["causes"] = [dict(cause) for cause in self.causes]
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if details:
            status["details"] = details
        status["code"] = self.code
        return status


class BadRequest(ApiError):
    """The request cannot be understood."""

    reason, code = "BadRequest", 400


class Unauthorized(ApiError):
    """No credentials, or unknown ones."""

    reason, code = "Unauthorized", 401


class Forbidden(ApiError):
    """The user is known, but not allowed to do this."""

    reason, code = "Forbidden", 403


class NotFound(ApiError):
    """The object, resource or path does not exist."""

    reason, code = "NotFound", 404

    @classmethod
    def of(cls, resource: str, group: str, name: str) -> NotFound:
        return cls(f'{qualified(resource, group)} "{name}" not found', details=_named(resource, group, name))


class MethodNotAllowed(ApiError):
    """The path exists, the verb does not."""

    reason, code = "MethodNotAllowed", 405


class NotAcceptable(ApiError):
    """The server supports none of the requested representations."""

    reason, code = "NotAcceptable", 406


class AlreadyExists(ApiError):
    """An object of that name already exists."""

    reason, code = "AlreadyExists", 409

    @classmethod
    def of(cls, resource: str, group: str, name: str) -> AlreadyExists:
        return cls(f'{qualified(resource, group)} "{name}" already exists', details=_named(resource, group, name))


class Conflict(ApiError):
    """The object changed since it was read, or a precondition does not hold."""

    reason, code = "Conflict", 409

    @classmethod
    def of(cls, resource: str, group: str, name: str, why: str = "") -> Conflict:
        why = why or "the object has been modified; please apply your changes to the latest version and try again"
        return cls(
            f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}',
            details=_named(resource, group, name),
        )


class Expired(ApiError):
    """The requested revision is no longer stored; list again."""

    reason, code = "Expired", 410


class TooLarge(ApiError):
    """The body, or the object that it makes, is over the limit."""

    reason, code = "RequestEntityTooLarge", 413

    @classmethod
    def of(cls, resource: str, group: str, name: str, size: int, limit: int) -> TooLarge:
        """The error of an object that would be too large once stored."""
        return cls(
            f'{qualified(resource, group)} "{name}" would have {size} bytes as stored, the limit is {limit} bytes: '
            "remove something from it, or split it into several objects",
            details=_named(resource, group, name),
        )


class UnsupportedMediaType(ApiError):
    """The body's content type is not one this path takes."""

    reason, code = "UnsupportedMediaType", 415


class Invalid(ApiError):
    """The object is understood but breaks its rules; ``errors`` has every field at fault, the message the first ones:
    an answer must not be many times as large as its request."""

    reason, code = "Invalid", 422
    errors: tuple[FieldError, ...] = ()

    @classmethod
    def of(cls, kind: str, group: str, name: str, errors: Sequence[FieldError]) -> Invalid:
        shown = errors[:MAX_ERRORS_SHOWN]
        texts = [str(error) for error in shown]
        if len(errors) > len(shown):
            texts.append(f"and {len(errors) - len(shown)} more")
        listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        made = cls(
            f'{qualified(kind, group)} "{name}" is invalid: {listed}',
            details=_named(kind, group, name),
            causes=[{"reason": str(e.cause), "message": e.body, "field": e.field} for e in shown],
        )
        made.errors = tuple(errors)
        return made


class TooManyRequests(ApiError):
    """Too many requests; retry after ``retry_after_s``."""

    reason, code = "TooManyRequests", 429


class InternalError(ApiError):
    """An internal error of the server."""

    reason, code = "InternalError", 500


class ServiceUnavailable(ApiError):
    """A component that the request needs is unavailable."""

    reason, code = "ServiceUnavailable", 503


class Timeout(ApiError):
    """The answer did not arrive in time."""

    reason, code = "Timeout", 504


def _named(resource: str, group: str, name: str) -> dict[str, str]:
    details = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in details.items() if value}


_CLASSES: tuple[type[ApiError], ...] = (
    BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, AlreadyExists, Conflict,
    Expired, TooLarge, UnsupportedMediaType, Invalid, TooManyRequests, InternalError, ServiceUnavailable, Timeout,
)  # fmt: skip
_BY_REASON: dict[str, type[ApiError]] = {cls.reason: cls for cls in _CLASSES}
_BY_REASON |= {"Gone": Expired, "ServerTimeout": Timeout}
_BY_CODE: dict[int, type[ApiError]] = {cls.code: cls for cls in _CLASSES}  # of two with one code, the later: Conflict


def from_status(status: Mapping[str, Any], http_code: int = 0) -> ApiError:
    """The error a Status describes, for clients. ``reason`` decides; unknown reasons fall back to the code."""
    details = dict(status.get("details") or {})
    causes = details.pop("causes", None) or ()
    retry_after_s = details.pop("retryAfterSeconds", None)
    code = int(status.get("code") or http_code or 500)
    cls = _BY_REASON.get(status.get("reason") or "") or _BY_CODE.get(code, InternalError)
    return cls(
        status.get("message") or f"the server answered {code}",
        details=details,
        causes=causes,
        retry_after_s=retry_after_s,
        continue_token=(status.get("metadata") or {}).get("continue", ""),
    )
