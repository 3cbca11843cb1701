"""Results on standard output: an aligned table for people, JSON, YAML, names or chosen fields for programs.

A table has colours where standard output is a terminal, unless ``NO_COLOR`` is set or the terminal is ``dumb``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.errors import ConfigError

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_JSONPATH = "jsonpath"
_BOLD, _GREEN, _YELLOW, _RED, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_COLOURED = ("state", "status", "health", "verdict", "freshness")  # columns
_COLOURS = {
    **dict.fromkeys(("ready", "joined", "healthy", "ok", "current", "active", "promoted", "running"), _GREEN),
    **dict.fromkeys(("progressing", "waiting", "pending", "stale", "warning", "older", "out", "paused"), _YELLOW),
    **dict.fromkeys(("failed", "lost", "degraded", "error", "refused", "unhealthy", "revoked", "rolledback"), _RED),
}

NameOf = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Format:
    """A value of ``-o``; ``path`` is what follows ``jsonpath=``."""

    word: str
    path: str = ""

    TABLE: ClassVar[Format]
    WIDE: ClassVar[Format]
    JSON: ClassVar[Format]
    YAML: ClassVar[Format]
    NAME: ClassVar[Format]

    @property
    def is_table(self) -> bool:
        """For people: a table, or a text."""
        return self.word in ("table", "wide")

    def __str__(self) -> str:
        return f"{self.word}={self.path}" if self.path else self.word


Format.TABLE, Format.WIDE = Format("table"), Format("wide")
Format.JSON, Format.YAML, Format.NAME = Format("json"), Format("yaml"), Format("name")
FORMATS = ("table", "wide", "json", "yaml", "name", f"{_JSONPATH}=")


def read_format(text: str | Format) -> Format:
    """The format that ``-o`` names; raises ConfigError."""
    if isinstance(text, Format):
        return text
    word, _, path = text.partition("=")
    if word == _JSONPATH:
        if not path:
            raise ConfigError("output is 'jsonpath': the path is missing; use for example jsonpath='{.metadata.name}'")
        from shoal.cli.templates import fields_of  # most commands print tables

        fields_of(path)
        return Format(word, path)
    if f"{text}" in FORMATS:
        return Format(word)
    raise ConfigError(f"output is {text!r}: use {', '.join(FORMATS[:-1])} or {_JSONPATH}=PATH")


def put(value: Any, fmt: Format, table: Callable[[], str], *, name: NameOf | None = None) -> None:
    """Print one result: the text that ``table`` makes for people, or ``value`` for programs."""
    sys.stdout.write(table() if fmt.is_table else document(value, fmt, name=name))


def put_rows(
    items: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format, *, wide: Sequence[str] = (),
    rows: Callable[[], Sequence[Mapping[str, Any]]] | None = None, empty: str = "nothing found",
    name: NameOf | None = None, value: Any = None,
) -> None:  # fmt: skip
    """Print a list. ``rows`` makes the rows of the table, ``wide`` are further columns of ``-o wide``, ``empty`` is
    said instead of an empty table, and ``value`` is what programs get if that is not ``items``."""

    def table() -> str:
        found = rows() if rows is not None else items
        return render(found, columns, fmt, wide) if found else f"{empty}\n"

    put(items if value is None else value, fmt, table, name=name)


def render(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format = Format.TABLE, wide: Sequence[str] = ()
) -> str:
    """``rows`` as text; ``columns`` are the keys a table shows, in order. JSON and YAML carry every key."""
    if fmt.is_table:
        shown = (*columns, *wide) if fmt == Format.WIDE else columns
        return _table([[cell(row.get(column)) for column in shown] for row in rows], shown)
    return document([dict(row) for row in rows], fmt)


def document(value: Any, fmt: Format, *, name: NameOf | None = None) -> str:
    """Any value as JSON, YAML, names or the fields of a path."""
    if fmt == Format.JSON:
        return json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n"
    if fmt == Format.NAME:
        return "".join(f"{(name or name_of)(each)}\n" for each in _items(value))
    if fmt.word == _JSONPATH:
        from shoal.cli.templates import fields_of

        return fields_of(fmt.path)(json.loads(json.dumps(value, default=str)))
    import yaml  # most commands print tables

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text


def line_document(value: Any, fmt: Format, *, name: NameOf | None = None) -> str:
    """One value of a stream: a line of JSON, a YAML document, or its name or fields on a line."""
    if fmt == Format.JSON:
        return json.dumps(value, ensure_ascii=False, default=str) + "\n"
    text = document(value, fmt, name=name)
    return f"---\n{text}" if fmt == Format.YAML else text if text.endswith("\n") else f"{text}\n"


def name_of(item: Any) -> str:
    """What commands call an object: KIND/PROJECT/ENVIRONMENT/NAME, or CLUSTER/NAMESPACE/NAME."""
    found = item.get("object", item) if isinstance(item, Mapping) else {}
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    if isinstance(metadata, Mapping) and metadata.get("name"):
        parts = (str(found.get("kind", "")).lower(), *(metadata.get(part) for part in ("project", "environment")))
        return "/".join(str(part) for part in (*parts, metadata["name"]) if part)
    if isinstance(found, Mapping) and found.get("name"):
        return "/".join(str(found[part]) for part in ("cluster", "namespace", "name") if found.get(part))
    raise ConfigError("output is 'name': this answer has no names; use json, yaml or jsonpath")


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and isinstance(value.get("items"), list):
        return list(value["items"])
    return list(value) if isinstance(value, list | tuple) else [value]


def has_colours() -> bool:
    """Whether standard output shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def facts(pairs: Sequence[tuple[str, Any]], indent: str = "") -> str:
    """One ``name: value`` line each; empty values are left out."""
    shown = [(name, cell(value)) for name, value in pairs if value not in (None, "", [], {}, ())]
    width = max((len(name) for name, _ in shown), default=0) + 2
    return "".join(f"{indent}{name + ':':<{width}} {value}\n" for name, value in shown)


def indented(text: str, indent: str = "  ") -> str:
    return "".join(f"{indent}{line}\n" if line else "\n" for line in text.splitlines())


def duration(seconds: float | None) -> str:
    """A duration in its largest unit."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for limit, unit, word in ((2 * _MINUTE_S, 1, "s"), (2 * _HOUR_S, _MINUTE_S, "m"), (2 * _DAY_S, _HOUR_S, "h")):
        if seconds < limit:
            return f"{int(seconds // unit)}{word}"
    return f"{int(seconds // _DAY_S)}d"


def brief(value: Any, length: int = 60) -> str:
    """Any value as one short line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def cell(value: Any) -> str:
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _table(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    lines = [[column.upper().replace("_", " ") for column in columns], *cells]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    padded = [[f"{text:<{width}}" for text, width in zip(line, widths, strict=True)] for line in lines]
    if has_colours():
        padded = [[f"{_BOLD}{text}{_PLAIN}" for text in padded[0]], *(_coloured(line, columns) for line in padded[1:])]
    return "".join("   ".join(line).rstrip() + "\n" for line in padded)


def _coloured(line: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The cells of a line, those that say how something is in the colour of what they say."""
    colours = [_COLOURS.get(_first_word(text)) if column in _COLOURED else None
               for text, column in zip(line, columns, strict=True)]  # fmt: skip
    return [f"{colour}{text}{_PLAIN}" if colour else text for text, colour in zip(line, colours, strict=True)]


def _first_word(text: str) -> str:
    return text.partition(" ")[0].rstrip(",;:").lower()
