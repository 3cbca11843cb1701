"""The loops of macros, each as one step: quantifiers, mapping and filtering, building maps.

A step costs the same as the expanded loop: its condition, its accumulator and the lists it builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.frame import Frame, Step, is_fatal
from shoal.kube.cel.library.operators import shown

Pairs = Callable[[Frame], Iterable[tuple[Any, Any]]]


def pairs(over: Step, *, two: bool) -> Pairs:
    """The items of a loop, as pairs of its two variables; the second is None in loops with one variable."""

    def pairs(frame: Frame) -> Iterable[tuple[Any, Any]]:
        value = over(frame)
        if isinstance(value, list):
            return enumerate(value) if two else [(item, None) for item in value]
        if isinstance(value, dict):
            return value.items() if two else [(key, None) for key in value]
        raise EvalError("no such overload")

    return pairs


def quantified(pairs: Pairs, slots: tuple[int, int], test: Step, *, stop: bool) -> Step:
    first, second = slots
    charge = 3 if stop else 2  # of the loop's condition

    def decide(frame: Frame) -> bool:
        failure: EvalError | None = None
        decided = False
        cells = frame.slots
        frame.cost += 1
        for one, two in pairs(frame):
            frame.cost += charge
            if decided:
                return stop
            frame.cost += 1
            frame.tick()
            cells[second] = two
            cells[first] = one
            try:
                found = test(frame)
            except EvalError as error:
                if is_fatal(error):
                    raise
                failure = failure or error
                continue
            if found is stop:
                decided = True
            elif found is not (not stop):
                failure = failure or EvalError("no such overload")
        if decided:
            return stop
        if failure is not None:
            raise failure
        return not stop

    return decide


def exactly_one(pairs: Pairs, slots: tuple[int, int], test: Step) -> Step:
    first, second = slots

    def decide(frame: Frame) -> bool:
        count, cells = 0, frame.slots
        frame.cost += 2
        for one, two in pairs(frame):
            frame.tick()
            cells[second] = two
            cells[first] = one
            found = test(frame)
            if found is True:
                frame.cost += 2
                count += 1
            elif found is not False:
                raise EvalError("no such overload")
        return count == 1

    return decide


def collected(pairs: Pairs, slots: tuple[int, int], keep: Step | None, value: Step, charge: int) -> Step:
    first, second = slots

    def collect(frame: Frame) -> Any:
        result: list[Any] = []
        cells = frame.slots
        frame.cost += 1
        for one, two in pairs(frame):
            frame.tick()
            cells[second] = two
            cells[first] = one
            if keep is not None:
                kept = keep(frame)
                if kept is False:
                    continue
                if kept is not True:
                    raise EvalError("no such overload")
            frame.cost += charge
            result.append(value(frame))
        return result

    return collect


def inserted(pairs: Pairs, slots: tuple[int, int], keep: Step | None, values: list[Step]) -> Step:
    """``transformMap`` (a key and a value per step) and ``transformMapEntry`` (a map per step)."""
    first, second = slots

    def insert(frame: Frame) -> Any:
        result: dict[Any, Any] = {}
        cells = frame.slots
        frame.cost += 1
        for one, two in pairs(frame):
            frame.tick()
            cells[second] = two
            cells[first] = one
            if keep is not None and keep(frame) is not True:
                continue
            frame.cost += 2
            found = [step(frame) for step in values]
            more = {found[0]: found[1]} if len(found) == 2 else found[0]
            if not isinstance(more, dict):
                raise EvalError("no such overload")
            for key, item in more.items():
                if key in result:
                    raise EvalError(f"insert failed: key {shown(key)} already exists")
                result[key] = item
        return result

    return insert
