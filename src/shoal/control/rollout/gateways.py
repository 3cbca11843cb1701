"""Decides how many pods of a gateway run which version while another one is rolled out. Pure.

    candidates start ─▶ they are ready ─▶ as many of its own pods go ─▶ its own pods are replaced ─▶ the candidates go

For a gateway weight means pods: its Service spreads connections over all that are ready. Ready pods never are fewer
than it should have, but where a candidate that is taken back had replaced some. One of one surges to two. ``promoted``
says that its own pods run the candidate's version, or are being replaced to do so: the candidates beside stay until
that is done. An agent that cannot run pods beside replaces a gateway's own ones at the first step.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.control.rollout.goals import FULL
from shoal.control.rollout.model import RegionGoal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldGateway:
    """What a gateway's agent was told."""

    count: int = 0  # pods of the candidate beside
    kept: int  # its own pods
    promoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    size: int  # pods that it should have in all
    told: ToldGateway
    goal: RegionGoal
    ready: int  # candidates beside
    pods: int  # candidates beside that exist, ready or not
    available: int  # its own
    is_settled: bool  # its agent has done what it was told: as many own pods as that, all of their version
    can_split: bool = True  # whether its agent can run pods beside


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayShare:
    """What a rollout is decided from: percents of the connections, and pods of the candidate's version."""

    weight: int
    routed: int
    ready: int


def step(facts: GatewayFacts) -> ToldGateway:
    """What to tell its agent next; the same again where nothing may change yet."""
    size, told, goal = facts.size, facts.told, facts.goal
    if not goal.weight:
        return ToldGateway(kept=size)
    if goal.weight == FULL or told.promoted or not facts.can_split or not size:
        is_done = not facts.can_split or not size or (told.promoted and facts.is_settled)
        return ToldGateway(count=0 if is_done else told.count, kept=size, promoted=True)
    count = min(goal.count, size)
    least = max(1, -(-size * (FULL - goal.weight) // FULL))
    return ToldGateway(count=count, kept=max(least, size - min(facts.ready, count)))


def share(facts: GatewayFacts) -> GatewayShare:
    """Where it is. What its candidate gets is its goal once its agent has everything as the next step wants it."""
    told, goal = facts.told, facts.goal
    is_there = facts.is_settled and step(facts) == told
    if told.promoted:
        weight = goal.weight if is_there else 0
        ready = facts.available if facts.is_settled else facts.ready
        return GatewayShare(weight=weight, routed=weight or FULL, ready=ready)
    if not told.count:
        left = not facts.is_settled or facts.pods > 0  # pods of the candidate may still serve
        return GatewayShare(weight=0, routed=1 if left else 0, ready=0)
    weight = goal.weight if is_there and facts.ready >= told.count else 0
    return GatewayShare(weight=weight, routed=max(weight, 1), ready=facts.ready)
