"""Decides from heartbeats which agents are lost. If too many are silent at once, it marks none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shoal.sync.keys import Place

LEAST = 3  # one or two that vanish together are believed, however small the fleet


class Heard(NamedTuple):
    """When an agent was last heard, in milliseconds since 1970; ``lost`` is what was decided before."""

    place: Place
    at_ms: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    lost: tuple[Heard, ...]  # to be marked now
    vanished: int  # that were not heard for too long and are not marked yet
    frozen: bool  # too many at once: none is marked


def judge(
    agents: Sequence[Heard], now_ms: int, *, lost_after_ms: int, recently_lost: int, fraction: float
) -> Judgement:
    """``recently_lost`` were marked a moment ago: a fleet that vanishes bit by bit counts as one."""
    alive = [agent for agent in agents if not agent.lost]
    silent = tuple(agent for agent in alive if now_ms - agent.at_ms > lost_after_ms)
    together = len(silent) + recently_lost
    frozen = bool(silent) and together >= LEAST and together > fraction * (len(alive) + recently_lost)
    return Judgement(() if frozen else silent, len(silent), frozen)
