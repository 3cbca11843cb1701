"""``shoal config``: contexts, that is the control plane and the default project and environment of commands."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.contexts import FILE, Context, Contexts, read_contexts, shoal_home, write_contexts
from shoal.cli.options import Output
from shoal.cli.printers import Format, document, put, put_rows
from shoal.errors import ConfigError

app = new_app("Choose the control plane of the commands.", group=True)

_COLUMNS = ("current", "name", "url", "project", "environment")
_HIDDEN = "(hidden)"


@app.command("get-contexts")
def get_contexts(output: Output = Format.TABLE) -> None:
    """List the contexts; a star marks the current one."""
    found = read_contexts(shoal_home())
    rows = [
        {"current": "*" if name == found.current else "", **_shown(each)} for name, each in sorted(found.known.items())
    ]
    put_rows(
        rows, _COLUMNS, output, wide=("navigator",), empty=f"{shoal_home() / FILE} has no context",
        value=[{**row, "current": bool(row["current"])} for row in rows],
    )  # fmt: skip


@app.command("use-context")
def use_context(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a context from `shoal config get-contexts`")],
) -> None:
    """Make a context the current one."""
    found = read_contexts(shoal_home())
    found.named(name, shoal_home() / FILE)
    write_contexts(shoal_home(), Contexts(found.known, name))
    typer.echo(f"the current context is {name}")


@app.command("set-context")
def set_context(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="default: the current context")] = "",
    url: Annotated[str, typer.Option(help="URL of the control plane, https://HOST:PORT")] = "",
    token: Annotated[str, typer.Option(help="token of a user; - reads it from standard input")] = "",
    ca: Annotated[Path | None, typer.Option(help="file with the CA certificates of the control plane")] = None,
    project: Annotated[str | None, typer.Option(help="default for commands; empty for all")] = None,
    environment: Annotated[str | None, typer.Option(help="default for commands; empty for all")] = None,
    navigator: Annotated[
        str | None, typer.Option(help="URL of the navigator, https://HOST:PORT; empty for none")
    ] = None,
    navigator_token: Annotated[str, typer.Option(help="token of the navigator, if different; - for stdin")] = "",
    navigator_ca: Annotated[Path | None, typer.Option(help="CA certificates of the navigator, if different")] = None,
) -> None:
    """Change a context, or add one."""
    found = read_contexts(shoal_home())
    name = name or found.current
    if not name:
        raise ConfigError(f"name is missing: {shoal_home() / FILE} has no context yet")
    before = found.known.get(name)
    if before is None and not (url and token):
        raise ConfigError(f"context {name!r} is new: it needs --url and --token")
    said: dict[str, Any] = {
        "url": url.rstrip("/"), "token": _token(token), "ca": _pem(ca),
        "navigator_token": _token(navigator_token), "navigator_ca": _pem(navigator_ca),
    }  # fmt: skip
    changes = {key: value for key, value in said.items() if value}
    places = (("project", project), ("environment", environment), ("navigator", navigator))
    changes |= {key: value.rstrip("/") for key, value in places if value is not None}
    made = replace(before or Context(name, "", ""), **changes)
    write_contexts(shoal_home(), Contexts({**found.known, name: made}, found.current or name))
    typer.echo(f"context {name} {'added' if before is None else 'changed'}")


@app.command("view")
def view(
    raw: Annotated[bool, typer.Option("--raw", help="include the tokens")] = False,
    output: Output = Format.YAML,
) -> None:
    """Show the context file; tokens are hidden."""
    found = read_contexts(shoal_home())
    listed = [asdict(each) if raw else _shown(each) for each in found.known.values()]
    value = {"current": found.current, "contexts": listed}
    put(value, output, lambda: document(value, Format.YAML))


def _shown(context: Context) -> dict[str, str]:
    hidden = {name: _HIDDEN for name in ("token", "navigator_token") if getattr(context, name)}
    return {**asdict(context), **hidden, **{name: "PEM" for name in ("ca", "navigator_ca") if getattr(context, name)}}


def _token(text: str) -> str:
    if text != "-":
        return text
    import sys

    return sys.stdin.readline().strip()


def _pem(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"ca is {str(path)!r}: {error.strerror}") from None
