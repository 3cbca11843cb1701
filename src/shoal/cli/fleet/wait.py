"""``shoal wait``: waits until an object is as it should be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.durations import seconds_of
from shoal.cli.fleet.kinds import ObjectName
from shoal.cli.fleet.session import Environment, FleetSession, KindWord, MaybeName, Project, opened
from shoal.cli.options import ContextName
from shoal.cli.progress import waiting
from shoal.cli.rest import CannotReach, RequestRefused
from shoal.cli.templates import fields_of
from shoal.errors import ConfigError, ShoalError

app = new_app("Wait until an object is as it should be.")

_EVERY_S = 1.0
_WORDS = "ready, deleted, rollout or jsonpath=PATH=VALUE"

Look = Callable[[], tuple[bool, str]]


class NotInTime(ShoalError):
    """The object is not as it should be before the timeout."""


class WentBack(ShoalError):
    """The rollout that is waited for went back."""


@app.command()
def wait(
    kind: KindWord,
    name: MaybeName = "",
    wanted: Annotated[str, typer.Option("--for", metavar="CONDITION", help=_WORDS)] = "ready",
    timeout: Annotated[str, typer.Option(help="how long to wait, for example 90s or 5m")] = "10m",
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Wait until an app is ready in all its regions, its rollout has been promoted, an object is deleted, or a field of
    it has a value. The exit code is 1 if that takes longer than --timeout, or if the rollout goes back."""
    within_s = seconds_of("timeout", timeout)
    with opened(context, project, environment) as session:
        look = _condition(session, wanted, kind, name)
        with waiting(f"waiting for {name or kind}") as tell:
            typer.echo(_until(look, within_s, tell))


def _until(look: Look, within_s: float, tell: Callable[[str], None]) -> str:
    clock, pause = RealClock(), threading.Event()
    deadline_s, said = clock.monotonic() + within_s, ""
    while True:
        try:
            done, said = look()
        except CannotReach as error:  # a control plane that is restarted is waited for too
            done, said = False, str(error)
        if done:
            return said
        tell(said)
        if clock.monotonic() >= deadline_s:
            raise NotInTime(f"not in time: {said}")
        pause.wait(min(_EVERY_S, max(0.0, deadline_s - clock.monotonic())))


def _condition(session: FleetSession, wanted: str, kind: str, name: str) -> Look:
    word, _, rest = wanted.partition("=")
    if word == "deleted":
        return _deleted(session, kind, name)
    ref = session.find(kind, name)
    session.get(ref)
    if word == "jsonpath":
        path, equals, value = rest.rpartition("=")
        if not equals:
            raise ConfigError(f"for is {wanted!r}: use jsonpath=PATH=VALUE, such as jsonpath={{.status.state}}=Ready")
        return lambda: _field(session, ref, path, value)
    if word not in ("ready", "rollout"):
        raise ConfigError(f"for is {wanted!r}: use {_WORDS}")
    if ref.kind.name != "App" and (word, ref.kind.name) != ("rollout", "Environment"):
        raise ConfigError(f"for is {wanted!r}: only apps have that; use deleted or jsonpath=PATH=VALUE for {ref.shown}")
    return lambda: (_ready if word == "ready" else _promoted)(session, ref)


def _ready(session: FleetSession, ref: ObjectName) -> tuple[bool, str]:
    status: dict[str, Any] = session.get(ref, "status")
    reason = f": {status['reason']}" if status.get("reason") else ""
    return status["state"] in ("Ready", "Stopped"), f"{ref.shown} is {status['summary']}{reason}"


def _promoted(session: FleetSession, ref: ObjectName) -> tuple[bool, str]:
    try:
        found = session.rest.get(f"{ref.path}/rollout")
    except RequestRefused as refused:
        if refused.status != 404:
            raise
        return True, f"{ref.shown} has no rollout"
    if found["phase"] == "keeping" or found["outcome"] == "promoted":
        return True, f"rollout {found['number']} of {ref} is promoted"
    if found["phase"] == "ended":
        raise WentBack(f"rollout {found['number']} of {ref} went back: {found['failure'] or found['outcome']}")
    return False, f"rollout {found['number']} of {ref}: {found['hold'] or found['phase']}"


def _field(session: FleetSession, ref: ObjectName, path: str, value: str) -> tuple[bool, str]:
    found = fields_of(path)(session.get(ref))
    return found == value, f"{ref.shown} has {path}={found or '(nothing)'}"


def _deleted(session: FleetSession, kind: str, name: str) -> Look:
    def look() -> tuple[bool, str]:
        try:
            ref = session.find(kind, name)
            session.rest.get(ref.path)
        except ConfigError:
            raise
        except ShoalError as error:
            if isinstance(error, CannotReach) or getattr(error, "status", 404) != 404:
                raise
            return True, f"{kind} {name} is deleted".replace("  ", " ")
        return False, f"{ref.shown} is still there"

    return look
