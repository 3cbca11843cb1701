"""Secret, Credential and ApiKey: values that can never be read back, and keys that are shown once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from shoal.control.domain.fields import Check, Reader
from shoal.control.domain.kinds.checks import is_header, is_plain, is_variable
from shoal.errors import forbidden, invalid, required, too_long
from shoal.kube.names import Faults

MAX_SECRET_BYTES = 512 * 1024
MAX_HEADER_BYTES = 8 * 1024
_FRAMING = frozenset(
    "host content-length content-type transfer-encoding connection keep-alive upgrade te trailer expect "
    "proxy-authorization proxy-connection".split()
)


@dataclass(frozen=True, slots=True)
class SealedSpec:
    """``values`` is None when only names were given, as ``get`` shows a secret: the values stay as they are."""

    names: tuple[str, ...]
    values: dict[str, str] | None = field(default=None, repr=False)
    names_field: ClassVar[str] = ""  # of the spec; it has the names


@dataclass(frozen=True, slots=True)
class SecretSpec(SealedSpec):
    """Variables of apps."""

    names_field: ClassVar[str] = "variables"


@dataclass(frozen=True, slots=True)
class CredentialSpec(SealedSpec):
    """Headers of calls that the control plane makes itself."""

    names_field: ClassVar[str] = "headers"


@dataclass(frozen=True, slots=True)
class ApiKeySpec:
    permissions: tuple[str, ...] = ()
    identity: str = ""  # whom the key stands for, as the app knows them
    meta: dict[str, Any] = field(default_factory=dict)
    expires_at: int = 0  # ms
    enabled: bool = True


def read_secret(spec: Reader) -> SecretSpec:
    names, values = _read_sealed(spec, SecretSpec.names_field, is_variable, _text_fault)
    spec.close()
    return SecretSpec(names, values)


def read_credential(spec: Reader) -> CredentialSpec:
    names, values = _read_sealed(spec, CredentialSpec.names_field, _is_own_header, _header_fault)
    if len({name.lower() for name in names}) != len(names):
        spec.note(forbidden(spec.at("values"), "may not have the same header twice"))
    if not names:
        spec.note(required(spec.at("values"), "name at least one header, such as Authorization: Bearer TOKEN"))
    spec.close()
    return CredentialSpec(names, values)


def _read_sealed(
    spec: Reader, names_field: str, is_own: Check, fault_of: Callable[[str], str]
) -> tuple[tuple[str, ...], dict[str, str] | None]:
    given = spec.has("values")
    values = _values(spec, is_own, fault_of) if given else None
    names = spec.texts(names_field, check=is_own, unique=True)
    if given and names and values is not None and set(names) != set(values):
        spec.note(forbidden(spec.at(names_field), f"must name the same {names_field} as values, or be left out"))
    spec.raw("values")
    return tuple(sorted(values if values is not None else names)), values


def _is_own_header(name: str) -> Faults:
    """A header that a caller may add: not one that frames the request or says whom it is for."""
    if name.lower() in _FRAMING:
        return ("is set by the control plane itself",)
    return is_header(name)


def _text_fault(value: str) -> str:
    return "may not contain a NUL character" if "\0" in value else ""


def _header_fault(value: str) -> str:
    if not value.isascii() or not value.isprintable() or value != value.strip() or not value:
        return "must be printable ASCII without spaces at its ends: it is the value of a header"
    return "" if len(value) <= MAX_HEADER_BYTES else f"may not be more than {MAX_HEADER_BYTES} bytes"


def _values(spec: Reader, is_own: Check, fault_of: Callable[[str], str]) -> dict[str, str]:
    """Like ``mapping``, but no fault ever shows a value."""
    found = spec.raw("values")
    path = spec.at("values")
    if not isinstance(found, dict):
        spec.note(forbidden(path, "must be an object of names and strings"))
        return {}
    for name, value in found.items():
        for fault in is_own(str(name)):
            spec.note(invalid(path, name, fault))
        if not isinstance(value, str):
            spec.note(forbidden(f"{path}[{name}]", "must be a string; put it in quotes"))
        elif why := fault_of(value):
            spec.note(forbidden(f"{path}[{name}]", why))
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
