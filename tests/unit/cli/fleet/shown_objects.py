"""Apps and agents as the control plane shows them."""

from __future__ import annotations

from typing import Any


def a_place(region: str, state: str = "Ready", *, ready: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "region": region, "cluster": f"{region}-1", "shard": "default", "state": state, "reason": "", "message": "",
        "desired": {"version": 7}, "applied": {"version": 7}, "reported": {"ready": ready, "needed": 1, "age": 3.21},
        **more,
    }  # fmt: skip


def a_shown_app(*regions: dict[str, Any], state: str = "Ready", **more: Any) -> dict[str, Any]:
    return {
        "name": "web", "project": "p", "environment": "e", "state": state, "summary": state, "regions": list(regions),
        **more,
    }  # fmt: skip


def an_agent(**more: Any) -> dict[str, Any]:
    controllers = {
        name: {"breaker": "closed", "objects": 2, "retrying": 0, "brake": {"held": False}}
        for name in ("deployments", "sentinels")
    }
    return {
        "cluster": "eu-1", "region": "eu", "shard": "default", "state": "Joined", "lastHeartbeat": 2.0, "lag": 0.5,
        "controllers": controllers, "held": [], **more,
    }  # fmt: skip


def a_shown_rollout(**more: Any) -> dict[str, Any]:
    """A canary at its second step in ``us``, the first of two waves."""
    new = {"ready": 1, "instances": 1, "requests": 62, "failed": 3, "p50": 4.5, "p99": 18.2}
    old = {
        "present": True, "ready": 2, "instances": 2, "weight": 95, "routed": 100, "requests": 1180, "failed": 0,
        "p50": 4.1, "p99": 9.0,
    }  # fmt: skip
    region = {"wave": 0, "weight": 5, "routed": 0, "failure": "", "lost": False, "leftOut": False, "waitsFor": ""}
    regions: list[dict[str, Any]] = [
        {**region, "region": "us", "goal": {"weight": 5, "instances": 1}, "candidate": new, "stable": old,
         "waitsFor": "sentinel-x"},
        {**region, "region": "eu", "wave": 1, "weight": 0, "goal": {"weight": 0, "instances": 0},
         "candidate": {"ready": 0, "instances": 0}, "stable": {**old, "ready": 2}},
    ]  # fmt: skip
    return {
        "number": 3, "strategy": "canary", "configured": True, "revision": 2, "stableRevision": 1, "phase": "running",
        "outcome": "", "paused": False, "reason": "analysis takes 10 s", "actor": "ann", "hurried": False, "weight": 5,
        "startedAt": "2027-01-31T12:00:00+00:00", "endedAt": None, "wave": 0, "waves": [["us"], ["eu"]], "step": 1,
        "steps": [
            {"kind": "weight", "weight": 5}, {"kind": "analysis", "weight": 5, "seconds": 10.0},
            {"kind": "weight", "weight": 25}, {"kind": "pause", "weight": 25, "approval": True},
            {"kind": "header", "weight": 25, "name": "beta", "value": "v2"},
            {"kind": "mirror", "weight": 25, "percent": 5},
        ],
        "hold": "analysis takes 10 s", "verdict": "0.0 % of 62 requests", "failure": "", "failedRegions": [],
        "keptUntil": None, "stepUntil": "2027-01-31T12:01:04+00:00", "holdEndsAt": None,
        "dueAt": "2027-01-31T12:01:02+00:00", "regions": regions,
        "decisions": [{"id": 1, "at": "2027-01-31T12:00:30+00:00", "actor": "", "action": "step",
                       "reason": "weight is done", "wave": 0, "step": 1, "numbers": {}}],
        **more,
    }  # fmt: skip
