"""Rows of apps and of the fleet, from what ``shoal status`` shows. Pure.

Statuses have ages, which change all the time; rows have moments, which do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.dashboard.live.plan import Row, row

Json = Mapping[str, Any]

_duration = re.compile(r" for [0-9]+(?:\.[0-9]+)? s\b")
_LATELY_MS = 1_800_000  # for so long a rollout that went back is told
_GOOD = frozenset({"Ready", "Stopped"})
BROKEN_MS = 1500  # an agent that is restarted, or whose connection is cut, is back before
_BROKEN = "its connection to the control plane broke and has not come back; shown is the last known state"
_CONTROLLERS = ("deployments", "sentinels")


def moment(age_s: Any, now_ms: int) -> int | None:
    """When something was that is so old; None when it has not been."""
    return now_ms - round(float(age_s) * 1000) if age_s is not None else None


def text(value: Any) -> str | None:
    """None for an empty text: rows do not have those."""
    return str(value) if value else None


def told(value: Any) -> str | None:
    """A reason without how long it has held: it would be another one every second."""
    return _duration.sub("", str(value)) or None if value else None


def app_name(app: Json) -> str:
    return f"{app['project']}/{app['environment']}/{app['name']}"


def app_row(app: Json) -> Row:
    regions = app.get("regions") or ()
    wanted = [each for each in regions if each["desired"]["state"] in ("running", "stopped")]
    ready = [each for each in wanted if each["state"] in ("Ready", "Stopped", "Drifted")]
    rollout = app.get("rollout")
    return row(
        project=app["project"], environment=app["environment"], app=app["name"], summary=app["summary"],
        state=app["state"], reason=told(app.get("reason")), revision=app["revision"], live=text(app.get("live")),
        image=text(app.get("image")), regions=len(wanted), readyRegions=len(ready),
        rollout=dict(rollout) if rollout and (rollout["configured"] or rollout["steps"]) else None,
    )  # fmt: skip


def place_rows(app: Json, now_ms: int) -> dict[str, Row]:
    """Those of the newest revision, and of others that still run, by revision and place."""
    names = {"project": app["project"], "environment": app["environment"], "app": app["name"]}
    found: dict[str, Row] = {}
    parts = [(app["revision"], True, app.get("regions") or ())]
    parts += [(each["revision"], False, each["regions"]) for each in app.get("others") or ()]
    for revision, newest, places in parts:
        for place in places:
            key = f"{revision}/{place['region']}/{place['cluster']}/{place['shard']}"
            found[key] = place_row(place, now_ms) | names | row(revision=revision, newest=newest or None)
    return found


def place_row(place: Json, now_ms: int) -> Row:
    desired, applied, reported = place["desired"], place["applied"], place["reported"]
    scaling = desired.get("autoscaling") or {}
    placement = place.get("placement") or {}
    return row(
        region=text(place["region"]), cluster=text(place["cluster"]), shard=text(place["shard"]), state=place["state"],
        reason=text(place["reason"]), message=told(place["message"]), weight=place.get("weight"),
        desiredVersion=desired["version"] or None, desiredState=desired["state"],
        desiredAt=moment(desired["age"], now_ms), replicas=desired.get("replicas"), min=scaling.get("min"),
        max=scaling.get("max"), appliedVersion=applied["version"] or None, appliedAt=moment(applied["age"], now_ms),
        ready=reported.get("ready"), needed=reported.get("needed"), instances=reported.get("instances"),
        available=reported.get("available"), drift=reported.get("drift") or None,
        reportedAt=moment(reported["age"], now_ms), moving=place["moving"] or None,
        placement=row(because=placement.get("because"), refused=placement.get("refused") or None) or None,
    )  # fmt: skip


def with_broken(agents: Iterable[Json], broken: Mapping[tuple[str, str], int], now_ms: int) -> list[Json]:
    """Agents, those too that are not heard of since their connection broke: long before heartbeats are missed.
    ``broken`` has moments by cluster and shard. One that is connected to another control plane has been heard since."""
    found: list[Json] = []
    for agent in agents:
        at = broken.get((agent["cluster"], agent["shard"]), 0)
        heard = moment(agent["lastHeartbeat"], now_ms) or 0
        if agent["state"] == "Joined" and at > heard and now_ms - at > BROKEN_MS:
            agent = {**agent, "state": "Unreachable", "reason": _BROKEN}
        found.append(agent)
    return found


def agent_row(agent: Json, now_ms: int) -> Row:
    controllers = [each for name in _CONTROLLERS if (each := (agent["controllers"] or {}).get(name))]

    def summed(name: str) -> int | None:
        return sum(int(each.get(name) or 0) for each in controllers) if controllers else None

    def worst(name: str, good: str) -> str | None:
        states = [str(each[name]) for each in controllers if each.get(name)]
        return next((each for each in states if each != good), states[0] if states else None)

    return row(
        cluster=agent["cluster"], region=agent["region"], shard=agent["shard"], agent=agent["agent"],
        epoch=agent["epoch"], software=text(agent["software"]), state=agent["state"], reason=told(agent["reason"]),
        heartbeatAt=moment(agent["lastHeartbeat"], now_ms), lag=agent["lag"] or None, held=agent["held"] or None,
        image=text(agent.get("image")), connection=worst("connection", "live"), breaker=worst("breaker", "closed"),
        objects=summed("objects"), buffered=summed("buffered"), retrying=summed("retrying"),
    )  # fmt: skip


def gateway_row(gateway: Json) -> Row:
    return row(
        project=text(gateway["project"]), environment=text(gateway["environment"]), gateway=gateway["gateway"],
        region=gateway["region"], cluster=gateway["cluster"], shard=gateway["shard"], health=gateway["health"],
        available=gateway["available"], desired=gateway["desired"], status=gateway["status"],
        address=text(gateway["address"]), reason=told(gateway["reason"]),
    )  # fmt: skip


def gateway_key(gateway: Json) -> str:
    return f"{gateway['project']}/{gateway['environment']}/{gateway['region']}"


def apps_rows(overview: Json, now_ms: int, traffic: Mapping[str, Json]) -> dict[str, Row]:
    """``traffic`` has numbers by the app's name."""
    found: dict[str, Row] = {}
    for app in overview["apps"]:
        name = app_name(app)
        found[f"app/{name}"] = app_row(app) | traffic_fields(traffic.get(name))
        found |= {f"place/{name}/{key}": place for key, place in place_rows(app, now_ms).items()}
    for key in [key for key in found if key.startswith("place/")]:
        found[key].pop("placement", None)
    return found


