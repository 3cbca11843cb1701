"""The counts per slot are right in whatever order a list and the writes that it overlaps end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sharding.manager.counting import TargetCounts
from shoal.sharding.manager.memory import ManagerMemory, SlotCounts

SLOT = 1
STEPS = ["choose", "carry out", "refuse", "answer", "begin list", "end list", "other target counted"]


class Sweep:
    """A server with revisions, a sweep that writes, and a list that is read page by page."""

    def __init__(self) -> None:
        self.memory = ManagerMemory()
        self.tally = TargetCounts(lambda: self.memory.objects)
        self.revision = 10
        self.labelled: dict[str, int] = {}  # by name, at which revision
        self.chosen: list[tuple[str, SlotCounts]] = []  # sent
        self.answers: list[tuple[str, int, SlotCounts]] = []  # carried out or refused, and not heard of yet
        self.list: tuple[SlotCounts, int] | None = None
        self.number = 0

    def step(self, step: str) -> None:
        if step == "choose":
            name = f"s{self.number}"
            self.number += 1
            self.memory.objects.add(SLOT, name)
            self.chosen.append((name, self.tally.chosen()))
        elif step in ("carry out", "refuse") and self.chosen:
            name, chosen = self.chosen.pop(0)
            if step == "carry out":
                self.revision += 1
                self.labelled[name] = self.revision
            self.answers.append((name, self.labelled.get(name, 0), chosen))
        elif step == "answer" and self.answers:
            name, revision, chosen = self.answers.pop(0)
            self.tally.settle(SLOT, name, revision, chosen)
        elif step == "begin list" and self.list is None:
            self.tally.begin_list()
            found = SlotCounts(known=True)
            for name in self.labelled:
                found.add(SLOT, name)
            self.list = found, self.revision
        elif step == "end list" and self.list is not None:
            self.tally.end_list(*self.list)
            self.list = None
            self.counted()
        elif step == "other target counted":
            self.counted()

    def counted(self) -> None:
        whole = SlotCounts(known=True)
        whole.merge(self.tally.counts)
        self.memory.objects = whole


@given(st.lists(st.sampled_from(STEPS), max_size=40))
@settings(max_examples=1000)
def test_every_object_is_counted_once_however_writes_and_lists_overlap(steps: list[str]) -> None:
    sweep = Sweep()
    for step in steps:
        sweep.step(step)
    sweep.step("end list")
    while sweep.chosen:
        sweep.step("refuse")
    while sweep.answers:
        sweep.step("answer")
    assert sweep.memory.objects.total == len(sweep.labelled)


def test_without_the_revisions_a_list_would_lose_or_repeat_an_object() -> None:
    sweep = Sweep()
    for step in ("choose", "choose", "begin list", "carry out", "answer", "end list", "carry out", "answer"):
        sweep.step(step)
    assert sweep.memory.objects.total == 2
    for step in ("choose", "carry out", "begin list", "end list", "answer"):
        sweep.step(step)
    assert sweep.memory.objects.total == 3
