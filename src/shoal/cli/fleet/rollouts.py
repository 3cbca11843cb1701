"""``shoal rollout``: shows how a new revision of an app or of gateways replaces the old one, and lets people decide on
the way."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import BY_NAME, ObjectName, is_kind, kind_called
from shoal.cli.fleet.rollout_plan import plan
from shoal.cli.fleet.rollout_text import (
    DECISION_COLUMNS,
    HISTORY_COLUMNS,
    answer_of,
    began,
    decision_rows,
    history_rows,
    lines_of,
    picture,
)
from shoal.cli.fleet.session import CorrelationId, Environment, FleetSession, NoSuchObject, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put, render
from shoal.cli.rest import RequestRefused
from shoal.cli.watching import REFRESH_S, Display, ReconnectingStream
from shoal.errors import ConfigError

app = new_app("Show and steer how the new revision of an app, or of gateways, replaces the old one.", group=True)
app.command()(plan)

AppName = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="NAME, or PROJECT/ENVIRONMENT/NAME; environment/NAME or gateway/NAME: of an environment's gateways",
    ),
]
Reason = Annotated[str, typer.Option(help="why, for those who read the history")]

Shown = dict[str, Any]

_MOST = 3  # slashes of a name
_BEGINNING = ("retry", "undo")  # what they answer is the object, whose newest rollout has begun


@app.command()
def status(
    name: AppName,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="show every change until it is promoted or has gone back")
    ] = False,
    number: Annotated[int, typer.Option(min=0, help="which rollout of the app; default: the newest")] = 0,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show where a rollout is: its waves and steps with the one that is under way in brackets, and in each region the
    weight that is wanted and that gateways have taken, ready instances, and the requests of the last minute to both
    revisions. With --watch, the exit code is 1 if it goes back."""
    if watch and number:
        raise ConfigError("--watch follows the newest rollout: leave out --number, or --watch")
    with opened(context, project, environment) as session:
        ref = subject(session, name)
        shown = rollout_of(session, ref, number)
        if watch:
            raise typer.Exit(_follow(session, ref, shown, output))
        put(shown, output, lambda: picture(shown, called(ref), RealClock().now()))


@app.command()
def history(
    name: AppName,
    number: Annotated[int, typer.Option(min=0, help="show the decisions of this rollout")] = 0,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show the rollouts of an app or of gateways, newest first; with --number what was decided in one of them, when, by
    whom and why."""
    with opened(context, project, environment) as session:
        ref = subject(session, name)
        if number:
            found = rollout_of(session, ref, number)["decisions"]
            table = render(decision_rows(found), DECISION_COLUMNS)
        else:
            found = session.get(ref, "rollouts")["items"]
            table = render(history_rows(found, RealClock().now()), HISTORY_COLUMNS) if found else _none(ref) + "\n"
        put({"items": found}, output, lambda: table)


def _adds(verb: str, says: str) -> None:
    """Add the command for a verb; all of them take the same options."""

    def run(
        name: AppName,
        reason: Reason = "",
        correlation_id: CorrelationId = "",
        output: Output = Format.TABLE,
        project: Project = "",
        environment: Environment = "",
        context: ContextName = "",
    ) -> None:
        with opened(context, project, environment, correlation=correlation_id) as session:
            _command(session, verb, name, reason, output)

    app.command(verb, help=says)(run)


for _verb, _says in (
    ("pause", "Stay at the step that is under way, with the same weights. Failures still take the rollout back."),
    ("resume", "End a pause, approve a step that waits for approval, or go on after a failure that froze the rollout."),
    ("skip", "Leave out the rest of the step that is under way."),
    ("promote", "Leave out all steps that are left. Regions still go in their waves and wait for ready instances."),
    ("abort", "Give all requests back to the old revision, in all regions at once. The new one may be applied again."),
    ("retry", "Apply the revision again that the last rollout took back, with all its steps."),
    ("undo", "Go back to the revision that the last rollout began from, without steps. While it is kept, this is one "
     "change of weights."),
):  # fmt: skip
    _adds(_verb, _says)


def subject(session: FleetSession, name: str) -> ObjectName:
    """Of whose rollouts a name speaks: an app, or the environment whose gateways are rolled out."""
    word, _, rest = name.partition("/")
    kind = kind_called(word).name if rest and name.count("/") <= _MOST and is_kind(word) else ""
    if kind == "Environment":
        return session.find(word, rest)
    if kind != "Sentinel":
        return session.find("app", name)
    gateway = session.find(word, rest)
    if not gateway.environment:
        raise ConfigError(f"{gateway.shown} is shared by environments: its image changes when it is applied")
    return ObjectName(BY_NAME["Environment"], gateway.environment, gateway.project)


def called(ref: ObjectName) -> str:
    return str(ref) if ref.kind.name == "App" else f"the gateways of {ref}"


def rollout_of(session: FleetSession, ref: ObjectName, number: int = 0) -> Shown:
    """A rollout of an app or of an environment's gateways, the newest without a number."""
    try:
        found: Shown = session.rest.get(f"{ref.path}/rollout", number=number or None)
    except RequestRefused as refused:
        if refused.status != 404:
            raise
        session.get(ref)  # without the object, this says so
        named = str(ref) if ref.kind.name == "App" else f"{ref.kind.word}/{ref}"
        raise NoSuchObject(
            f"{ref.shown} has no rollout {number}: `shoal rollout history {named}` lists them" if number else _none(ref)
        ) from None
    return found


def _none(ref: ObjectName) -> str:
    if ref.kind.name != "App":
        return f"{ref.shown} has no rollout yet: the image of its gateways has not changed"
    return f"app {ref} has no rollout yet: its first revision replaces nothing"


def _command(session: FleetSession, verb: str, name: str, reason: str, output: Format) -> None:
    ref = subject(session, name)
    found = session.send("POST", ref, f"rollout/{verb}", {"reason": reason} if reason else {})

    def text() -> str:
        name = called(ref)
        return began(rollout_of(session, ref), name) if verb in _BEGINNING else answer_of(verb, found, name)

    put(found, output, lambda: f"{text()}\n")
    session.say_correlation()


def _follow(session: FleetSession, ref: ObjectName, shown: Shown, output: Format) -> int:
    """Show every change until the rollout has ended, or only keeps the old revision; the exit code."""
    display, clock, number = Display(), RealClock(), shown["number"]
    refresh_s = REFRESH_S if display.is_terminal and output.is_table else None
    with ReconnectingStream(session.rest, f"{ref.path}/rollout/watch") as stream:
        while True:
            if not output.is_table:
                display.show_document(shown, output)
            elif display.is_terminal:
                display.show(picture(shown, called(ref), clock.now()))
            else:
                display.show("".join(f"{line}\n" for line in lines_of(shown, called(ref))))
            if shown["phase"] in ("keeping", "ended"):
                return 0 if shown["phase"] == "keeping" or shown["outcome"] == "promoted" else 1
            found = stream.next(refresh_s)
            if found is not None and found["number"] != number:
                found = rollout_of(session, ref, number)  # a newer one has taken its place
            shown = found if found is not None else shown