def traffic_fields(numbers: Json | None) -> Row:
    if numbers is None:
        return {}
    names = ("rate", "errorRate", "errorShare", "p50Ms", "p99Ms")
    return {name: numbers[name] for name in names if numbers.get(name) is not None}


def problems(overview: Json, clusters: Iterable[Row]) -> dict[str, Row]:
    """What is wrong, for the top of a page. Whatever is a consequence of something else is left to that."""
    found: dict[str, Row] = {}
    lost = {agent["cluster"] for agent in overview["agents"] if agent["state"] != "Joined"}
    for agent in overview["agents"]:
        name = f"{agent['cluster']}/{agent['shard']}"
        if agent["state"] != "Joined":
            found[f"Agent/{name}"] = _problem(
                "error", "Agent", name, agent["reason"], reason=agent["state"], region=agent["region"],
                cluster=agent["cluster"], command="shoal agents",
                fix="what runs there goes on and gateways keep serving it; look at the cluster and at its agent's log",
            )  # fmt: skip
        elif agent["held"]:
            found[f"Agent/{name}"] = _problem(
                "warning", "Agent", name, "deletions wait for confirmation: more than usual were asked for",
                reason="BrakeHeld", region=agent["region"], cluster=agent["cluster"],
                command=f"shoal agents confirm {name}", fix="confirm them if they are intended",
            )  # fmt: skip
    for cluster in clusters:
        if cluster["state"] == "NoAgent":
            found[f"Cluster/{cluster['name']}"] = _problem(
                "warning", "Cluster", cluster["name"], cluster["problem"], reason="NoAgent", region=cluster["region"],
                cluster=cluster["name"], command=f"shoal cluster join {cluster['name']}", fix="join the cluster",
            )  # fmt: skip
    for app in overview["apps"]:
        if app["state"] not in _GOOD and (wrong := _app_problem(app, lost)) is not None:
            found[f"App/{app_name(app)}"] = wrong
    for gateway in overview["gateways"]:
        if gateway["reason"] and gateway["cluster"] not in lost:
            name = "/".join(part for part in (gateway["project"], gateway["environment"], gateway["gateway"]) if part)
            found[f"Gateway/{gateway_key(gateway)}"] = _problem(
                "error" if gateway["health"] == "unhealthy" else "warning", "Gateway", name, gateway["reason"],
                reason=gateway["health"], region=gateway["region"], cluster=gateway["cluster"],
                command="shoal get sentinels -A",
            )  # fmt: skip
    for one in overview["refused"]:
        kind = str(one["kind"]).capitalize()
        found[f"{kind}/{one['name']}/{one['cluster']}/{one['gateway']}"] = _problem(
            "error", kind, one["name"], f"gateway {one['gateway']} does not take it: {one['message']}",
            reason="Refused", cluster=one["cluster"],
        )  # fmt: skip
    return found


