"""Which slot a new object gets, and the smallest patch that says so. Used by the sweep and at admission."""

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

    def __init__(self, memory: ManagerMemory) -> None:
        self._memory = memory
        self._idlest: tuple[int, ...] = ()
        self._looked_at = -1  # the number of choices when the idlest shard was last looked for

    def choose(
        self, spec: ConfigSpec, entries: Callable[[], Sequence[SlotEntry]], group: str, kind: str, obj: Obj
    ) -> int:
        about = obj["metadata"]
        # a name that is still to be generated says nothing: such objects are spread in turn
        named = bool(about.get("name"))
        strategy = spec.load_balance_strategy
        if strategy == "consistent-hash" and not named:
            strategy = "round-robin"
        self._memory.turn += 1
        if strategy == "least-loaded":
            self._look(entries)
        key = object_key(group, kind, about.get("namespace") or "", about.get("name") or "")
        slot = choose_slot(strategy, key, turn=self._memory.turn, idlest=self._idlest)
        self._memory.objects.add(slot, about.get("name") or "")
        return slot

    def _look(self, entries: Callable[[], Sequence[SlotEntry]]) -> None:
        """The slots of the shard with the fewest objects; looked for again after every few choices."""
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


def label_patch(obj: Obj, config: str, slot: int) -> Obj:
    """Adds the label and nothing else, to the object as it was read: a slot that is there is never overwritten."""
    return {"metadata": {"resourceVersion": version_of(obj), "labels": {slot_label(config): str(slot)}}}
