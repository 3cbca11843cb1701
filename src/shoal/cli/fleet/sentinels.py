"""``shoal sentinels``: ends the wait for a gateway that does not take its routes."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.session import Environment, Project, opened
from shoal.cli.options import ContextName

app = new_app("Look after gateways.", group=True)


@app.command("forget")
def forget(
    name: Annotated[str, typer.Argument(metavar="GATEWAY", help="NAME, or PROJECT/ENVIRONMENT/NAME")],
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Wait no longer for a gateway to take its newest routes, until it is heard of again. Old instances that it still
    leads to are removed then: requests that it gets for them fail."""
    with opened(context, project, environment) as session:
        ref = session.find("sentinel", name)
        pods = session.send("POST", ref, "forget")["pods"]
    named = ", ".join(pod for pod in pods if pod != "*")
    typer.echo(
        f"{ref.shown}: no longer waited for{f': {named}' if named else ''}"
        if pods
        else f"{ref.shown}: nothing waits for it"
    )
