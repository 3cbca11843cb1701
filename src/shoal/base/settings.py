"""Settings: a frozen dataclass filled from defaults, a file, the environment and flags, in rising order of precedence.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig:
        path: Path = setting(doc="database file")
        compact_every_s: float = setting(300.0, doc="0 turns compaction off")

    load(StoreConfig, file=Path("store.yaml"), environ=os.environ, prefix="SHOAL_STORE_", flags={"path": "/x"})

Fields may be str, int, float, bool, Path, an Enum, a tuple or frozenset of one of these, any of them or None, or
another such dataclass; ``a.b`` is then written ``A__B`` in the environment. Every error raises ``ConfigError``
with the key, the value, its source and the fix; values of secret-looking keys are not shown. ``check``,
``effective`` and ``json_schema`` are for ``shoal config``.
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

from shoal.base.logs import REDACTED, is_secret_name, redact
from shoal.errors import ConfigError

T = TypeVar("T")

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_JSON_TYPES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean"}


def setting(default: Any = dataclasses.MISSING, *, doc: str) -> Any:
    """A dataclass field with its explanation; without a default it must be given."""
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclasses.dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """The value that a process would use, as it may be shown, and its source; both empty where none is known."""

    key: str
    value: Any
    source: str


def load(
    cls: type[T],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "SHOAL_",
    variables: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Make a ``cls``. Flags that are None were not given; their keys are dotted. An empty variable counts as unset.
    ``variables`` names further variables by key; one with the prefix wins over them."""
    return _build(cls, "", _gather(cls, file, environ or {}, prefix, variables or {}, flags or {}, defaults or {}))


def with_values(settings: T, values: Mapping[str, Any], source: str) -> T:
    """The settings with other values for some dotted keys, as texts or converted; checked like those of a file."""
    cls = type(settings)
    known = _keys(cls)
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise ConfigError(f"{key} ({source}) is not a setting" + (f"; did you mean {near[0]}?" if near else ""))
    given = {key: _Given(value_of(settings, key), "") for key in known}
    return _build(cls, "", given | {key: _Given(value, source) for key, value in values.items()})


def value_of(settings: Any, key: str) -> Any:
    """The value of a dotted key."""
    for part in key.split("."):
        settings = getattr(settings, part)
    return settings


def text_of(value: Any) -> str:
    """A value in the form that variables and ``with_values`` take."""
    plain = _plain(value)
    if isinstance(plain, list):
        return ",".join(text_of(each) for each in plain)
    return str(plain).lower() if isinstance(plain, bool) else "" if plain is None else f"{plain}"


def check(cls: type[Any], file: Path) -> None:
    """Raise ``ConfigError`` unless the file is good for ``cls``. Missing settings may come from other sources."""
    given = _gather(cls, file, {}, "", {}, {}, {})
    for key, kind in _keys(cls).items():
        if key not in given and _default(cls, key) is dataclasses.MISSING:
            given[key] = _Given(_STAND_INS[kind], "")
    _build(cls, "", given)


def effective(
    cls: type[Any],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "SHOAL_",
    variables: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> list[EffectiveSetting]:
    """Every setting with its value and where that comes from; secrets are redacted."""
    given = _gather(cls, file, environ or {}, prefix, variables or {}, {}, defaults or {})
    found = []
    for key, kind in _keys(cls).items():
        if key in given:
            value, source = _convert(key, kind, given[key]), given[key].source
        else:
            value, source = _default(cls, key), "default"
            if value is dataclasses.MISSING:
                value, source = None, ""
        shown = REDACTED if value and is_secret_name(key) else redact(_plain(value))
        found.append(EffectiveSetting(key, shown, source))
    return found


def json_schema(cls: type[Any]) -> dict[str, Any]:
    """The JSON schema of the file form of ``cls``. No field is required: missing ones may come from the
    environment or from flags."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": cls.__name__, **_object_schema(cls)}


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    value: Any
    source: str


_STAND_INS: Mapping[Any, Any] = {str: "unset", Path: Path("unset")}  # for required settings in ``check``


def _gather(
    cls: type[Any],
    file: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    variables: Mapping[str, str],
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> dict[str, _Given]:
    """The value of each key from the source with the highest precedence."""
    given = {key: _Given(value, "default") for key, value in defaults.items()}
    if file is not None:
        _flatten(cls, _read(file), "", f"file {file}", given)
    for key in _keys(cls):
        for variable in (variables.get(key, ""), prefix + key.upper().replace(".", "__")):
            if environ.get(variable):
                given[key] = _Given(environ[variable], f"environment variable {variable}")
    for key, value in flags.items():
        if value is not None:
            given[key] = _Given(value, f"flag --{key.replace('_', '-')}")
    return given


def _is_group(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _fields(cls: type[Any]) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return [(field, hints[field.name]) for field in dataclasses.fields(cls) if field.init]


def _keys(cls: type[Any], path: str = "") -> dict[str, Any]:
    """The dotted keys in the order of the fields, each with its type."""
    found: dict[str, Any] = {}
    for field, kind in _fields(cls):
        key = f"{path}{field.name}"
        found |= _keys(kind, f"{key}.") if _is_group(kind) else {key: kind}
    return found


def _default(cls: type[Any], key: str) -> Any:
    """The default of a dotted key; MISSING when it must be given."""
    name, _, rest = key.partition(".")
    field = next(each for each in dataclasses.fields(cls) if each.name == name)
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if not rest:
        return value
    if value is dataclasses.MISSING:
        return _default({each.name: kind for each, kind in _fields(cls)}[name], rest)
    for part in rest.split("."):
        value = getattr(value, part)
    return value


def _read(file: Path) -> Any:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"settings file {file}: {error.strerror}") from None
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(content) or {}
    import yaml  # many processes have no file, or one that is JSON

    class Loader(yaml.SafeLoader):
        """Reads `on`, `off`, `yes` and `no` as text: some settings have these among their words, and where a
        setting is true or false, text is converted."""

        yaml_implicit_resolvers = {
            first: found if first in "tTfF" else [(tag, form) for tag, form in found if not tag.endswith(":bool")]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return yaml.load(content, Loader) or {}  # noqa: S506 - it is a SafeLoader
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
    if (made := typing.get_origin(kind)) in (tuple, frozenset):
        item = typing.get_args(kind)[0]
        parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple | frozenset):
            raise TypeError
        return made(_converted(item, part) for part in parts)
    if kind is bool:
        return _boolean(value)
    if kind is int and isinstance(value, bool | float):  # True is an int to Python, and int() would cut 1.5 to 1
        raise TypeError
    if kind is float and isinstance(value, bool):
        raise TypeError
    if kind in (str, Path) and not isinstance(value, str | Path):
        raise TypeError
    return Path(value).expanduser() if kind is Path else kind(value)


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
    if typing.get_origin(kind) in (tuple, frozenset):
        return f"a list, each {_wanted(typing.get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return {str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _object_schema(cls: type[Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field, kind in _fields(cls):
        schema = _value_schema(kind)
        if doc := field.metadata.get("doc"):
            schema["description"] = doc
        if field.default is not dataclasses.MISSING:
            schema["default"] = _plain(field.default)
        properties[field.name] = schema
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value_schema(kind: Any) -> dict[str, Any]:
    if _is_group(kind):
        return _object_schema(kind)
    if (inner := _optional(kind)) is not None:
        return {"anyOf": [_value_schema(inner), {"type": "null"}]}
    if typing.get_origin(kind) in (tuple, frozenset):
        return {"type": "array", "items": _value_schema(typing.get_args(kind)[0])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return {"type": _JSON_TYPES[kind]}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value
