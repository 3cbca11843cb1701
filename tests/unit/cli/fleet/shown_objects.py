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
