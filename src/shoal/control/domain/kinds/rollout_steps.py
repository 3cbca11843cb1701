"""The steps, waves and windows of ``spec.rollout``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_header, is_name, is_plain
from shoal.control.rollout.strategy import STEP_KINDS, StepSpec, WaveSpec, WindowSpec
from shoal.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required, type_invalid

MAX_STEPS = 100
MAX_WAVES = 100
MAX_COUNT = 10_000
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
APPROVAL = "approval"
DAY_S = 86_400

WrittenStep = StepSpec | int  # a number is a weight that lasts as long as ``every`` says

_time_of_day = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00", re.ASCII).fullmatch
_percent = re.compile(r"(\d{1,3})%", re.ASCII).fullmatch


def read_steps(part: Reader) -> tuple[WrittenStep, ...]:
    found: list[WrittenStep] = []
    heaviest, zero = 0, ""
    for index, item in enumerate(part.mixed("steps", MAX_STEPS)):
        path = f"{part.at('steps')}[{index}]"
        step = _step(item) if isinstance(item, Reader) else _weight(part, item, path)
        if step is None:
            continue
        weight = step if isinstance(step, int) else step.percent if step.kind == "weight" else None
        if weight is not None:
            if weight < heaviest:
                part.note(invalid(path, weight, f"steps may not go down: an earlier one has weight {heaviest}"))
            heaviest, zero = max(heaviest, weight), "" if weight else path
        found.append(step)
    if zero and heaviest == 0:
        part.note(invalid(zero, 0, "the last weight may not be 0: leave it out, or name a larger one"))
    return tuple(found)


def _weight(part: Reader, value: Any, path: str) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        part.note(type_invalid(path, value, "must be a weight such as 5, or a step such as {analysis: 2m}"))
        return None
    if not 0 <= value <= 100:
        part.note(invalid(path, value, "must be between 0 and 100, inclusive"))
        return None
    return value


def _step(part: Reader) -> StepSpec | None:
    kind = part.one_of(STEP_KINDS)
    made = _of_kind(part, kind) if kind else None
    for name in STEP_KINDS:
        part.raw(name)
    part.close()
    return made


def _of_kind(part: Reader, kind: str) -> StepSpec | None:
    if kind in ("weight", "mirror"):
        return StepSpec(kind=kind, percent=part.integer(kind, 0, 0, 100))
    if kind in ("header", "cookie"):
        return _testers(part, kind)
    return {"replicas": _replicas, "pause": _pause, "analysis": _analysis}[kind](part)


def _replicas(part: Reader) -> StepSpec:
    value = part.raw("replicas")
    if not isinstance(value, str):
        return StepSpec(kind="replicas", count=part.integer("replicas", 1, 1, MAX_COUNT))
    found = _percent(value)
    if found is None or not 1 <= int(found[1]) <= 100:
        part.note(invalid(part.at("replicas"), value, "must be a whole number, or a percentage between 1% and 100%"))
        return StepSpec(kind="replicas", percent=100)
    return StepSpec(kind="replicas", percent=int(found[1]))


def _pause(part: Reader) -> StepSpec:
    """Without a time it waits for approval."""
    value = part.raw("pause")
    if value == APPROVAL:
        return StepSpec(kind="pause")
    if not isinstance(value, Mapping):
        return StepSpec(kind="pause", seconds=part.seconds("pause", 1.0, 1.0))
    inner = part.part("pause")
    assert inner is not None
    made = StepSpec(kind="pause", seconds=inner.seconds("for", 0.0, 1.0))
    inner.close()
    return made


def _analysis(part: Reader) -> StepSpec:
    if not isinstance(part.raw("analysis"), Mapping):
        return StepSpec(kind="analysis", seconds=part.seconds("analysis", 1.0, 1.0))
    inner = part.part("analysis")
    assert inner is not None
    if not inner.has("for"):
        inner.note(required(inner.at("for"), "how long it takes at least, such as 2m"))
    made = StepSpec(
        kind="analysis",
        seconds=inner.seconds("for", 1.0, 1.0),
        checks=inner.texts("checks", check=is_name, unique=True),
    )
    inner.close()
    return made


def _testers(part: Reader, kind: str) -> StepSpec | None:
    """An empty object ends what an earlier step has set."""
    inner = part.part(kind)
    if inner is None:
        return None
    made = StepSpec(kind=kind, name=inner.text("name", check=is_header), value=inner.text("value", check=is_plain))
    if made.name and not inner.has("value"):
        inner.note(required(inner.at("value"), "the requests with this value go to the candidate"))
    if made.value and not made.name:
        inner.note(required(inner.at("name")))
    inner.close()
    return made


def read_waves(part: Reader, regions: Sequence[str] | None) -> tuple[WaveSpec, ...]:
    """``regions`` are those of the app; None where they are not known."""
    if part.has("regions"):
        if part.has("waves"):
            part.note(forbidden(part.at("regions"), "may not be used together with waves"))
        return _waves_of_regions(part, regions)
    found: list[WaveSpec] = []
    used: set[str] = set()
    for wave in part.parts("waves", MAX_WAVES):
        made = WaveSpec(
            name=wave.text("name", f"wave-{len(found) + 1}", check=is_name),
            regions=wave.texts("regions", check=is_name),
            percent=wave.integer("percent", 0, 1, 100),
            soak_s=wave.seconds("soak", 0.0),
            concurrency=wave.integer("concurrency", 0, 0, MAX_COUNT),
            max_failures=wave.integer("maxFailures", 0, 0, MAX_COUNT),
        )
        if bool(made.regions) == bool(made.percent):
            wave.note(required(wave.path, "one of regions, percent") if not made.regions else forbidden(
                wave.at("percent"), "may not be used together with regions"))  # fmt: skip
        _check_regions(wave, [(f"{wave.at('regions')}[{i}]", name) for i, name in enumerate(made.regions)],
                       used, regions)  # fmt: skip
        wave.close()
        if any(each.name == made.name for each in found):
            wave.note(duplicate(wave.at("name"), made.name))
        found.append(made)
    whole = sum(each.percent for each in found)
    if whole > 100:
        why = "the percentages of waves may not be more than 100 together: the last wave has the regions that are left"
        part.note(invalid(part.at("waves"), whole, why))
    return tuple(found)


def _waves_of_regions(part: Reader, regions: Sequence[str] | None) -> tuple[WaveSpec, ...]:
    """One wave for each item, which is a region or a list of them."""
    found: list[WaveSpec] = []
    used: set[str] = set()
    value = part.raw("regions")
    if not isinstance(value, list):
        part.note(type_invalid(part.at("regions"), value, "must be a list of regions"))
        return ()
    if len(value) > MAX_WAVES:
        part.note(invalid(part.at("regions"), len(value), f"may not have more than {MAX_WAVES} items"))
    for index, item in enumerate(value[:MAX_WAVES]):
        path = f"{part.at('regions')}[{index}]"
        listed = item if isinstance(item, list) else [item]
        names = [name for name in listed if isinstance(name, str) and not is_name(name)]
        if len(names) < len(listed) or not names:
            part.note(type_invalid(path, item, "must be the name of a region, or a list of names"))
            continue
        places = [f"{path}[{i}]" if isinstance(item, list) else path for i in range(len(names))]
        _check_regions(part, list(zip(places, names, strict=True)), used, regions)
        found.append(WaveSpec(name="+".join(names), regions=tuple(names)))
    return tuple(found)


def _check_regions(
    part: Reader, named: Sequence[tuple[str, str]], used: set[str], regions: Collection[str] | None
) -> None:
    for path, name in named:
        if name in used:
            part.note(FieldError(duplicate(path, name).cause, path, "a region may be in one wave only", name))
        elif regions is not None and name not in regions:
            why = f"is not a region of the app's topology: use one of {', '.join(regions) or '(none)'}"
            part.note(invalid(path, name, why))
        used.add(name)


def read_windows(part: Reader) -> tuple[WindowSpec, ...]:
    found: list[WindowSpec] = []
    for window in part.parts("windows", MAX_WAVES):
        days = window.texts("days", unique=True)
        if not days:
            window.note(required(window.at("days"), f"name at least one of {', '.join(DAYS)}"))
        for index, day in enumerate(days):
            if day not in DAYS:
                window.note(not_supported(f"{window.at('days')}[{index}]", day, DAYS))
        found.append(
            WindowSpec(
                days=tuple(sorted(DAYS.index(day) for day in days if day in DAYS)),
                from_s=_of_day(window, "from", 0),
                until_s=_of_day(window, "until", DAY_S),
            )
        )
        window.close()
    return tuple(found)


def _of_day(part: Reader, name: str, default: int) -> int:
    text = part.text(name)
    if not text:
        return default
    if not _time_of_day(text):
        part.note(invalid(part.at(name), text, 'must be a time of the day in UTC, in quotes, such as "09:00"'))
        return default
    hours, _, minutes = text.partition(":")
    return int(hours) * 3600 + int(minutes) * 60


def check_names(part: Reader, steps: Sequence[WrittenStep], known: Collection[str]) -> None:
    """The checks that analysis steps name must exist."""
    for index, step in enumerate(steps):
        if isinstance(step, StepSpec):
            for at, name in enumerate(step.checks):
                if name not in known:
                    part.note(not_found(f"{part.at('steps')}[{index}].analysis.checks[{at}]", name))
