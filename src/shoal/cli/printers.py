"""Results on standard output: an aligned table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


class Format(StrEnum):
    """The values of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def render(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format = Format.TABLE) -> str:
    """``rows`` as text; ``columns`` are the keys a table shows, in order. JSON and YAML carry every key."""
    if fmt is Format.TABLE:
        return _table([[cell(row.get(column)) for column in columns] for row in rows], columns)
    return document([dict(row) for row in rows], fmt)


def document(value: Any, fmt: Format) -> str:
    """Any value as JSON or YAML."""
    if fmt is Format.JSON:
        return json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n"
    import yaml  # most commands print tables

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text


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
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _table(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    lines = [[column.upper().replace("_", " ") for column in columns], *cells]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    padded = ("   ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(line.rstrip() + "\n" for line in padded)
