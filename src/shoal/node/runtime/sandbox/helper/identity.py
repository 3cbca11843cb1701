"""User and groups of a container's program, by the numbers of its spec and the names of its image."""

from __future__ import annotations

from shoal.node.runtime.process.shim.child import NOT_STARTED, StartError

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Identity:
    """Who the program runs as, inside the container."""

    def __init__(self, user: int, group: int, groups: list[int], home: str) -> None:
        self.user = user
        self.group = group
        self.groups = groups
        self.home = home


def find(config: dict[str, Any]) -> Identity:
    """Read the container's ``/etc/passwd`` and ``/etc/group``. Raise StartError for a name that is not there."""
    name, _, group_name = ("", "", "") if config["user"] is not None else config["image_user"].partition(":")
    user = config["user"] if config["user"] is not None else int(name) if name.isdigit() else None
    entry = _entry("/etc/passwd", name or "root", user if name.isdigit() or not name else None)
    if user is None:
        if entry is None and name:
            raise StartError(NOT_STARTED, f"unable to find user {name}: no matching entries in /etc/passwd")
        user = int(entry[2]) if entry else 0
    if config["non_root"] and user == 0:
        raise StartError(NOT_STARTED, "container has runAsNonRoot and would run as root")
    group = config["group"]
    if group is None and group_name:
        found = _entry("/etc/group", group_name, int(group_name) if group_name.isdigit() else None)
        if found is None and not group_name.isdigit():
            raise StartError(NOT_STARTED, f"unable to find group {group_name}: no matching entries in /etc/group")
        group = int(found[2]) if found else int(group_name)
    elif group is None:
        group = int(entry[3]) if entry else 0
    most = config["ids"]
    groups = {group, *config["groups"], *(_groups_of(entry[0]) if entry else ())}
    for number in (user, *config["groups"], group):
        if number >= most:
            raise StartError(NOT_STARTED, f"the cluster has no user or group {number}: it has the ids 0 to {most - 1}")
    home = entry[5] if entry and len(entry) > 5 and entry[5] else "/"
    return Identity(user, group, sorted(each for each in groups if each < most), home)


def _lines(path: str) -> list[list[str]]:
    try:
        text = files.read_all(path)
    except OSError:
        return []
    return [line.split(":") for line in text.splitlines() if line.count(":") >= 3]


def _entry(path: str, name: str, number: int | None) -> list[str] | None:
    """The line with that number, or with that name where there is no number."""
    for fields in _lines(path):
        if (fields[2] == str(number)) if number is not None else fields[0] == name:
            return fields
    return None


def _groups_of(user: str) -> list[int]:
    return [int(fields[2]) for fields in _lines("/etc/group") if fields[2].isdigit() and user in fields[3].split(",")]