def _app_problem(app: Json, lost: set[str]) -> Row | None:
    places = [each for each in app.get("regions") or () if each["state"] not in ("Ready", "Stopped", "Drifted")]
    if places and all(each["cluster"] in lost for each in places):
        return None
    name, rollout = app_name(app), app.get("rollout")
    if app["state"] == "Progressing" and not any(each["state"] != "Progressing" for each in places):
        return None
    fix = command = None
    if app["state"] in ("Broken", "Failed") and app.get("live"):
        command, fix = f"shoal rollback app {name}", "go back to the last revision that was ready, or apply a fixed one"
    if rollout and rollout["phase"] == "goingBack":
        command, fix = f"shoal rollout status {name}", "nothing: the rollout gives all requests back by itself"
    return _problem(
        "error" if app["state"] in ("Broken", "Failed", "Degraded") else "warning", "App", name,
        app.get("reason") or app["summary"], reason=app["state"], command=command, fix=fix,
    )  # fmt: skip


def rollout_problems(rollouts: Iterable[Json], now_ms: int) -> dict[str, Row]:
    """Of the newest rollout of each app: that it goes back or is frozen, and for a while that it went back."""
    newest: dict[str, Json] = {}
    for each in rollouts:
        name = f"{each['project']}/{each['environment']}/{each['app']}"
        if name not in newest or each["number"] > newest[name]["number"]:
            newest[name] = each
    found: dict[str, Row] = {}
    for name, each in newest.items():
        went_back = each["outcome"] == "rolledBack" and (each["endedAt"] or 0) > now_ms - _LATELY_MS
        if not went_back and each["phase"] not in ("goingBack", "frozen"):
            continue
        frozen = each["phase"] == "frozen"
        how = "is frozen" if frozen else "went back" if went_back else "goes back"
        back = f"rollout {each['number']} {how}"
        fix = "decide: resume, promote or abort it" if frozen else "apply a fixed revision"
        found[f"Rollout/{name}"] = _problem(
            "error" if frozen else "warning", "Rollout", name, f"{back}: {each['reason']}" if each["reason"] else back,
            reason=str(each["outcome"] or each["phase"]), fix=fix, command=f"shoal rollout status {name}",
        )  # fmt: skip
    return found


def _problem(severity: str, kind: str, name: str, message: str, **more: Any) -> Row:
    return row(severity=severity, kind=kind, name=name, message=told(message), **more)


def summary(overview: Json, clusters: Sequence[Row], found: Mapping[str, Row]) -> Row:
    apps, gateways = overview["apps"], overview["gateways"]
    return row(
        clusters=len(clusters),
        agents=len(overview["agents"]),
        lost=sum(each["state"] != "Joined" for each in overview["agents"]),
        apps=len(apps),
        notReady=sum(each["state"] not in _GOOD for each in apps),
        gateways=len(gateways),
        unhealthy=sum(bool(each["reason"]) for each in gateways),
        rollouts=sum(bool((each.get("rollout") or {}).get("steps")) for each in apps),
        errors=sum(each["severity"] == "error" for each in found.values()),
        warnings=sum(each["severity"] == "warning" for each in found.values()),
    )
