"""Check the promise of sharding: once a write of a later epoch was accepted, no write of an earlier epoch is accepted
for the same target object.

    controller.journal = journal_to(folder / "one.jsonl", "one", config="sites")    # in each worker
    assert violations(read_journals(folder.glob("*.jsonl"))) == []

Each worker writes a journal of the writes that the server accepted, with their epoch and revision. Revisions of one
server are in the order of the writes, so all journals together show every overlap of two owners, however short.
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
    """A write that the server accepted. ``family`` is the target's uid, also for writes of the target's children."""

    family: str
    revision: int
    epoch: int
    who: str = ""
    what: str = ""


def violations(writes: Iterable[Accepted]) -> list[str]:
    """The places where an earlier epoch wrote after a later one; empty if the promise was kept."""
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
    """A worker's journal as lines of a file. A line is written at once, so that a kill loses none."""

    def note(family: str, written: Obj, epoch: int) -> None:
        about = written["metadata"]
        stamped = epoch_of(written, config)
        line = [family, int(about["resourceVersion"]), epoch, who, f"{written.get('kind')}/{about['name']}", stamped]
        with path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    return note


def read_journals(paths: Iterable[Path]) -> Iterator[Accepted]:
    """Read journals; an incomplete line, left by a kill, is skipped."""
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                family, revision, epoch, who, what, _ = orjson.loads(line)
            except ValueError:
                continue
            yield Accepted(family, revision, epoch, who, what)


# faults that the check must find

Changes = list[tuple[type, str, Any]]  # class, name of the attribute, its replacement


def unfenced() -> Changes:
    """The worker's writes carry no fence."""
    return [(Client, "fenced", lambda self, fence: self)]


def blind() -> Changes:
    """The worker writes without a resourceVersion, also over newer versions of the object."""
    patch = ResourceClient.patch

    async def blind_patch(self: ResourceClient, name: str, body: Any, *args: Any, **more: Any) -> Obj:
        return await patch(self, name, _unversioned(body), *args, **more)

    return [
        (ResourceClient, "patch", blind_patch),
        (Owned, "_based", lambda self, obj, on: _unversioned(obj)),
        (Owned, "_newer", lambda self, obj: True),
    ]


def unguarded() -> Changes:
    """The worker never gives up its slots: no fence, no check of ownership, no cancelled handlers."""
    never: Changes = [
        (Worker, "check", lambda self, slot, epoch: None),
        (HandlerRunner, "_cancel", lambda self, task, **more: None),
    ]
    return [*unfenced(), *blind(), *never]


def _unversioned(obj: Obj) -> Obj:
    about = {key: value for key, value in obj.get("metadata", {}).items() if key != "resourceVersion"}
    return {**obj, "metadata": about}
