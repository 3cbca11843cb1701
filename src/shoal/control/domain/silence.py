"""Why what is known of a place may be old: its agent is lost, or cannot use the API server of its cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.control.database import tables

LOST, UNREACHABLE = "AgentLost", "ClusterUnreachable"


@dataclass(frozen=True, slots=True)
class Silence:
    reason: str
    message: str


def outage_of(agent: tables.Agent | None) -> dict[str, Any]:
    """The outage that the agent's last heartbeat told of: its reason and its beginning; empty when there was none."""
    return ((agent.state if agent is not None else None) or {}).get("outage") or {}


def silence_of(agent: tables.Agent | None, now: int) -> Silence | None:
    """None when the agent is heard and its cluster answers, or when none has ever joined."""
    if agent is None:
        return None
    if agent.lost:
        return Silence(LOST, f"no heartbeat for {_seconds(agent.last_heartbeat_at, now)} s")
    outage = outage_of(agent)
    if not outage:
        return None
    since = _seconds(int(outage.get("sinceMs") or now), now)
    return Silence(
        UNREACHABLE,
        f"the agent is connected, but the cluster's API server cannot be used for {since} s: "
        f"{outage.get('reason') or 'no reason given'}; shown is the last known state",
    )


def _seconds(since: int, now: int) -> int:
    return max(0, now - since) // 1000
