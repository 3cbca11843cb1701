"""The kinds of objects on the command line: their names, API paths and table columns.

Plain data, so that a command need not import the control plane; a test compares it with the control plane's kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from shoal.errors import ConfigError

API_VERSION = "shoal.dev/v1"
ROOT = "/api/v1"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectName:
    """Identifies one object."""

    kind: CommandKind
    name: str
    project: str = ""
    environment: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.project, self.environment, self.name) if part)

    @property
    def shown(self) -> str:
        return f"{self.kind.word} {self}"

    @property
    def path(self) -> str:
        return f"{self.kind.path(self.project, self.environment)}/{self.name}"


@dataclass(frozen=True, slots=True)
class CommandKind:
    """``scope`` is fleet, workspace, project, environment, or either (with or without environment)."""

    name: str
    plural: str
    scope: str
    columns: Mapping[str, Callable[[Object], Any]]
    other_words: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def parts(self) -> tuple[str, ...]:
        """The containers in its objects' names: project, environment, both or none."""
        needs = {"project": ("project",), "environment": ("project", "environment")}
        return needs.get(self.scope, ())

    def path(self, project: str = "", environment: str = "") -> str:
        """The API path of the collection; without a project, of all objects."""
        if not project or self.scope in ("fleet", "workspace"):
            return f"{ROOT}/{self.plural}"
        if self.scope == "project":
            return f"{ROOT}/projects/{project}/{self.plural}"
        return f"{ROOT}/projects/{project}/environments/{environment}/{self.plural}"


def _spec(*names: str) -> Callable[[Object], Any]:
    return lambda found: _inside(found.get("spec"), names)


def _status(*names: str) -> Callable[[Object], Any]:
    return lambda found: _inside(found.get("status"), names)


def _inside(value: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _meta(name: str) -> Callable[[Object], Any]:
    return lambda found: found["metadata"].get(name)


def _regions(found: Object) -> list[str]:
    return [str(row.get("region")) for row in found["spec"].get("topology") or ()]


_PROJECT = {"project": _meta("project")}
_PLACE = {**_PROJECT, "environment": _meta("environment")}

# In the order of their dependencies: apply in this order.
KINDS = (
    CommandKind(
        "Region", "regions", "fleet",
        {"platform": _spec("platform"), "takes_apps": lambda found: found["spec"].get("canSchedule", True)},
    ),
    CommandKind(
        "Cluster", "clusters", "fleet",
        {
            "region": _spec("region"),
            "shards": lambda found: found["spec"].get("shards") or ["default"],
            "takes_apps": lambda found: found["spec"].get("canSchedule", True),
        },
    ),
    CommandKind("Project", "projects", "workspace", {"description": _spec("description")}),
    CommandKind(
        "Environment", "environments", "project",
        {**_PROJECT, "namespace": _meta("namespace"), "description": _spec("description")}, ("env", "envs"),
    ),
    CommandKind("Secret", "secrets", "environment", {**_PLACE, "variables": _spec("variables")}),
    CommandKind("Credential", "credentials", "environment", {**_PLACE, "headers": _spec("headers")}),
    CommandKind(
        "App", "apps", "environment",
        {
            **_PLACE, "status": _status("summary"), "revision": _status("revision"), "image": _spec("image"),
            "regions": _regions,
        },
    ),
    CommandKind("Policy", "policies", "environment", {**_PLACE}),
    CommandKind("Route", "routes", "environment", {**_PLACE}),
    CommandKind(
        "ApiKey", "apikeys", "environment",
        {**_PLACE, "prefix": _status("prefix"), "revoked": _status("revoked")}, ("key", "keys"),
    ),
    CommandKind(
        "Sentinel", "sentinels", "either",
        {
            **_PLACE, "region": _spec("region"), "health": _status("health"), "available": _status("available"),
            "address": _status("address"),
        },
        ("gateway", "gateways"),
    ),
)  # fmt: skip
ORDER = {kind.name: position for position, kind in enumerate(KINDS)}
BY_NAME = {kind.name: kind for kind in KINDS}
_COMMANDS = {
    "agents": "shoal agents",
    "tokens": "shoal token list",
    "workspaces": "shoal workspaces",
    "events": "shoal events",
    "instances": "shoal describe app NAME",
    "pods": "shoal describe app NAME",
    "revisions": "shoal history app NAME",
    "deployments": "shoal history app NAME",
}
_BY_WORD = {word: kind for kind in KINDS for word in (kind.word, kind.plural, *kind.other_words)}


def kind_called(word: str) -> CommandKind:
    """The kind with this name, plural or abbreviation, in any case; raises ConfigError."""
    found = _BY_WORD.get(word.lower())
    if found is None:
        if command := _COMMANDS.get(word.lower(), _COMMANDS.get(f"{word.lower()}s")):
            raise ConfigError(f"kind is {word!r}: not an object; use `{command}`")
        near = get_close_matches(word.lower(), _BY_WORD, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(kind.word for kind in KINDS)}"
        raise ConfigError(f"kind is {word!r}: {hint}")
    return found


def is_kind(word: str) -> bool:
    """Whether a kind is called so."""
    return word.lower() in _BY_WORD


def kind_and_name(kind: str, name: str) -> tuple[str, str]:
    """``KIND/NAME`` in one word, as ``-o name`` prints it, or the two words themselves."""
    if name or "/" not in kind:
        return kind, name
    word, _, rest = kind.partition("/")
    return word, rest


def without_kind(kind: CommandKind, name: str) -> str:
    """The name alone, where a command that takes one kind only is given KIND/NAME."""
    word, _, rest = name.partition("/")
    leads = bool(rest) and _BY_WORD.get(word.lower()) is kind
    return rest if leads and name.count("/") in (1, len(kind.parts) + 1) else name


def ref_of(found: Object) -> ObjectName:
    """The reference to an object that the control plane returned."""
    metadata = found["metadata"]
    return ObjectName(
        BY_NAME[found["kind"]],
        str(metadata["name"]),
        str(metadata.get("project") or ""),
        str(metadata.get("environment") or ""),
    )
