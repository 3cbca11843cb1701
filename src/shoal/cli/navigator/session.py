"""The session of a navigator command: connection, options for place and time, display."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import typer

from shoal.cli.contexts import navigator_context, shoal_home
from shoal.cli.printers import Format, duration
from shoal.cli.rest import Rest
from shoal.cli.watching import REFRESH_S, Display, ReconnectingStream, until_stopped
from shoal.errors import ConfigError

ROOT = "/api/v1"
PAGE = 1000
_POLL_S = 2.0

At = Annotated[str, typer.Option("--at", help="state at this time: 2026-01-31T12:00:00Z, or how long ago: 5m, 2h, 1d")]
Cluster = Annotated[str, typer.Option("--cluster", help="only this cluster")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="only this namespace")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="keep running and show changes")]


@contextmanager
def opened(context: str = "", *, environ: Mapping[str, str] = os.environ) -> Iterator[Rest]:
    """A connection to the navigator of a context."""
    rest = Rest(navigator_context(shoal_home(environ), context, environ))
    try:
        yield rest
    finally:
        rest.close()


def path_of(*parts: str) -> str:
    return "/".join([ROOT, *(quote(part, safe="") for part in parts)])


def follow(
    rest: Rest, path: str, params: Mapping[str, Any], text: Callable[[dict[str, Any], bool], str], output: Format,
    *, document: str = "items", at: str = "",
) -> NoReturn:  # fmt: skip
    """Print an answer and every change of it until interrupted. ``text`` makes a table of an answer, with ages only on
    a terminal: elsewhere a line changes only when the state does. ``document`` is the part that JSON and YAML show;
    empty: all of it."""
    if at:
        raise ConfigError(f"--at is {at!r}: the past does not change; use --at or --watch, not both")
    display, warned = Display(), set[str]()
    refreshed = display.is_terminal and output.is_table
    with ReconnectingStream(rest, path, {**params, "refresh": REFRESH_S if refreshed else None}) as stream:
        while True:
            answer = stream.next()
            warn_about_stale(answer, warned)
            if output.is_table:
                display.show(text(answer, display.is_terminal))
            else:
                display.show_document(answer[document] if document else answer, output)


def show(shown: Callable[[], str], *, watch: bool) -> None:
    """Print once, or with ``watch`` repeatedly until interrupted: for what edges are asked for each time."""
    if not watch:
        typer.echo(shown(), nl=False)
        return
    display = Display()
    until_stopped(_POLL_S, lambda: display.show(shown()))


def warn_about_stale(answer: Mapping[str, Any], warned: set[str] | None = None) -> None:
    """Warn about stale clusters on standard error; with ``warned`` once per cluster and state."""
    for each in answer.get("notFresh") or ():
        state = f"cluster {each['cluster']} is {each['freshness']}"
        if warned is not None:
            if state in warned:
                continue
            warned.add(state)
        ago = each.get("heardSecondsAgo")
        since = f", last report {duration(ago)} ago" if ago is not None else ", no report yet"
        sys.stderr.write(f"note: {state}{since}{_because(each)}\n")
    for each in answer.get("forbidden") or ():
        state = f"{each['kind']} of cluster {each['cluster']} may not be read"
        if warned is None or state not in warned:
            sys.stderr.write(f"note: {state}: {each['error']}\n")
        if warned is not None:
            warned.add(state)


def _because(stale: Mapping[str, Any]) -> str:
    return f": {stale['reason']}" if stale.get("reason") else ""


def pages(rest: Rest, path: str, most: int, **params: Any) -> dict[str, Any]:
    """All pages of a list as one, up to ``most`` items; ``continue`` is set if there are more."""
    found: dict[str, Any] = {}
    items: list[Any] = []
    position = ""
    while True:
        answer = rest.get(path, limit=min(PAGE, most - len(items)), **params, **{"continue": position})
        found = found or answer
        items += answer["items"]
        position = answer.get("continue") or ""
        if not position or len(items) >= most:
            return {**found, "items": items, "continue": position}


def by_type(value: Any, type_: str) -> Any:
    """A query value in the form for tables."""
    if value is None or value in ("", [], {}):
        return None
    if type_ == "age":
        return duration(float(value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    return list(dict.fromkeys(value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
