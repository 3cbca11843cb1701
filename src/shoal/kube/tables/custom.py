"""Tables of custom resources, with the columns of their definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from shoal.kube import jsonpath
from shoal.kube.objects import Obj
from shoal.kube.tables.printer import NAME, Cells, Printer
from shoal.kube.tables.text import INVALID, epoch, human_duration, name

Show = Callable[[Any, float], Any]

_DEFAULT = (
    {
        "name": "Age",
        "type": "date",
        "description": "Time since the object was created.",
        "jsonPath": ".metadata.creationTimestamp",
    },
)


def custom_printer(additional: Sequence[Mapping[str, Any]] | None = None) -> Printer:
    """The printer for a version's ``additionalPrinterColumns``; compile it once, not per request. Raises ``ValueError``
    if a path cannot be parsed, which the validation of definitions prevents."""
    wanted = additional or _DEFAULT
    columns = [NAME, *(_definition(column) for column in wanted)]
    finders = [(jsonpath.compile(column["jsonPath"]), _SHOW.get(column["type"], _nothing)) for column in wanted]

    def cells(obj: Obj, now: float) -> Cells:
        row: Cells = [name(obj)]
        for find, show in finders:
            found = find(obj)
            row.append(show(found[0], now) if found else None)
        return row

    return Printer(columns, cells)


def _definition(column: Mapping[str, Any]) -> dict[str, Any]:
    path = column["jsonPath"]
    return {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format") or "",
        "description": column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        "priority": column.get("priority") or 0,
    }


def _text(value: Any, now: float) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(value: Any, now: float) -> Any:
    return int(value) if _is_number(value) else None


def _number(value: Any, now: float) -> Any:
    return value if _is_number(value) else None


def _boolean(value: Any, now: float) -> Any:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: float) -> Any:
    if not isinstance(value, str):
        return None
    moment = epoch(value)
    return INVALID if moment is None else human_duration(now - moment)


def _nothing(value: Any, now: float) -> Any:
    return None


_SHOW: dict[str, Show] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
