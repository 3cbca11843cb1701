"""Slots, entries of the slot table, moves, and the names of labels and objects that hold them. Pure.

A hash ring of 2**32 positions is cut into 1024 slots. An object has its slot in a label that never changes. The *slot
table* maps slots to owners: it is a few ShardSlots objects, which only the manager writes, each as a whole and at the
resourceVersion that it has read. Each change of a slot's owner has a higher *epoch*. A shard is identified by its
Lease. Each process that takes the Lease begins a *term*, and a slot belongs to one term of one shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shoal.crds.shard import API_VERSION, HashRange
from shoal.kube.objects import Obj

SLOTS = 1024
RING_BITS = 32
SLOT_SHIFT = RING_BITS - 10  # a slot covers 2**22 positions
TABLES = 4  # objects that hold the slot table
SLOTS_PER_TABLE = SLOTS // TABLES
STATE_LIMIT_BYTES = 256 * 1024

CONFIG_LABEL = "shard.io/config"  # on Leases, ShardInstances, ShardSlots, ShardStates and pods: the ShardConfig's name
SHARD_LABEL = "shard.io/shard"  # on Leases and pods: the shard's id
JOINED = "shard.io/joined"  # annotation of a ShardInstance that a user created: it has joined a ShardConfig
SLOT_LABEL_PREFIX = "slot.shard.io/"
EPOCH_PREFIX = "epoch.shard.io/"


def slot_label(config: str) -> str:
    """The label of an object's slot: a number below 1024 as text."""
    return SLOT_LABEL_PREFIX + config


def epoch_annotation(config: str) -> str:
    """The annotation with the epoch of the last write by an owner, on objects and their children."""
    return EPOCH_PREFIX + config


def lease_name(shard: str) -> str:
    """A shard's Lease has the shard's name and is in the ShardConfig's namespace."""
    return shard


def table_name(config: str, index: int) -> str:
    return f"{config}-slots-{index}"


def state_name(config: str, slot: int, epoch: int) -> str:
    """Of the ShardState that carries a slot's state into ``epoch``."""
    return f"{config}-{slot}-{epoch}"


def slot_selector(config: str, slots: Iterable[int]) -> str:
    """The label selector of the objects of these slots."""
    return f"{slot_label(config)} in ({','.join(map(str, sorted(slots)))})"


def unassigned_selector(config: str) -> str:
    return f"!{slot_label(config)}"


class MovePhase(StrEnum):
    PREPARE = "Prepare"  # the target gets ready; the source still works on the slot
    DRAIN = "Drain"  # the source stops and saves; no shard works on the slot
    RESTORE = "Restore"  # the target owns the slot, loads the state and acknowledges


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move under way. In Prepare and Drain the entry's owner is the source and ``to`` the target with its term and
    the epoch it will get; in Restore the entry's owner is the target and ``source`` where it came from."""

    phase: MovePhase
    source: str = ""
    to: str = ""
    to_term: int = -1
    next_epoch: int = 0
    state: str = ""  # the ShardState to restore from; empty: there is none
    digest: str = ""  # of that state, as the source named it


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEntry:
    """One slot of the table. ``owner`` is empty if it has none."""

    slot: int
    owner: str = ""
    term: int = -1
    epoch: int = 0
    move: Move | None = None

    @property
    def next_owner(self) -> str:
        """The owner of the slot after the current move."""
        return self.move.to if self.move is not None and self.move.to else self.owner


class SlotDuty(StrEnum):
    """What a shard has to do for a slot."""

    NONE = "none"
    PREPARE = "prepare"  # watch its objects and acknowledge ``prepared``; do not work on it yet
    WORK = "work"  # the shard owns it
    DRAIN = "drain"  # stop working on it, save its state, acknowledge ``drained``
    RESTORE = "restore"  # the shard owns it: load its state, acknowledge ``restored``, then work


def slot_duty(entry: SlotEntry, shard: str, term: int) -> SlotDuty:
    """The duty of a shard for this entry, in this term of its Lease."""
    move = entry.move
    if entry.owner == shard and entry.term == term:
        if move is None or move.phase is MovePhase.PREPARE:
            return SlotDuty.WORK
        return SlotDuty.DRAIN if move.phase is MovePhase.DRAIN else SlotDuty.RESTORE
    if move is not None and move.to == shard and move.to_term == term:
        return SlotDuty.PREPARE
    return SlotDuty.NONE


