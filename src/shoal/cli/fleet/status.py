"""``shoal status``: desired and actual state, and why they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.durations import seconds_of
from shoal.cli.fleet.kinds import ROOT, ObjectName
from shoal.cli.fleet.rollout_text import UNDER_WAY_COLUMNS, under_way_rows
from shoal.cli.fleet.session import Environment, FleetSession, Project, opened
from shoal.cli.fleet.views import (
    AGENT_COLUMNS,
    AGENT_WIDE,
    APP_COLUMNS,
    APP_WIDE,
    REFUSED_COLUMNS,
    TROUBLED_COLUMNS,
    agent_rows,
    app_name,
    app_rows,
    is_ready,
    not_ready_lines,
    refused_rows,
    troubled_rows,
)
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document, render
from shoal.cli.watching import REFRESH_S, Display, ReconnectingStream
from shoal.errors import ShoalError

app = new_app("Show the desired and the actual state, and why they differ.")

Shown = dict[str, Any]


class NotReady(ShoalError):
    """Something is not ready before the timeout."""


@app.command()
def status(
    name: Annotated[str, typer.Argument(metavar="[APP]", help="NAME, or PROJECT/ENVIRONMENT/NAME; default: all")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="keep running and show every change")] = False,
    wait_ready: Annotated[
        bool, typer.Option("--wait-ready", help="wait until everything shown, and its gateways, are ready")
    ] = False,
    timeout: Annotated[str, typer.Option(help="how long to wait, for example 90s or 5m; then the exit code is 1")] = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    everywhere: Annotated[bool, typer.Option("--all", "-A", help="in all projects and environments")] = False,
    context: ContextName = "",
) -> None:
    """Show every app in each of its regions: the version desired and applied, how many instances are ready, how old the
    report is, and the reason for a difference. Rollouts with steps that are under way follow, agents, and gateways that
    are not healthy."""
    within_s = seconds_of("timeout", timeout) if timeout else None
    with opened(context, project, environment) as session:
        if everywhere:
            session.project = session.environment = ""
        choose = _chooser(session, name)
        shown = choose(session.rest.get(f"{ROOT}/status"))
        if not watch and not wait_ready and within_s is None:
            typer.echo(status_text(shown, output, session.where), nl=False)
            return
        follow = _Follow(session, choose, output, drawn=watch)
        follow.run(shown, within_s, until_ready=wait_ready or within_s is not None)


def _chooser(session: FleetSession, name: str) -> Callable[[Shown], Shown]:
    """A function that filters an overview by the options."""
    ref: ObjectName | None = session.find("app", name) if name else None
    if ref is not None:
        session.get(ref)

    def choose(overview: Shown) -> Shown:
        places = (ref.project, ref.environment) if ref else (session.project, session.environment)
        apps = [
            each for each in overview["apps"]
            if places[0] in ("", each["project"]) and places[1] in ("", each["environment"])
            and (ref is None or each["name"] == ref.name)
        ]  # fmt: skip
        homes = {_home(each) for each in apps}
        clusters = {place["cluster"] for each in apps for place in each.get("regions") or ()}
        agents = [each for each in overview["agents"] if ref is None or each["cluster"] in clusters]
        prefix = "/".join(part for part in places if part)
        refused = [
            each for each in overview.get("refused") or () if not prefix or each["name"].startswith(f"{prefix}/")
        ]
        regions = {place["region"] for each in apps for place in each.get("regions") or ()}
        gateways = [
            each for each in overview.get("gateways") or ()
            if _home(each) in homes
            or (not each["environment"] and each["region"] in regions)
        ]  # fmt: skip
        rolling = [each for each in overview.get("gatewayRollouts") or () if _home(each) in homes and ref is None]
        return {
            "apps": apps, "agents": agents, "gateways": gateways, "gatewayRollouts": rolling, "refused": refused,
        }  # fmt: skip

    return choose


def status_text(shown: Shown, output: Format = Format.TABLE, where: str = "") -> str:
    if not output.is_table:
        return document(shown, output)
    apps = render(app_rows(shown["apps"]), APP_COLUMNS, output, APP_WIDE) if shown["apps"] else f"no apps{where}\n"
    agents = (
        render(agent_rows(shown["agents"]), AGENT_COLUMNS, output, AGENT_WIDE)
        if shown["agents"]
        else "no agent has joined\n"
    )
    refused = render(refused_rows(shown["refused"]), REFUSED_COLUMNS) if shown.get("refused") else ""
    troubled = troubled_rows(shown.get("gateways") or ())
    gateways = render(troubled, TROUBLED_COLUMNS) if troubled else ""
    under_way = _under_way(shown)
    rollouts = render(under_way, UNDER_WAY_COLUMNS) if under_way else ""
    return "\n".join(part for part in (apps, rollouts, agents, gateways, refused) if part)


def _under_way(shown: Shown) -> list[dict[str, Any]]:
    gateways = [(f"gateways of {'/'.join(_home(each))}", each) for each in shown.get("gatewayRollouts") or ()]
    return under_way_rows([*((app_name(each), each) for each in shown["apps"]), *gateways])


def _home(each: Shown) -> tuple[str, str]:
    return each["project"], each["environment"]


def lines_of(shown: Shown) -> list[str]:
    """Lines for output that is not a terminal: a line changes only when the state does, not with time."""
    found = []
    for row in app_rows(shown["apps"]):
        versions = f"{row.get('applied') or '-'} of {row.get('desired') or '-'}"
        where = "/".join(str(row[part]) for part in ("region", "cluster") if row.get(part))
        head = f"{row['app']} {where}: {row['state']}".replace(" :", ":")
        parts = [f"ready {row['ready']}" if row.get("ready") else "", f"applied {versions}", row.get("reason") or ""]
        found.append(", ".join([head, *(part for part in parts if part)]))
    for row in _under_way(shown):
        step = f"step {row['step']}, " if row["step"] else ""
        found.append(f"rollout {row['rollout']}: {row['state']}, {step}weight {row['weight']}, {row['reason'] or '-'}")
    for row in agent_rows(shown["agents"]):
        if row["state"] != "Joined" or row["brake"] != "free" or row["breaker"] not in ("", "closed"):
            found.append(f"agent {row['agent']}: {row['state']}, breaker {row['breaker']}, brake {row['brake']}")
    for row in troubled_rows(shown.get("gateways") or ()):
        found.append(f"gateway {row['gateway']} {row['region']}/{row['cluster']}: {row['health']}, {row['reason']}")
    for row in refused_rows(shown.get("refused") or ()):
        found.append(f"{row['refused']} {row['cluster']}: Refused by {row['gateway']}, {row['reason']}")
    return found


def all_ready(shown: Shown) -> bool:
    """Every app that is shown, and the gateways in front of them."""
    return (
        bool(shown["apps"]) and all(is_ready(each) for each in shown["apps"]) and not troubled_rows(shown["gateways"])
    )


class _Follow:
    """Follows the status until it is interrupted, everything is ready, or the timeout ends."""

    def __init__(self, session: FleetSession, choose: Callable[[Shown], Shown], output: Format, *, drawn: bool) -> None:
        self._session = session
        self._choose = choose
        self._output = output
        self._drawn = drawn
        self._display = Display()
        self._clock = RealClock()

    def run(self, shown: Shown, within_s: float | None, *, until_ready: bool) -> None:
        deadline = None if within_s is None else self._clock.monotonic() + within_s
        refreshed = self._drawn and self._display.is_terminal and self._output.is_table
        params = {"refresh": REFRESH_S} if refreshed else {}
        with ReconnectingStream(self._session.rest, f"{ROOT}/watch/status", params) as stream:
            while True:
                if self._drawn:
                    self._draw(shown)
                if until_ready and all_ready(shown):
                    return self._end(shown)
                left_s = None if deadline is None else deadline - self._clock.monotonic()
                if left_s is not None and left_s <= 0:
                    lines = not_ready_lines(shown["apps"], shown["gateways"]) or ["no apps"]
                    raise NotReady("\n".join(["not ready in time:", *lines]))
                found = stream.next(left_s)
                shown = self._choose(found) if found is not None else shown

    def _draw(self, shown: Shown) -> None:
        if not self._output.is_table:
            self._display.show_document(shown, self._output)
        elif self._display.is_terminal:
            self._display.show(status_text(shown))
        else:
            self._display.show("".join(f"{line}\n" for line in lines_of(shown)))

    def _end(self, shown: Shown) -> None:
        if not self._drawn:
            names = ", ".join(f"{app_name(each)}: {each['summary']}" for each in shown["apps"])
            typer.echo(names if self._output.is_table else document(shown, self._output).rstrip("\n"))
