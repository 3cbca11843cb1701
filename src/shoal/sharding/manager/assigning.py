"""Chooses the slot of a new object, and builds the patch that assigns it. Used by the sweep and at admission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from shoal.crds.shard import ConfigSpec
from shoal.kube.objects import Obj
from shoal.reconcile.keys import version_of
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.model import SlotEntry, slot_label
from shoal.sharding.plan import choose_slot
from shoal.sharding.ring import object_key


class SlotChooser:
    """Chooses slots for the objects of one config, by its strategy."""

    def __init__(self, memory: ManagerMemory, namespace: str) -> None:
        self._memory = memory
        self._namespace = namespace  # of the ShardConfig
        self._idlest: tuple[int, ...] = ()
        self._looked_at = -1  # the turn at which the idlest shard was last determined

    def choose(
        self, spec: ConfigSpec, entries: Callable[[], Sequence[SlotEntry]], group: str, kind: str, obj: Obj
    ) -> int:
        about = obj["metadata"]
        # an object whose name is still to be generated cannot be hashed: such objects get slots in turn
        named = bool(about.get("name"))
        strategy = spec.load_balance_strategy
        if strategy == "consistent-hash" and not named:
            strategy = "round-robin"
        self._memory.turn += 1
        if strategy == "least-loaded":
            self._look(entries)
        key = object_key(group, kind, about.get("namespace") or "", about.get("name") or "")
        slot = choose_slot(strategy, key, turn=self._memory.turn, idlest=self._idlest)
        self._memory.objects.add(slot, shown_name(obj, self._namespace))
        return slot

    def _look(self, entries: Callable[[], Sequence[SlotEntry]]) -> None:
        """Determine the slots of the shard with the fewest objects; again after every few choices."""
        if self._looked_at >= 0 and self._memory.turn - self._looked_at < 16:
            return
        self._looked_at = self._memory.turn
        objects: Counter[str] = Counter()
        slots: dict[str, list[int]] = {}
        for entry in entries():
            if entry.owner:
                objects[entry.owner] += self._memory.objects.counts[entry.slot]
                slots.setdefault(entry.owner, []).append(entry.slot)
        idlest = min(slots, key=lambda shard: (objects[shard], shard), default="")
        self._idlest = tuple(slots.get(idlest, ()))


def shown_name(obj: Obj, namespace: str) -> str:
    """How ``assignedResources`` name an object: with its namespace, unless it is in that of the ShardConfig."""
    about = obj["metadata"]
    place, name = about.get("namespace") or "", about.get("name") or ""
    return f"{place}/{name}" if place and place != namespace else name


def label_patch(obj: Obj, config: str, slot: int) -> Obj:
    """Adds the label at the version that was read, so that an existing slot is never overwritten."""
    return {"metadata": {"resourceVersion": version_of(obj), "labels": {slot_label(config): str(slot)}}}
