"""``shoal agents``: the agents of the clusters and their health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import NoSuchObject, opened
from shoal.cli.fleet.views import AGENT_COLUMNS, AGENT_WIDE, agent_name, agent_rows
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows
from shoal.errors import ConfigError

app = new_app(
    "Show the agents of the clusters, and confirm deletions that they hold back.",
    group=True,
    default="list",
    alone=True,
)


@app.command("list")
def list_(output: Output = Format.TABLE, context: ContextName = "") -> None:
    """Show the agents of the clusters: heartbeat, lag, breaker, and deletions that they hold back."""
    with opened(context) as session:
        found = session.rest.get(f"{ROOT}/agents")["items"]
    put_rows(
        found, AGENT_COLUMNS, output, wide=AGENT_WIDE, rows=lambda: agent_rows(found), empty="no agent has joined",
        name=agent_name,
    )  # fmt: skip
    for line in held_lines(found) if output.is_table else ():
        typer.echo(line)


@app.command("confirm")
def confirm(
    place: Annotated[str, typer.Argument(metavar="CLUSTER/SHARD", help="an agent from `shoal agents`")],
    context: ContextName = "",
) -> None:
    """Confirm the deletions that an agent holds back because there are too many."""
    cluster, slash, shard = place.partition("/")
    if not cluster or (slash and not shard) or "/" in shard:
        raise ConfigError(f"agent is {place!r}: use CLUSTER/SHARD, as `shoal agents` shows it")
    with opened(context) as session:
        known = session.rest.get(f"{ROOT}/agents")["items"]
        found = next(
            (each for each in known if (each["cluster"], each["shard"]) == (cluster, shard or "default")), None
        )
        if found is None:
            names = ", ".join(f"{each['cluster']}/{each['shard']}" for each in known) or "none"
            raise NoSuchObject(f"agent {place!r} not found (existing agents: {names})")
        session.rest.request("POST", f"{ROOT}/agents/{cluster}/{shard or 'default'}/confirm-deletes")
    if found.get("held"):
        typer.echo(f"{place}: confirmed; the agent continues within seconds")
    else:
        typer.echo(f"{place}: nothing is held back")


def held_lines(agents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines that list the held deletions and the command that confirms them."""
    lines: list[str] = []
    for agent in agents:
        place = agent_name(agent)
        for name in agent.get("held") or ():
            brake = (agent["controllers"].get(name) or {}).get("brake") or {}
            keys = ", ".join(brake.get("keys") or ())
            lines.append(f"\n{place} holds deletions of {name} back: {brake.get('reason') or brake.get('count')}")
            if keys:
                lines.append(f"  {keys}")
            lines.append(f"  to confirm them: shoal agents confirm {place}")
    return lines
