"""``shoal agents``: the agents of the clusters and their health."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.durations import seconds_of
from shoal.cli.fleet.kinds import ROOT, kind_called
from shoal.cli.fleet.session import FleetSession, NoSuchObject, opened
from shoal.cli.fleet.upgrade_plan import DEFAULT_WAVES
from shoal.cli.fleet.upgrading import COLUMNS, AgentUpgrade, UpgradeDeps
from shoal.cli.fleet.views import AGENT_COLUMNS, AGENT_WIDE, agent_name, agent_rows
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows
from shoal.errors import ConfigError

app = new_app(
    "Show the agents of the clusters, upgrade them, and confirm deletions that they hold back.",
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


@app.command("upgrade")
def upgrade(
    image: Annotated[
        str, typer.Option(help="image that agents shall run; default: the one of an upgrade begun before")
    ] = "",
    waves: Annotated[
        str, typer.Option(help="how many clusters are upgraded after each wave: numbers and percentages")
    ] = DEFAULT_WAVES,
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", help="only this cluster; may be repeated; default: all")
    ] = None,
    deadline: Annotated[str, typer.Option(help="how long the agents of a wave may take to come back")] = "10m",
    status: Annotated[bool, typer.Option("--status", help="show how far each cluster is, and change nothing")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the waves, and change nothing")] = False,
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Have the agents of clusters run another image, wave by wave. An agent first changes its own Deployment, then
    those beside it (edge, shard manager). A wave ends when all of it runs the image. If a cluster does not come back in
    time, the exit code is 1 and later waves stay as they are; called again, the command goes on."""
    deadline_s = float(deadline) if deadline.isdecimal() else float(seconds_of("deadline", deadline))  # as it was once
    with opened(context) as session:
        wanted = image or _begun(session, cluster or [])
        deps = UpgradeDeps(
            session=session, pause=threading.Event().wait, now_s=RealClock().monotonic,
            say=lambda line: typer.echo(line, err=True),
        )  # fmt: skip
        work = AgentUpgrade(deps, wanted, deadline_s=deadline_s)
        if not status and not dry_run:
            work.run(cluster or [], waves)
        rows = work.rows(cluster or [], waves)
    put_rows(rows, COLUMNS, output, empty="no agent has joined")


def _begun(session: FleetSession, clusters: Sequence[str]) -> str:
    """The image that clusters should run already; ConfigError unless it is one."""
    known = session.list_(kind_called("cluster"))
    found = {
        str(each["spec"]["agentImage"])
        for each in known
        if each["spec"].get("agentImage") and (not clusters or each["metadata"]["name"] in clusters)
    }
    if len(found) != 1:
        said = f"clusters should run {', '.join(sorted(found))}" if found else "no upgrade was begun"
        raise ConfigError(f"--image is missing: {said}; give --image REGISTRY/NAME:TAG")
    return found.pop()


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
