"""Turns the control plane's data of apps and agents into table rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.cli.printers import duration

APP_COLUMNS = ("app", "region", "cluster", "state", "ready", "desired", "applied", "reported", "reason")
APP_WIDE = ("revision", "weight", "image")
AGENT_COLUMNS = ("agent", "region", "state", "heartbeat", "lag", "objects", "retrying", "breaker", "brake")
AGENT_WIDE = ("software", "epoch")
INSTANCE_COLUMNS = (
    "instance", "revision", "region", "cluster", "status", "ready", "restarts", "address", "node", "reason",
)  # fmt: skip
REFUSED_COLUMNS = ("refused", "cluster", "gateway", "reason")
TROUBLED_COLUMNS = ("gateway", "region", "cluster", "health", "available", "address", "reason")
GATEWAY_COLUMNS = ("gateway", "state", "deployments", "requests", "errors", "instances", "refused")
REVISION_COLUMNS = ("revision", "live", "status", "state", "image", "created", "ready_after", "reason")

Shown = Mapping[str, Any]


def app_name(app: Shown) -> str:
    return "/".join(str(app[part]) for part in ("project", "environment", "name") if app.get(part))


def app_rows(apps: Sequence[Shown]) -> list[dict[str, Any]]:
    """One row per app and place; an app without a place has one row. Revisions that are being removed follow."""
    rows: list[dict[str, Any]] = []
    for app in apps:
        places = [region_row(place) for place in app.get("regions") or ()]
        for other in app.get("others") or ():
            places += [_leaving(place, other) for place in other.get("regions") or ()]
        name = app_name(app)
        of_app = {"app": name, "revision": app.get("revision"), "image": app.get("image")}
        rows += [{**of_app, **place} for place in places] or [
            {**of_app, "state": app.get("state"), "reason": app.get("reason") or app.get("summary")}
        ]
    return rows


def refused_rows(refused: Sequence[Shown]) -> list[dict[str, Any]]:
    """One row per configuration item that a gateway rejected."""
    return [
        {
            "refused": f"{one['kind']} {one['name']}",
            "cluster": one["cluster"],
            "gateway": one["gateway"],
            "reason": one["message"],
        }
        for one in refused
    ]


def troubled_rows(gateways: Sequence[Shown]) -> list[dict[str, Any]]:
    """One row per gateway that is not healthy, or not in its newest version."""
    return [
        {**one, "gateway": gateway_name(one), "available": f"{one['available']}/{one['desired']}"}
        for one in gateways
        if one["reason"]
    ]


def gateway_name(gateway: Shown) -> str:
    """PROJECT/ENVIRONMENT/NAME, or the name alone of a shared one."""
    return "/".join(str(gateway[part]) for part in ("project", "environment", "gateway") if gateway.get(part))


def gateway_rows(places: Sequence[Shown]) -> list[dict[str, Any]]:
    """One row per replica of a gateway: its counters since its start, and the configuration that it rejected."""
    rows = []
    for place in places:
        stats = (place["reported"].get("stats") or {}).get("gateways") or {}
        out, stale = (place["reported"].get(name) or () for name in ("takenOut", "stale"))
        for pod, entry in sorted(stats.items()):
            counted = list((entry.get("deployments") or {}).values())
            codes = [sum(each["codes"][at] for each in counted) for at in range(5)]
            rows.append(
                {
                    "gateway": pod,
                    "state": "out" if pod in out else "stale" if pod in stale else "current",
                    "deployments": len(counted),
                    "requests": sum(codes),
                    "errors": codes[4],
                    "instances": f"{sum(e['healthy'] for e in counted)}/{sum(e['total'] for e in counted)}",
                    "refused": len(entry.get("refused") or ()),
                }
            )
    return rows


def refused_of_gateways(places: Sequence[Shown]) -> list[dict[str, Any]]:
    """The configuration that the replicas of a gateway rejected."""
    return [
        {
            "refused": f"{one['type']} {one['name']}",
            "cluster": place["cluster"],
            "gateway": pod,
            "reason": one["reason"],
        }
        for place in places
        for pod, entry in sorted(((place["reported"].get("stats") or {}).get("gateways") or {}).items())
        for one in entry.get("refused") or ()
    ]


def region_row(place: Shown) -> dict[str, Any]:
    """Desired, applied and actual state of one place."""
    desired, applied, reported = place["desired"], place["applied"], place["reported"]
    counted = "ready" in reported
    return {
        "region": place["region"],
        "cluster": _cluster(place),
        "state": place["state"],
        "weight": f"{place['weight']} %" if place.get("weight") is not None else "",
        "ready": f"{reported['ready']}/{reported['needed']}" if counted else "",
        "desired": _version(desired),
        "applied": _version(applied),
        "reported": duration(reported.get("age")),
        "reason": reason_of(place),
    }


def _leaving(place: Shown, other: Shown) -> dict[str, Any]:
    row = region_row(place)
    share = place.get("weight") or 0
    why = f"revision {other['revision']}, {f'{share} % of requests' if share else other['status']}"
    return {
        **row,
        "state": "Older",
        "revision": other["revision"],
        "image": other.get("image"),
        "reason": f"{why}: {row['reason']}" if row["reason"] else why,
    }


def reason_of(place: Shown) -> str:
    """Why the actual state of a place differs from the desired one."""
    reason, message = place.get("reason") or "", place.get("message") or ""
    if not reason or not message or reason in message:
        return str(message or reason)
    return f"{reason}: {message}"


def _cluster(place: Shown) -> str:
    shard = place.get("shard")
    return f"{place['cluster']}/{shard}" if shard and shard != "default" else str(place["cluster"])


def _version(part: Shown) -> str:
    return f"v{part['version']}" if part.get("version") else ""


def is_ready(app: Shown) -> bool:
    """Whether the newest revision is ready in every place."""
    return app.get("state") in ("Ready", "Stopped")


def not_ready_lines(apps: Sequence[Shown], gateways: Sequence[Shown] = ()) -> list[str]:
    """Why apps and gateways are not ready, one by one."""
    lines = [f"gateway {row['gateway']}: {row['health']}, {row['reason']}" for row in troubled_rows(gateways)]
    for app in apps:
        if is_ready(app):
            continue
        lines.append(f"{app_name(app)}: {app.get('summary')}")
        for place in app.get("regions") or ():
            if place["state"] not in ("Ready", "Stopped", "Drifted"):
                why = reason_of(place)
                lines.append(f"  {place['region'] or place['cluster']}: {place['state']}" + (f", {why}" if why else ""))
    return lines


def agent_name(agent: Shown) -> str:
    return f"{agent['cluster']}/{agent['shard']}"


def agent_rows(agents: Sequence[Shown]) -> list[dict[str, Any]]:
    rows = []
    for agent in sorted(agents, key=lambda each: (each["region"], each["cluster"], each["shard"])):
        controllers = [each for each in (agent.get("controllers") or {}).values() if each]
        rows.append(
            {
                **agent,
                "agent": agent_name(agent),
                "region": agent["region"],
                "state": agent["state"],
                "heartbeat": duration(agent.get("lastHeartbeat")),
                "lag": duration(agent.get("lag")),
                "objects": _sum(controllers, "objects"),
                "retrying": _sum(controllers, "retrying"),
                "breaker": _breaker(controllers),
                "brake": _brake(controllers) if agent.get("held") else "free",
            }
        )
    return rows


def _sum(controllers: Sequence[Shown], name: str) -> int | None:
    return sum(int(each.get(name) or 0) for each in controllers) if controllers else None


def _breaker(controllers: Sequence[Shown]) -> str:
    states = {str(each.get("breaker") or "") for each in controllers} - {"", "closed"}
    return ",".join(sorted(states)) or ("closed" if controllers else "")


def _brake(controllers: Sequence[Shown]) -> str:
    held = [each["brake"] for each in controllers if (each.get("brake") or {}).get("held")]
    count = sum(int(each.get("count") or 0) for each in held)
    return f"holds {count} deletions" if count else "held"


def instance_rows(instances: Sequence[Shown]) -> list[dict[str, Any]]:
    rows = []
    for each in instances:
        parts = [each.get("reason") or "", f"exit code {each['exitCode']}" if each.get("exitCode") else ""]
        text = ", ".join(part for part in parts if part)
        message = each.get("message") or ""
        reason = f"{text}: {message}" if text and message else text or message
        rows.append({**each, "instance": each["name"], "reason": reason})
    return rows
