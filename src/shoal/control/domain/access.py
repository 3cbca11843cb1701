"""Authorization by role. No other module checks roles.

    viewer   reads everything of the workspace
    editor   also applies and deletes what runs in it
    admin    also projects and environments with all that is in them, moves, tokens, and held-back deletions

Regions and clusters belong to the fleet: everybody may read them, admins of the workspaces that run it may change them.
"""

from __future__ import annotations

from collections.abc import Collection

from shoal.control.database.tables import FLEET
from shoal.control.domain.model import Actor
from shoal.errors import Forbidden

DEFAULT_WORKSPACE = "default"
OPERATORS = frozenset({FLEET, DEFAULT_WORKSPACE})

_RANK = {"viewer": 0, "editor": 1, "admin": 2}
_NEEDS = {
    "read": "viewer",
    "apply": "editor",
    "delete": "editor",
    "move": "editor",
    "rollout": "editor",
    "cascade": "admin",
    "operate": "admin",
    "manage": "admin",
}
_OF_THE_FLEET = frozenset({"Region", "Cluster"})


def verbs_of(role: str) -> list[str]:
    """What a role may do, at least with some kinds."""
    return [verb for verb, need in _NEEDS.items() if _RANK.get(role, -1) >= _RANK[need]]


def authorize(who: Actor, verb: str, kind: str, operators: Collection[str] = OPERATORS) -> None:
    """Raise ``Forbidden`` unless ``who`` may; ``verb`` is read, apply, delete, cascade, move, rollout, operate or
    manage."""
    need = _NEEDS[verb]
    if kind in _OF_THE_FLEET and verb != "read":
        need = "admin"
    if _RANK.get(who.role, -1) < _RANK[need]:
        raise Forbidden(f"{who.actor!r} may not {verb} {kind}: the role {who.role or 'none'} is not enough, use {need}")
    if (kind in _OF_THE_FLEET or verb == "operate") and verb != "read" and who.workspace_id not in operators:
        raise Forbidden(f"{who.actor!r} may not {verb} {kind}: its workspace does not run the fleet")
