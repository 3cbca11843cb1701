"""``shoal lint``: mistakes in the configuration of the mesh."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import At, Cluster, Namespace, Watch, follow, opened, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put

app = new_app("Show mistakes in the mesh configuration, and how to fix them.")


@app.command()
def lint(
    cluster: Cluster = "",
    namespace: Namespace = "",
    errors: Annotated[bool, typer.Option("--errors", help="no warnings")] = False,
    output: Output = Format.TABLE,
    at: At = "",
    watch: Watch = False,
    context: ContextName = "",
) -> None:
    """Show mistakes in the mesh configuration, and how to fix them. The exit code is 1 if there are errors."""
    params = {"cluster": cluster, "namespace": namespace, "severity": "error" if errors else ""}
    with opened(context) as rest:
        if watch:
            path = path_of("watch", "mesh", "mistakes")
            follow(rest, path, params, lambda found, _: _mistakes_text(found["items"]), output, at=at)
        answer = rest.get(path_of("mesh", "mistakes"), **params, at=at)
    warn_about_stale(answer)
    items = answer["items"]
    put(items, output, lambda: _mistakes_text(items))
    if any(each["severity"] == "error" for each in items):
        raise typer.Exit(1)


def _mistakes_text(items: list[dict[str, Any]]) -> str:
    """One entry per mistake, with all its clusters."""
    if not items:
        return "no mistakes found\n"
    places: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for each in items:
        names = ("severity", "kind", "namespace", "name", "path", "message", "fix")
        places.setdefault(tuple(each[name] for name in names), []).append(each)
    return "".join(_mistake_text(same[0], [each["cluster"] for each in same]) for same in places.values())


def _mistake_text(each: dict[str, Any], clusters: list[str]) -> str:
    path = f" at {each['path']}" if each["path"] else ""
    lines = [
        f"{each['severity']}: {each['kind']} {each['namespace']}/{each['name']} in {', '.join(clusters)}{path}",
        f"  {each['message']} [{each['code']}]",
        f"  fix: {each['fix']}",
    ]
    if each["related"]:
        lines.append(f"  see: {', '.join(each['related'])}")
    return "\n".join(lines) + "\n"