# epochs


def first_epoch(now_s: float, known: int) -> int:
    """The first epoch of a new table. It is higher than every epoch of a deleted table of the same name, which objects
    still carry: the seconds since 1970 are, unless a slot moved more than once a second on average."""
    return max(int(now_s), known + 1, 1)


# the table as objects


def table_object(
    config: str, namespace: str, index: int, entries: Sequence[SlotEntry], owner: Obj | None = None
) -> Obj:
    about: Obj = {"name": table_name(config, index), "namespace": namespace, "labels": {CONFIG_LABEL: config}}
    if owner is not None:
        about["ownerReferences"] = [owner]
    return {"apiVersion": API_VERSION, "kind": "ShardSlots", "metadata": about, "spec": table_spec(config, entries)}


def table_spec(config: str, entries: Sequence[SlotEntry]) -> Obj:
    written = [entry_object(entry) for entry in entries]
    return {"config": config, "first": entries[0].slot, "last": entries[-1].slot, "entries": written}


def entry_object(entry: SlotEntry) -> Obj:
    made: Obj = {"slot": entry.slot, "owner": entry.owner, "term": entry.term, "epoch": entry.epoch}
    move = entry.move
    if move is not None:
        about: Obj = {"phase": move.phase.value}
        if move.source:
            about["from"] = move.source
        if move.to:
            about |= {"to": move.to, "toTerm": move.to_term, "nextEpoch": move.next_epoch}
        if move.state:
            about |= {"state": move.state, "digest": move.digest}
        made["move"] = about
    return made


def read_entry(obj: Obj) -> SlotEntry:
    about = obj.get("move")
    move = None
    if about is not None:
        move = Move(
            phase=MovePhase(about["phase"]),
            source=about.get("from", ""),
            to=about.get("to", ""),
            to_term=about.get("toTerm", -1),
            next_epoch=about.get("nextEpoch", 0),
            state=about.get("state", ""),
            digest=about.get("digest", ""),
        )
    return SlotEntry(slot=obj["slot"], owner=obj["owner"], term=obj.get("term", -1), epoch=obj["epoch"], move=move)


def read_table(obj: Obj) -> tuple[SlotEntry, ...]:
    """The entries of one ShardSlots object, in order."""
    return tuple(map(read_entry, obj["spec"]["entries"]))


# arcs of the ring


def arcs(slots: Iterable[int]) -> list[HashRange]:
    """The arcs that these slots cover, in order; adjacent slots are joined, but not across the ring's end."""
    made: list[HashRange] = []
    for first, last in runs(sorted(slots)):
        made.append(HashRange(start=first << SLOT_SHIFT, end=((last + 1) << SLOT_SHIFT) - 1))
    return made


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of consecutive numbers."""
    first = last = -1
    for number in numbers:
        if number == last + 1 and last >= 0:
            last = number
            continue
        if last >= 0:
            yield first, last
        first = last = number
    if last >= 0:
        yield first, last


def largest(ranges: Sequence[HashRange]) -> HashRange | None:
    return max(ranges, key=lambda each: (each.end - each.start, -each.start), default=None)


def slots_by_owner(entries: Iterable[SlotEntry]) -> dict[str, list[int]]:
    made: dict[str, list[int]] = {}
    for entry in entries:
        made.setdefault(entry.owner, []).append(entry.slot)
    return made


# objects


def slot_of(obj: Mapping[str, Any], config: str) -> int | None:
    """The slot of an object; None when its label is absent or not a valid slot."""
    text = (obj["metadata"].get("labels") or {}).get(slot_label(config), "")
    return int(text) if text.isascii() and text.isdigit() and int(text) < SLOTS else None


def epoch_of(obj: Mapping[str, Any], config: str) -> int:
    """The epoch stamped on an object; 0 when no owner has written it yet."""
    text = (obj["metadata"].get("annotations") or {}).get(epoch_annotation(config), "")
    return int(text) if text.isascii() and text.isdigit() else 0
