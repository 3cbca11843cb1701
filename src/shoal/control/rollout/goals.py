"""What a rollout grants its candidate in each region: weight, instances, and requests of testers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.control.rollout.model import RegionGoal
from shoal.control.rollout.progress import ENDED, GOING_BACK, KEEPING, Progress
from shoal.control.rollout.strategy import BLUE_GREEN, RECREATE, ROLLING, StepSpec, Strategy, WaveSpec

FULL = 100
NOTHING = RegionGoal(weight=0, count=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """What the steps up to one have set."""

    weight: int = 0
    replicas: StepSpec | None = None
    header: StepSpec | None = None
    cookie: StepSpec | None = None
    mirror: int = 0


def begin(strategy: Strategy, regions: Mapping[str, str], now_ms: int, *, is_hurried: bool = False) -> Progress:
    """A rollout over these regions (id → name) begins."""
    waves = waves_of(strategy.waves, regions)
    return Progress(
        waves=tuple(regions for _, regions in waves),
        specs=tuple(spec for spec, _ in waves),
        is_hurried=is_hurried,
        entered_ms=now_ms,
        looked_ms=now_ms,
    )


def waves_of(specs: Sequence[WaveSpec], regions: Mapping[str, str]) -> list[tuple[int, tuple[str, ...]]]:
    """The waves in their order, with the index of what they come from. A wave with more regions than may go at a time
    becomes several; regions that no wave names come last, together."""
    left = dict(sorted(regions.items(), key=lambda each: each[1]))
    count, found = len(left), list[tuple[int, tuple[str, ...]]]()
    for index, spec in enumerate(specs):
        if spec.regions:
            named = [id_ for name in spec.regions for id_, known in left.items() if known == name]
        else:
            named = list(left)[: -(-count * spec.percent // FULL)]
        for id_ in named:
            del left[id_]
        size = spec.concurrency or len(named) or 1
        found += [(index, tuple(named[at : at + size])) for at in range(0, len(named), size)]
    return [*found, (-1, tuple(left))] if left else found


def settings_at(strategy: Strategy, step: int) -> StepSettings:
    """What holds at a step; past the last one everything goes to the candidate."""
    if step >= len(strategy.steps):
        return StepSettings(weight=FULL)
    made = StepSettings()
    for each in strategy.steps[: step + 1]:
        if each.kind == "weight":
            made = replace(made, weight=each.percent)
        elif each.kind == "replicas":
            made = replace(made, replicas=each)
        elif each.kind == "mirror":
            made = replace(made, mirror=each.percent)
        elif each.kind == "header":
            made = replace(made, header=each if each.name else None)
        elif each.kind == "cookie":
            made = replace(made, cookie=each if each.name else None)
    return made


def goal_of(strategy: Strategy, progress: Progress, region: str, size: int) -> RegionGoal | None:
    """What the candidate may have in a region that should have ``size`` instances in all. None: as much as it carries,
    exchanged within the surge."""
    if progress.phase == ENDED or not strategy.is_configured:
        return None
    at = wave_of(progress, region)
    if progress.phase == GOING_BACK and strategy.kind in (ROLLING, RECREATE):
        return RegionGoal(weight=FULL, count=size, stays=True)  # stable is not at its size: it is exchanged back
    if progress.phase == GOING_BACK or region in (*progress.failed, *progress.missed) or at > progress.wave:
        return NOTHING
    if strategy.kind == ROLLING:
        return None
    if _has_all(strategy, progress, at):
        keeps = at < progress.wave or progress.phase == KEEPING
        return RegionGoal(weight=FULL, count=size, recreates=strategy.kind == RECREATE, keeps=keeps)
    held = settings_at(strategy, progress.step)
    return RegionGoal(weight=held.weight, count=_count(strategy, held, size, progress.step))


def testers_of(strategy: Strategy, progress: Progress, region: str) -> dict[str, Any]:
    """What gateways of a region need besides weights: whose requests go to the candidate, and how many are copied."""
    at = wave_of(progress, region)
    if not progress.is_active or progress.phase == GOING_BACK or at > progress.wave:
        return {}
    if region in (*progress.failed, *progress.missed):
        return {}
    found: dict[str, Any] = {}
    if strategy.preview_host:
        found["previewHost"] = strategy.preview_host
    if not strategy.is_configured or _has_all(strategy, progress, at):
        return found
    held = settings_at(strategy, progress.step)
    for name, step in (("header", held.header), ("cookie", held.cookie)):
        if step is not None:
            found[name] = {"name": step.name, "value": step.value}
    return {**found, "mirror": held.mirror} if held.mirror else found


def wave_of(progress: Progress, region: str) -> int:
    """Regions that came later belong to the wave that is under way, and one that missed its wave to a later one."""
    found = (at for at, wave in enumerate(progress.waves) if region in wave)
    return max(found, default=progress.wave)


def spec_of(strategy: Strategy, progress: Progress, wave: int) -> WaveSpec | None:
    """What the strategy says of a wave."""
    index = progress.specs[wave] if wave < len(progress.specs) else -1
    return strategy.waves[index] if 0 <= index < len(strategy.waves) else None


def _has_all(strategy: Strategy, progress: Progress, wave: int) -> bool:
    return (
        wave < progress.wave
        or progress.phase == KEEPING
        or progress.is_hurried
        or strategy.kind in (ROLLING, RECREATE)
        or progress.step >= len(strategy.steps)
    )


def _count(strategy: Strategy, held: StepSettings, size: int, step: int) -> int:
    """Instances of the candidate: as many as its share needs, or as a step says; blue-green has all of them at once."""
    needed = -(-held.weight * size // FULL)
    if held.replicas is not None:
        asked = held.replicas.count or -(-held.replicas.percent * size // FULL)
        return max(needed, min(asked, size), 1 if size else 0)
    return size if strategy.kind == BLUE_GREEN else max(needed, 1)
