"""Counts the objects of one target per slot: a list gives the whole, and what gets its slot meanwhile or later is added
once, by comparing the revision of that write with that of the list. Pure."""

from __future__ import annotations

from collections.abc import Callable

from shoal.sharding.manager.memory import SlotCounts


class TargetCounts:
    """``objects`` gives the counts of the whole config as they are now; the chooser adds to them what it chooses."""

    def __init__(self, objects: Callable[[], SlotCounts]) -> None:
        self._objects = objects
        self._listed = 0  # the revision of the last list
        self._given: list[tuple[int, int, str]] | None = None  # while a list is read: revision, slot and name
        self.counts = SlotCounts()

    def chosen(self) -> SlotCounts:
        """The counts that have an object which the chooser has just chosen a slot for; to be handed to ``settle``."""
        return self._objects()

    def settle(self, slot: int, name: str, revision: int, chosen: SlotCounts) -> None:
        """The write of a slot has ended. ``revision`` is 0 when the object did not get it."""
        now = self._objects()
        if not revision:
            if now is chosen:
                now.remove(slot, name)
            return
        if self._given is not None:
            self._given.append((revision, slot, name))
        if revision > self._listed:
            self.counts.add(slot, name)
            if now is not chosen:  # made of other counts meanwhile
                now.add(slot, name)

    def begin_list(self) -> None:
        """To be called before the first page is asked for."""
        self._given = []

    def end_list(self, found: SlotCounts, listed: int) -> None:
        """``found`` is all of the list, which shows the revision ``listed``."""
        for revision, slot, name in self._given or ():  # while it was read, and not in it
            if revision > listed:
                found.add(slot, name)
        self.counts, self._listed, self._given = found, listed, None
