"""Plays how the revisions of an app that is not applied yet would replace each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from shoal.control.domain.kinds.rollout import rollout_faults, strategy_of
from shoal.control.domain.model import GROUP
from shoal.control.domain.rehearsal_script import RehearsedEvents
from shoal.control.domain.specs import SpecDocument, read_app_spec
from shoal.control.rollout.plan import surge_of
from shoal.control.rollout.rehearsal import rehearse
from shoal.control.rollout.rehearsed_region import RegionSize
from shoal.control.rollout.strategy_json import strategy_as_json
from shoal.errors import Invalid


def rehearsed(
    wanted: SpecDocument,
    defaults: Mapping[str, Any],
    script: RehearsedEvents,
    *,
    start_ms: int,
    approves: bool,
) -> dict[str, Any]:
    """The rollout of an App step by step; ``defaults`` is the spec of its environment. ``approves``: steps that wait
    for approval get it at once. ``Invalid`` says what is wrong with the app."""
    if faults := rollout_faults(wanted.raw, dict(defaults)):
        raise Invalid.of("App", GROUP, wanted.ref.name, faults)
    strategy, spec = strategy_of(wanted.raw, dict(defaults)), read_app_spec(wanted.raw)
    sizes = [
        RegionSize(name=each.region, size=each.needed, surge=surge_of(each.needed, each.surge))
        for each in spec.topology
    ]
    rows = [asdict(each) for each in rehearse(
        strategy, sizes, script.faults, start_ms=start_ms, pace=script.pace, approves=approves
    )]  # fmt: skip
    return {
        "app": str(wanted.ref),
        "strategy": strategy_as_json(strategy),
        "rows": [{"time_s": each.pop("at_s"), **each} for each in rows],
    }


def regions_of(wanted: SpecDocument) -> list[str]:
    """The regions of an App, which a script may name."""
    return [each.region for each in read_app_spec(wanted.raw).topology]
