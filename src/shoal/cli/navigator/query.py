"""``shoal query``: queries objects of all clusters."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import At, Watch, by_type, follow, opened, pages, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put, render
from shoal.cli.rest import Rest
from shoal.errors import ConfigError

app = new_app("Query objects of all clusters.")

_MOST = 500
_MOST_WATCHED = 10_000


@app.command()
def query(
    text: Annotated[
        str,
        typer.Argument(
            metavar="[QUERY]",
            help="KIND [where EXPR] [select FIELD, ... | count [by FIELD, ...]] [order by FIELD [desc]] [limit N]",
        ),
    ] = "",
    fields: Annotated[
        str, typer.Option("--fields", metavar="KIND", help="show the fields of a kind; `all` lists the kinds")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="maximum number of objects to show")] = _MOST,
    explain: Annotated[bool, typer.Option("--explain", help="also show the query plan")] = False,
    output: Output = Format.TABLE,
    at: At = "",
    watch: Watch = False,
    context: ContextName = "",
) -> None:
    """Query objects of all clusters: `shoal query "pods where image ~ 'v2' and region = 'eu' and not ready"`."""
    if not text and not fields:
        raise ConfigError('the query is missing: use for example `shoal query "pods where not ready"`')
    with opened(context) as rest:
        if fields:
            typer.echo(_fields(rest, fields, output), nl=False)
            return
        if watch:
            if limit > _MOST_WATCHED:
                raise ConfigError(f"--limit is {limit}: use at most {_MOST_WATCHED} with --watch")
            follow(rest, path_of("watch", "query"), {"q": text, "limit": limit}, result_table, output, at=at)
        answer = pages(rest, path_of("query"), limit, q=text, at=at)
        warn_about_stale(answer)
        if explain:
            sys.stderr.write(f"plan: {answer['plan']}\n")
        put(answer["items"], output, lambda: result_table(answer))


def result_table(answer: dict[str, Any], ages: bool = True) -> str:
    """The items of an answer; without ``ages`` only if it has other columns."""
    types = {each["name"]: each["type"] for each in answer["columns"]}
    if not ages:
        types = {name: type_ for name, type_ in types.items() if type_ != "age"} or types
    if not answer["items"]:
        return f"no {answer['kind']} match\n"
    rows = [{name: by_type(item.get(name), type_) for name, type_ in types.items()} for item in answer["items"]]
    more = answer["total"] - len(rows)
    return render(rows, list(types)) + (f"… and {more} more (--limit)\n" if more > 0 else "")


def _fields(rest: Rest, kind: str, output: Format) -> str:
    kinds = rest.get(path_of("kinds"))["items"]
    if kind == "all":
        rows = [{"kind": each["name"], "also": each["words"], "shows": each["columns"]} for each in kinds]
        return render(rows, ("kind", "also", "shows"), output)
    found = next((each for each in kinds if kind.lower() in (each["name"], *each["words"])), None)
    if found is None:
        raise ConfigError(
            f"--fields is {kind!r}: unknown kind; use one of {', '.join(each['name'] for each in kinds)}, or all"
        )
    return render([{**each, "field": each["name"]} for each in found["fields"]], ("field", "type", "help"), output)
