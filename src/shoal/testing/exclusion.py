"""Checks what sharding promises: once a write of a later epoch was taken, none of an earlier one is, per target object.

Workers keep a journal of the writes that the server took, with the epoch each was made in and the revision it got.
Revisions of one server are in the order in which writes happened, so putting all journals together shows every overlap
of two owners, however short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shoal.client import Client
from shoal.client.verbs import ResourceClient
from shoal.kube.objects import Obj
from shoal.sharding.model import epoch_of
from shoal.sharding.worker import Owned, Worker
from shoal.sharding.worker.handling import HandlerRunner


@dataclass(frozen=True, slots=True, order=True)
class Accepted:
    """A write that the server took. ``family`` is the target's uid, for the target and for its children."""

    family: str
    revision: int
    epoch: int
    who: str = ""
    what: str = ""


def violations(writes: Iterable[Accepted]) -> list[str]:
    """Where an earlier epoch wrote after a later one; empty when the promise was kept."""
    found = []
    latest: dict[str, Accepted] = {}
    for write in sorted(writes):
        before = latest.get(write.family)
        if before is not None and write.epoch < before.epoch:
            found.append(
                f"{write.what} of {write.family}: {write.who} wrote revision {write.revision} in epoch {write.epoch} "
                f"after {before.who} had written revision {before.revision} in epoch {before.epoch}"
            )
        else:
            latest[write.family] = write
    return found


def journal_to(path: Path, who: str, *, config: str) -> Callable[[str, Obj, int], None]:
    """A worker's journal as lines of a file; written at once, so that a killed worker has said what it did."""

    def note(family: str, written: Obj, epoch: int) -> None:
        about = written["metadata"]
        stamped = epoch_of(written, config)
        line = [family, int(about["resourceVersion"]), epoch, who, f"{written.get('kind')}/{about['name']}", stamped]
        with path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    return note


def read_journals(paths: Iterable[Path]) -> Iterator[Accepted]:
    """A line that was cut off by a kill is passed over."""
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                family, revision, epoch, who, what, _ = orjson.loads(line)
            except ValueError:
                continue
            yield Accepted(family, revision, epoch, who, what)


# what the checker has to catch

Changes = list[tuple[type, str, Any]]  # a class, the name of what is changed in it, what it becomes


def unfenced() -> Changes:
    """A worker on a server that knows no fences."""
    return [(Client, "fenced", lambda self, fence: self)]


def blind() -> Changes:
    """A worker that writes whatever the object has become: no versions, no stamps."""
    patch = ResourceClient.patch

    async def blind_patch(self: ResourceClient, name: str, body: Any, *args: Any, **more: Any) -> Obj:
        return await patch(self, name, _unversioned(body), *args, **more)

    return [
        (ResourceClient, "patch", blind_patch),
        (Owned, "_based", lambda self, obj, on: _unversioned(obj)),
        (Owned, "_newer", lambda self, obj: True),
    ]


def unguarded() -> Changes:
    """A worker that believes in its slots for ever: nothing of it is fenced, looked at, or cancelled."""
    never: Changes = [
        (Worker, "check", lambda self, slot, epoch: None),
        (HandlerRunner, "_cancel", lambda self, task, **more: None),
    ]
    return [*unfenced(), *blind(), *never]


def _unversioned(obj: Obj) -> Obj:
    about = {key: value for key, value in obj.get("metadata", {}).items() if key != "resourceVersion"}
    return {**obj, "metadata": about}
