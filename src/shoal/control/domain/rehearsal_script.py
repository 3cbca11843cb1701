"""Reads the script of a rehearsal: how fast things happen, and what goes wrong when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.rollout_checks import LONGEST_REQUEST_S, QUANTILES
from shoal.control.rollout.rehearsal import PlayedFault
from shoal.control.rollout.rehearsed_region import Pace
from shoal.errors import FieldError, invalid, required

MAX_FAULTS = 1000


@dataclass(frozen=True, slots=True)
class RehearsedEvents:
    faults: tuple[PlayedFault, ...] = ()
    pace: Pace = Pace()


def read_script(value: Any, regions: Collection[str]) -> tuple[RehearsedEvents, list[FieldError]]:
    """The script, and what is wrong with it. A list is one of faults only."""
    errors: list[FieldError] = []
    script = Reader({"faults": value} if isinstance(value, list) else value, "", errors)
    usual = Pace()
    pace = Pace(
        ready_s=script.seconds("ready", usual.ready_s, 0.001),
        acknowledge_s=script.seconds("acknowledge", usual.acknowledge_s, 0.001),
        requests_per_s=script.number("requestsPerSecond", usual.requests_per_s, 0, 1_000_000),
    )
    found = RehearsedEvents(tuple(_fault(each, regions) for each in script.parts("faults", MAX_FAULTS)), pace)
    script.close()
    return found, errors


def _fault(part: Reader, regions: Collection[str]) -> PlayedFault:
    if not part.has("at"):
        part.note(required(part.at("at"), "when it happens, such as 3m"))
    region = part.text("region")
    if region and region not in regions:
        part.note(invalid(part.at("region"), region, f"is not a region of the app: use one of {', '.join(regions)}"))
    errors = part.share("errors") if part.has("errors") else None
    part.raw("errors")
    made = PlayedFault(
        at_s=part.seconds("at", 0.0),
        region=region,
        errors=errors,
        latency_ms={
            quantile: part.seconds(name, 0.0, 0.0, LONGEST_REQUEST_S) * 1000
            for name, quantile in QUANTILES.items()
            if part.has(name) or part.raw(name)  # those that are not there are known too
        },
        lost=_flag(part, "lost"),
        crash=_flag(part, "crash"),
        no_samples=_flag(part, "noSamples"),
        approve=part.flag("approve"),
    )
    part.close()
    return made


def _flag(part: Reader, name: str) -> bool | None:
    value = part.flag(name)
    return value if part.has(name) else None
