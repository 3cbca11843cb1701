"""``shoal changes``: differences between two points in time or two clusters, and the history of one object."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import At, Cluster, Namespace, opened, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, brief, put
from shoal.cli.timestamps import clock_time
from shoal.errors import ConfigError

app = new_app("Show the differences between two points in time or two clusters.")

_SIGNS = {"added": "+", "removed": "-", "changed": "~", "put": "="}


@app.command()
def changes(
    clusters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CLUSTER CLUSTER]", help="two clusters; or use --from for two points in time"),
    ] = None,
    since: Annotated[str, typer.Option("--from", help="the earlier time: 1h (ago), or 2026-01-31T12:00:00Z")] = "",
    to: Annotated[str, typer.Option("--to", help="the later time; default now")] = "",
    of: Annotated[
        str, typer.Option("--of", metavar="KIND/NAMESPACE/NAME", help="show every change of one object")
    ] = "",
    kind: Annotated[str, typer.Option("--kind", "-k", help="only these kinds, separated by commas")] = "",
    cluster: Cluster = "",
    namespace: Namespace = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="maximum number of objects to show")] = 200,
    output: Output = Format.TABLE,
    at: At = "",
    context: ContextName = "",
) -> None:
    """Show which objects were added, removed and changed, with the fields: `shoal changes --from 1h`, `shoal changes
    eu-1 us-1`, `shoal changes --of deployments/shop/web --from 1d`."""
    with opened(context) as rest:
        if of:
            kind, _, key = of.partition("/")
            answer = rest.get(
                path_of("history"), cluster=cluster, kind=kind, key=key, limit=limit, to=to, **{"from": since}
            )  # fmt: skip
            put(answer, output, lambda: _history_text(answer["items"]))
            return
        params: dict[str, Any] = {"kind": kind, "namespace": namespace, "limit": limit}
        if clusters:
            if len(clusters) != 2:
                raise ConfigError(f"clusters are {', '.join(clusters)}: give exactly two")
            params |= {"left": clusters[0], "right": clusters[1], "at": at}
        else:
            params |= {"from": since or "1h", "to": to, "cluster": cluster}
        answer = rest.get(path_of("diff"), **params)
    warn_about_stale(answer)
    if answer.get("historyBegins"):
        typer.echo(
            f"note: the history begins at {answer['historyBegins']}: objects from before are shown as added", err=True
        )
    put(answer, output, lambda: _diff_text(answer))


def _diff_text(answer: dict[str, Any]) -> str:
    lines: list[str] = []
    for change in ("added", "removed", "changed"):
        for each in answer[change]:
            lines.append(f"{_SIGNS[change]} {_named(each)}")
            lines += _fields(each)
    totals = answer["totals"]
    if not any(totals.values()):
        return "no differences\n"
    summary = ", ".join(f"{totals[change]} {change}" for change in ("added", "removed", "changed"))
    lines.append(summary + ("" if answer["complete"] else "; not all are shown (--limit)"))
    return "\n".join(lines) + "\n"


def _history_text(items: list[dict[str, Any]]) -> str:
    if not items:
        return "no changes in that time\n"
    lines: list[str] = []
    for each in items:
        words = {"put": "was", "added": "added", "removed": "removed", "changed": "changed"}
        lines.append(f"{clock_time(each['at'])}   {each['cluster']}   {each['key']}   {words[each['change']]}")
        lines += _fields(each)
    return "\n".join(lines) + "\n"


def _named(each: dict[str, Any]) -> str:
    name = f"{each['namespace']}/{each['name']}" if each["namespace"] else each["name"]
    return f"{each['kind']} {name} ({each['cluster']})"


def _fields(each: dict[str, Any]) -> list[str]:
    fields = each.get("fields") or ()
    lines = [f"    {one['path']}: {_value(one['before'])} → {_value(one['after'])}" for one in fields]
    more = each.get("fieldCount", 0) - len(fields)
    return [*lines, f"    … and {more} more fields"] if more > 0 else lines


def _value(value: Any) -> str:
    return "(none)" if value is None else brief(value)
