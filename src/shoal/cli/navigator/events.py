"""Kubernetes events of clusters, for ``shoal events --cluster``."""

from __future__ import annotations

import sys
import threading
from typing import Any

from shoal.cli.navigator.session import opened, path_of
from shoal.cli.printers import Format, cell, put_rows
from shoal.cli.rest import Rest
from shoal.cli.timestamps import clock_time

ALL = "all"
COLUMNS = ("time", "cluster", "type", "reason", "object", "count", "message")
_POLL_S = 2.0


def show_cluster_events(
    cluster: str, kind: str, name: str, *, limit: int, follow: bool, output: Format, context: str
) -> None:
    """Print the events of one cluster, or of ``all``; with ``follow`` until interrupted."""
    with opened(context) as rest:
        params = {"cluster": "" if cluster == ALL else cluster, "kind": kind.capitalize(), "limit": limit}
        if "/" in name:
            params["namespace"], _, name = name.partition("/")
        params["name"] = name
        items = _read(rest, params)
        put_rows(items, COLUMNS, output, rows=lambda: _rows(items), empty="no events")
        if follow:
            _follow(rest, params, items)


def _read(rest: Rest, params: dict[str, Any]) -> list[dict[str, Any]]:
    answer = rest.get(path_of("events"), **params)
    for each in answer.get("failed") or ():
        sys.stderr.write(f"note: cluster {each['cluster']} is missing: {each['message']}\n")
    items: list[dict[str, Any]] = answer["items"]
    return items


def _follow(rest: Rest, params: dict[str, Any], items: list[dict[str, Any]]) -> None:
    seen = {_id(each) for each in items}
    pause = threading.Event()
    while True:
        pause.wait(_POLL_S)
        items = _read(rest, params)
        for row in _rows([each for each in items if _id(each) not in seen]):
            sys.stdout.write("   ".join(cell(row.get(column)) for column in COLUMNS) + "\n")
        sys.stdout.flush()
        seen = {_id(each) for each in items}


def _id(event: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(event[name] for name in ("at", "cluster", "namespace", "kind", "name", "reason", "count", "message"))


def _rows(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, "time": clock_time(str(each["at"]).replace("Z", "+00:00")),
         "object": f"{each['kind'].lower()} {each['namespace']}/{each['name']}".replace(" /", " ")}
        for each in items
    ]  # fmt: skip
