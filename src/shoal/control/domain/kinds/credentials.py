"""Secret and ApiKey: values that can never be read back, and keys that are shown once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_plain, is_variable
from shoal.errors import forbidden, invalid, too_long
from shoal.kube.names import Faults

MAX_SECRET_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """``values`` is None when only names were given, as ``get`` shows a secret: the values stay as they are."""

    variables: tuple[str, ...]
    values: dict[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ApiKeySpec:
    permissions: tuple[str, ...] = ()
    identity: str = ""  # whom the key stands for, as the app knows them
    meta: dict[str, Any] = field(default_factory=dict)
    expires_at: int = 0  # ms
    enabled: bool = True


def read_secret(spec: Reader) -> SecretSpec:
    given = spec.has("values")
    values = _values(spec) if given else None
    variables = spec.texts("variables", check=is_variable, unique=True)
    if given and variables and values is not None and set(variables) != set(values):
        spec.note(forbidden(spec.at("variables"), "must name the same variables as values, or be left out"))
    spec.raw("values")
    spec.close()
    return SecretSpec(tuple(sorted(values if values is not None else variables)), values)


def _values(spec: Reader) -> dict[str, str]:
    """Like ``mapping``, but no fault ever shows a value."""
    found = spec.raw("values")
    path = spec.at("values")
    if not isinstance(found, dict):
        spec.note(forbidden(path, "must be an object of names and strings"))
        return {}
    for name, value in found.items():
        for fault in is_variable(str(name)):
            spec.note(invalid(path, name, fault))
        if not isinstance(value, str):
            spec.note(forbidden(f"{path}[{name}]", "must be a string; put it in quotes"))
        elif "\0" in value:
            spec.note(forbidden(f"{path}[{name}]", "may not contain a NUL character"))
    if sum(len(str(name)) + len(str(value)) for name, value in found.items()) > MAX_SECRET_BYTES:
        spec.note(too_long(path, MAX_SECRET_BYTES))
    return {str(name): str(value) for name, value in found.items()}


def read_api_key(spec: Reader) -> ApiKeySpec:
    expires = spec.text("expiresAt", check=_is_time)
    meta = spec.raw("meta")
    if meta is not None and not isinstance(meta, dict):
        spec.note(invalid(spec.at("meta"), meta, "must be an object"))
        meta = {}
    made = ApiKeySpec(
        permissions=spec.texts("permissions", check=is_plain, unique=True),
        identity=spec.text("identity", check=is_plain),
        meta=meta or {},
        expires_at=_ms(expires) if expires and not _is_time(expires) else 0,
        enabled=spec.flag("enabled", True),
    )
    spec.close()
    return made


def _is_time(value: str) -> Faults:
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return ("must be a time such as 2027-01-31T12:00:00Z",)
    return () if parsed.tzinfo is not None else ("must name its time zone, such as 2027-01-31T12:00:00Z",)


def _ms(value: str) -> int:
    return int(datetime.fromisoformat(value).timestamp() * 1000)
