"""Strategies as JSON, as rows of rollouts keep them: with all defaults. Fields that another version wrote and this one
does not know are dropped; those that it did not write have their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from shoal.control.rollout.strategy import (
    AbortSpec,
    CheckSpec,
    LatencyLimit,
    NotificationSpec,
    StepSpec,
    Strategy,
    WaveSpec,
    WindowSpec,
)

T = TypeVar("T")


def strategy_as_json(strategy: Strategy) -> dict[str, Any]:
    return asdict(strategy)


def strategy_from_json(found: Mapping[str, Any]) -> Strategy:
    abort = found.get("abort") or {}
    return _made(
        Strategy,
        {
            **found,
            "steps": _each(StepSpec, found.get("steps"), "checks"),
            "waves": _each(WaveSpec, found.get("waves"), "regions"),
            "windows": _each(WindowSpec, found.get("windows"), "days"),
            "checks": _each(CheckSpec, found.get("checks")),
            "notify": _each(NotificationSpec, found.get("notify"), "on"),
            "abort": _made(AbortSpec, {**abort, "latency": _each(LatencyLimit, abort.get("latency"))}),
        },
    )


def _each(kind: type[T], found: Any, *lists: str) -> tuple[T, ...]:
    """Values of one type; ``lists`` are their fields that are tuples."""
    return tuple(
        _made(kind, {name: tuple(value) if name in lists else value for name, value in each.items()})
        for each in found or ()
    )


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # all of them are dataclasses
    return kind(**{name: value for name, value in found.items() if name in known})
