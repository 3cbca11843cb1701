"""``shoal open``: a link that logs a browser in to the page of the fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import opened
from shoal.cli.options import ContextName
from shoal.cli.rest import Rest

app = new_app("Print a link that logs a browser in to the page of the fleet.")


@app.command("open")
def open_page(
    browser: Annotated[
        bool, typer.Option("--browser", help="also start a browser with the link; other users may see it meanwhile")
    ] = False,
    context: ContextName = "",
) -> None:
    """Print a link to the page that logs a browser in, with the rights of the token of the context. It works once, and
    for two minutes."""
    with opened(context) as session:
        link = new_link(session.rest)
    typer.echo(link)
    if browser:
        import webbrowser

        webbrowser.open(link)


def new_link(rest: Rest) -> str:
    """The code is in the fragment, which browsers keep from servers and their logs."""
    code = rest.request("POST", f"{ROOT}/login-codes").body
    page = str(code["page"] or rest.context.url).rstrip("/")
    return f"{page}/ui/#code={code['code']}"
