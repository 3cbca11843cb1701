"""The session of a fleet command: its control plane, project and environment, and the lookup of objects by name.

Project and environment come from the options, else from ``SHOAL_PROJECT`` and ``SHOAL_ENVIRONMENT``, else from the
context. Without them, a name that only one object has is enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from shoal.cli.contexts import current_context, shoal_home
from shoal.cli.fleet.kinds import (
    BY_NAME,
    CommandKind,
    ObjectName,
    kind_and_name,
    kind_called,
    ref_of,
    without_kind,
)
from shoal.cli.rest import RequestRefused, Rest
from shoal.errors import ConfigError, ShoalError

PAGE = 500
_SHOWN = 10

KindWord = Annotated[str, typer.Argument(metavar="KIND", help="app, project, environment, secret, region, cluster, …")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="NAME, or PROJECT/ENVIRONMENT/NAME")]
MaybeName = Annotated[
    str, typer.Argument(metavar="[NAME]", help="NAME, or PROJECT/ENVIRONMENT/NAME; not after KIND/NAME")
]
Project = Annotated[str, typer.Option("--project", "-p", help="project; default $SHOAL_PROJECT, else the context's")]
Environment = Annotated[
    str, typer.Option("--environment", "-e", help="environment; default $SHOAL_ENVIRONMENT, else the context's")
]
CorrelationId = Annotated[
    str,
    typer.Option(
        "--correlation-id",
        metavar="ID",
        help="id of the change in logs and events; default $SHOAL_CORRELATION_ID, else a new one",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="change nothing; show what would change, and where")]


class NoSuchObject(ShoalError):
    """No object has the given name."""


class FleetSession:
    """A connection to one control plane, with the default project and environment."""

    def __init__(self, rest: Rest, project: str = "", environment: str = "") -> None:
        self.rest = rest
        self.project = project
        self.environment = environment

    def list_(
        self, kind: CommandKind, project: str = "", environment: str = "", labels: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Every object of a kind, over all pages."""
        whole = bool(project) and not environment and kind.scope in ("environment", "either")
        path = kind.path() if whole else kind.path(project, environment)
        position = ""
        while True:
            try:
                page = self.rest.get(path, limit=PAGE, labels=labels, **{"continue": position})
            except RequestRefused as refused:
                raise self._no_place(refused, project, environment) from None
            for item in page["items"]:
                if not whole or item["metadata"].get("project") == project:
                    yield item
            position = page.get("continue") or ""
            if not position:
                return

    def find(self, word: str, name: str) -> ObjectName:
        """The object of a kind and a name; raises NoSuchObject, or ConfigError if the name is ambiguous."""
        word, name = kind_and_name(word, name)
        kind = kind_called(word)
        if not name:
            raise ConfigError(f"name is missing: name the {kind.word}, or use {kind.word}/NAME")
        ref = self._spelled(kind, without_kind(kind, name))
        if all(getattr(ref, part) for part in kind.parts) and not (kind.scope == "either" and not ref.project):
            return ref
        found = [other for other in self._every(kind) if _matches(other, ref)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(
                f"name {name!r} is ambiguous: {', '.join(str(each) for each in found[:_SHOWN])}; choose one with "
                "--project and --environment"
            )
        raise self.missing(ref)

    def get(self, ref: ObjectName, what: str = "", **params: Any) -> Any:
        """An object, or with ``what`` its status, history or events."""
        try:
            return self.rest.get(f"{ref.path}/{what}" if what else ref.path, **params)
        except RequestRefused as refused:
            raise self.explained(refused, ref) from None

    def send(self, method: str, ref: ObjectName, what: str = "", body: Any = None, **params: Any) -> Any:
        """Send a change of an object."""
        path = f"{ref.path}/{what}" if what else ref.path
        try:
            return self.rest.request(method, path, body, params=params).body
        except RequestRefused as refused:
            raise self.explained(refused, ref) from None

    def explained(self, refused: RequestRefused, ref: ObjectName) -> ShoalError:
        """The error itself, or for 404 one that lists existing names."""
        return self.missing(ref) if refused.status == 404 else refused

    def missing(self, ref: ObjectName) -> NoSuchObject:
        where = "/".join(part for part in (ref.project, ref.environment) if part)
        known = [str(other) for other in self._every(ref.kind)]
        inside = [name for name in known if not where or name.startswith(f"{where}/")]
        there = f" in {where}" if where else ""
        if not known:
            return NoSuchObject(f"{ref.kind.word} {ref.name!r} not found{there}; no {ref.kind.plural} exist yet")
        shown = inside or known
        by_name = {name.rpartition("/")[2]: name for name in shown}
        near = [by_name[name] for name in get_close_matches(ref.name, by_name, n=1, cutoff=0.6)]
        more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        hint = f"did you mean {near[0]}?" if near else f"existing: {', '.join(shown[:_SHOWN])}{more}"
        return NoSuchObject(f"{ref.kind.word} {ref.name!r} not found{there}; {hint}")

    def names(self, kind: str, project: str = "", environment: str = "") -> list[str]:
        """Names for hints; empty if the control plane cannot list them."""
        try:
            return [str(each["metadata"]["name"]) for each in self.list_(BY_NAME[kind], project, environment)]
        except ShoalError:
            return []

    def say_correlation(self) -> None:
        """Tell people how to follow what they have just changed."""
        if self.rest.correlation:
            typer.echo(
                f"correlation id: {self.rest.correlation} (shoal events --correlation {self.rest.correlation})",
                err=True,
            )

    @property
    def where(self) -> str:
        """`` in PROJECT/ENVIRONMENT`` for the end of a sentence, or empty."""
        place = "/".join(part for part in (self.project, self.environment) if part)
        return f" in {place}" if place else ""

    def _no_place(self, refused: RequestRefused, project: str, environment: str) -> ShoalError:
        """The error for a list in a project or environment that does not exist."""
        if refused.status != 404 or not project:
            return refused
        known = self.names("Project")
        if project not in known:
            return self.missing(ObjectName(BY_NAME["Project"], project))
        return self.missing(ObjectName(BY_NAME["Environment"], environment, project))

    def _every(self, kind: CommandKind) -> list[ObjectName]:
        return sorted((ref_of(item) for item in self.list_(kind)), key=str)

    def _spelled(self, kind: CommandKind, name: str) -> ObjectName:
        """The name, completed with the project and environment of the options or the context."""
        parts = name.split("/")
        places = ("project", "environment") if kind.scope == "either" else kind.parts
        if not all(parts) or len(parts) > len(places) + 1:
            shape = "/".join([*(place.upper() for place in places), "NAME"])
            raise ConfigError(f"name is {name!r}: use {'NAME or ' if places else ''}{shape}")
        said = {"project": self.project, "environment": self.environment}
        said |= dict(zip(reversed(places), reversed(parts[:-1]), strict=False))
        found = {place: said[place] for place in places}
        return ObjectName(kind, parts[-1], **found)


def _matches(other: ObjectName, ref: ObjectName) -> bool:
    return (
        other.name == ref.name
        and ref.project in ("", other.project)
        and ref.environment in ("", other.environment)
    )  # fmt: skip


_is_correlation = re.compile("[A-Za-z0-9._:/+=-]{1,64}").fullmatch


def _checked(correlation: str) -> str:
    """A server would replace an id that it cannot take."""
    if correlation and not _is_correlation(correlation):
        raise ConfigError(
            f"the correlation id is {correlation[:80]!r}: use up to 64 letters, digits and the characters . _ : / + = -"
        )
    return correlation


@contextmanager
def opened(
    context: str = "",
    project: str = "",
    environment: str = "",
    *,
    correlation: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Iterator[FleetSession]:
    """A session with the control plane of a context. ``correlation`` is sent with each request."""
    chosen = current_context(shoal_home(environ), context, environ)
    rest = Rest(chosen)
    rest.correlation = _checked(correlation or environ.get("SHOAL_CORRELATION_ID", ""))
    project = project or environ.get("SHOAL_PROJECT", "") or chosen.project
    environment = environment or environ.get("SHOAL_ENVIRONMENT", "") or chosen.environment
    try:
        yield FleetSession(rest, project, environment)
    finally:
        rest.close()
