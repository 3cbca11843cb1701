"""Results on standard output: an aligned table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """The values of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def render(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], fmt: Format = Format.TABLE) -> str:
    """``rows`` as text; ``columns`` are the keys a table shows, in order. JSON and YAML carry every key."""
    match fmt:
        case Format.JSON:
            return json.dumps([dict(row) for row in rows], indent=2, default=str) + "\n"
        case Format.YAML:
            import yaml  # most commands print tables

            return yaml.safe_dump([dict(row) for row in rows], sort_keys=False)
        case Format.TABLE:
            return _table([[_cell(row.get(column)) for column in columns] for row in rows], columns)


def _table(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    lines = [[column.upper().replace("_", " ") for column in columns], *cells]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    padded = ("   ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(line.rstrip() + "\n" for line in padded)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)
