"""Settings: a frozen dataclass filled from a file, the environment and flags, in rising order of precedence.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig:
        path: Path = setting(doc="database file")
        compact_every_s: float = setting(300.0, doc="0 turns compaction off")

    load(StoreConfig, file=Path("store.yaml"), environ=os.environ, prefix="SHOAL_STORE_", flags={"path": "/x"})

Fields may be str, int, float, bool, Path, an Enum, a tuple of one of these, any of them or None, or another such
dataclass; ``a.b`` is then written ``A__B`` in the environment. Whatever is wrong raises ``ConfigError`` that names the
key, the value, where it came from and the fix; values of secret-looking keys are not shown. ``json_schema`` describes
the same dataclass for editors and for ``shoal config schema``.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import orjson

from shoal.base.logs import REDACTED, is_secret_name
from shoal.errors import ConfigError

T = TypeVar("T")

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_JSON_TYPES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean"}


def setting(default: Any = dataclasses.MISSING, *, doc: str) -> Any:
    """A dataclass field with its explanation; without a default it must be given."""
    return dataclasses.field(default=default, metadata={"doc": doc})


def load(
    cls: type[T],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "SHOAL_",
    flags: Mapping[str, Any] | None = None,
) -> T:
    """Make a ``cls``. Flags that are None were not given; their keys are dotted. An empty variable counts as unset."""
    given: dict[str, _Given] = {}
    if file is not None:
        _flatten(cls, _read(file), "", f"file {file}", given)
    for key in _keys(cls):
        variable = prefix + key.upper().replace(".", "__")
        if environ and environ.get(variable):
            given[key] = _Given(environ[variable], f"environment variable {variable}")
    for key, value in (flags or {}).items():
        if value is not None:
            given[key] = _Given(value, f"flag --{key.replace('_', '-')}")
    return _build(cls, "", given)


def json_schema(cls: type[Any]) -> dict[str, Any]:
    """The JSON schema of the file form of ``cls``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": cls.__name__, **_object_schema(cls)}


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    value: Any
    source: str


def _is_group(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _fields(cls: type[Any]) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return [(field, hints[field.name]) for field in dataclasses.fields(cls) if field.init]


def _keys(cls: type[Any], path: str = "") -> list[str]:
    found: list[str] = []
    for field, kind in _fields(cls):
        key = f"{path}{field.name}"
        found += _keys(kind, f"{key}.") if _is_group(kind) else [key]
    return found


def _read(file: Path) -> Any:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"settings file {file}: {error.strerror}") from None
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(content) or {}
    import yaml  # many processes have no file, or one that is JSON

    try:
        return yaml.safe_load(content) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"settings file {file}: not YAML: {error}") from None


def _flatten(cls: type[Any], content: Any, path: str, source: str, into: dict[str, _Given]) -> None:
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path.rstrip('.') or 'the whole'} in {source} must be a mapping of settings")
    kinds = {field.name: kind for field, kind in _fields(cls)}
    for name, value in content.items():
        if name not in kinds:
            near = get_close_matches(str(name), kinds, n=1)
            fix = f"did you mean {path}{near[0]}?" if near else f"known here: {', '.join(sorted(kinds))}"
            raise ConfigError(f"{path}{name} in {source} is not a setting; {fix}")
        kind = kinds[name]
        if _is_group(kind):
            _flatten(kind, value, f"{path}{name}.", source, into)
        else:
            into[f"{path}{name}"] = _Given(value, source)


def _build(cls: type[T], path: str, given: Mapping[str, _Given]) -> T:
    arguments: dict[str, Any] = {}
    for field, kind in _fields(cls):
        key = f"{path}{field.name}"
        if _is_group(kind):
            if _has_default(field) and not any(name.startswith(f"{key}.") for name in given):
                continue
            arguments[field.name] = _build(kind, f"{key}.", given)
        elif key in given:
            arguments[field.name] = _convert(key, kind, given[key])
        elif not _has_default(field):
            raise ConfigError(f"{key} is not set: {field.metadata.get('doc', 'it has no default')}")
    return cls(**arguments)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _convert(key: str, kind: Any, given: _Given) -> Any:
    try:
        return _converted(kind, given.value)
    except (TypeError, ValueError):
        shown = REDACTED if is_secret_name(key) else repr(given.value)
        raise ConfigError(f"{key} is {shown} ({given.source}): use {_wanted(kind)}") from None


def _converted(kind: Any, value: Any) -> Any:
    if (inner := _optional(kind)) is not None:
        return None if value is None else _converted(inner, value)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise TypeError
        return tuple(_converted(item, part) for part in parts)
    if kind is bool:
        return _boolean(value)
    if kind is int and isinstance(value, bool | float):  # True is an int to Python, and int() would cut 1.5 to 1
        raise TypeError
    if kind is float and isinstance(value, bool):
        raise TypeError
    if kind in (str, Path) and not isinstance(value, str | Path):
        raise TypeError
    return kind(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ValueError


def _optional(kind: Any) -> Any:
    """``X`` of ``X | None``; None for every other type."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return None


def _wanted(kind: Any) -> str:
    if (inner := _optional(kind)) is not None:
        return f"{_wanted(inner)}, or nothing"
    if typing.get_origin(kind) is tuple:
        return f"a list, each {_wanted(typing.get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return {str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _object_schema(cls: type[Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field, kind in _fields(cls):
        schema = _value_schema(kind)
        if doc := field.metadata.get("doc"):
            schema["description"] = doc
        if field.default is not dataclasses.MISSING:
            schema["default"] = _plain(field.default)
        elif not _has_default(field) and not _is_group(kind):
            required.append(field.name)
        properties[field.name] = schema
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | {"required": required} if required else schema


def _value_schema(kind: Any) -> dict[str, Any]:
    if _is_group(kind):
        return _object_schema(kind)
    if (inner := _optional(kind)) is not None:
        return {"anyOf": [_value_schema(inner), {"type": "null"}]}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _value_schema(typing.get_args(kind)[0])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return {"type": _JSON_TYPES[kind]}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
