"""A rollout in text: a picture for a terminal, lines that change only when the rollout does, and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from shoal.cli.printers import duration, facts, render
from shoal.cli.timestamps import age_of, clock_time

REGION_COLUMNS = (
    "wave", "region", "revision", "wanted", "taken", "ready", "requests", "failed", "p50", "p99", "waits_for",
)  # fmt: skip
DECISION_COLUMNS = ("time", "actor", "decision", "wave", "step", "reason")
HISTORY_COLUMNS = ("rollout", "revision", "strategy", "state", "started", "took", "actor", "reason")
UNDER_WAY_COLUMNS = ("rollout", "revision", "wave", "step", "weight", "state", "reason")
LAST_DECISIONS = 5
_NO_STEPS = "(left out)"
_OUTCOMES = {"promoted": "promoted", "rolledBack": "went back", "superseded": "replaced by a newer one"}
_PHASES = {"running": "running", "keeping": "promoted", "goingBack": "goes back", "frozen": "frozen"}

Shown = Mapping[str, Any]


def picture(found: Shown, app: str, now: datetime) -> str:
    """All of a rollout, with the numbers of both revisions in the last minute."""
    parts = [facts(_head(found, app, now))]
    if found["regions"]:
        parts.append(render([row for each in found["regions"] for row in _revisions(found, each)], REGION_COLUMNS))
    if found["decisions"]:
        parts.append(render(decision_rows(found["decisions"][-LAST_DECISIONS:]), DECISION_COLUMNS))
    return "\n".join(parts)


def lines_of(found: Shown, app: str) -> list[str]:
    """For output that is not a terminal: a line changes only when the rollout does, not with time or requests."""
    head = f"rollout {found['number']} of {app}"
    lines = [f"{clock_time(each['at'])} {head}: {each['action']}, {each['reason']}" for each in found["decisions"]]
    for each in found["regions"]:
        ready = f"{each['candidate']['ready']}/{_wanted_instances(each)}"
        lines.append(f"{head} in {each['region']}: {_percent(each['routed'])} of requests, ready {ready}")
    at = [part for part in (_place(found), found["reason"]) if part]
    return [*lines, ", ".join([f"{head}: {state_of(found)}", *at])]


def state_of(found: Shown) -> str:
    """In a word: running, paused, promoted, goes back, went back, frozen, …"""
    if found.get("outcome"):
        return _OUTCOMES.get(found["outcome"], str(found["outcome"]))
    if found["paused"] and found["phase"] == "running":
        return "paused"
    return _PHASES.get(found["phase"], str(found["phase"]))


def decision_rows(decisions: Sequence[Shown]) -> list[dict[str, Any]]:
    return [
        {
            "time": clock_time(each["at"]),
            "actor": each["actor"] or "rollout",
            "decision": each["action"],
            "wave": each["wave"] + 1,
            "step": each["step"] + 1,
            "reason": each["reason"],
        }
        for each in decisions
    ]


def history_rows(rollouts: Sequence[Shown], now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "rollout": each["number"],
            "revision": _revision(each),
            "strategy": each["strategy"],
            "state": state_of(each),
            "started": f"{age_of(each['startedAt'], now)} ago",
            "took": age_of(each["startedAt"], datetime.fromisoformat(each["endedAt"])) if each["endedAt"] else "",
            "actor": each["actor"],
            "reason": each["reason"],
        }
        for each in rollouts
    ]


def under_way_rows(apps: Sequence[tuple[str, Shown]]) -> list[dict[str, Any]]:
    """Apps (name and what the control plane says of the app) with a rollout that has steps and is under way."""
    return [
        {
            "rollout": f"{name} {found['number']}",
            "revision": _revision(found),
            "wave": f"{min(found['wave'] + 1, found['waves'])}/{found['waves']}",
            "step": _step_number(found),
            "weight": _percent(found["weight"]),
            "state": state_of(found),
            "reason": found["reason"],
        }
        for name, app in apps
        if (found := app.get("rollout")) and found["configured"]
    ]


def under_way_text(found: Shown | None) -> str:
    """The rollout of an app that is under way, in one line; empty without one."""
    if not found:
        return ""
    parts = [
        f"{found['number']}, revision {_revision(found)}: {state_of(found)}", _place(found),
        found["reason"],
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def answer_of(verb: str, found: Shown, app: str) -> str:
    """What a command has done, in one line."""
    head = f"rollout {found['number']} of {app}"
    match verb:
        case "pause":
            return f"{head} is paused at {_place(found)}; `shoal rollout resume` lets it go on"
        case "resume" | "skip":
            waits = f": {found['reason']}" if found["reason"] else ""
            return f"{head} goes on at {_place(found)}{waits}" if _place(found) else f"{head}: {state_of(found)}"
        case "promote":
            return f"{head} is promoted without the steps that are left: revision {found['revision']} gets all requests"
        case _:
            return began(found, app)


def began(found: Shown, app: str) -> str:
    """What has begun, in one line; without steps it may have ended by now."""
    head = f"rollout {found['number']} of {app}"
    if found["phase"] == "goingBack" or found.get("outcome") == "rolledBack":
        word = "goes" if found["phase"] == "goingBack" else "went"
        return f"{head} {word} back to revision {found['stableRevision']} in all regions"
    has_steps = found["configured"] and not found["hurried"]
    how = ", ".join(each for each in (found["strategy"], _place(found)) if each) if has_steps else "without steps"
    return f"{head}: revision {found['revision']} takes the place of {found['stableRevision']}, {how}"


def _head(found: Shown, app: str, now: datetime) -> list[tuple[str, Any]]:
    ended = found["endedAt"]
    lasts = age_of(found["startedAt"], datetime.fromisoformat(ended) if ended else now)
    state = f"{state_of(found)}{' after' if ended else ' for'} {lasts}, started by {found['actor']}"
    return [
        ("Rollout", f"{found['number']} of {app}, {found['strategy']}, revision {_revision(found)}"),
        ("State", state),
        ("Waves", _waves(found)),
        ("Steps", _steps(found)),
        ("Time left", _left(found["stepUntil"], now)),
        ("Waits for", found["hold"] if found["phase"] == "running" else ""),
        ("Goes back", _left(found["holdEndsAt"], now)),
        ("Next look", _left(found["dueAt"], now) if found["phase"] == "running" else ""),
        ("Verdict", found["verdict"]),
        ("Failure", found["failure"]),
        ("Left out", ", ".join(found["failedRegions"])),
    ]


def _revision(found: Shown) -> str:
    return f"{found['stableRevision']} → {found['revision']}"


def _place(found: Shown) -> str:
    """``step 2/6, weight 25 %``"""
    steps = found["steps"] if isinstance(found["steps"], int) else len(found["steps"])
    if not found["configured"] or found["phase"] != "running":
        return ""
    step = "" if found["hurried"] or not steps else f"step {_step_number(found)}, "
    waves = found["waves"] if isinstance(found["waves"], int) else len(found["waves"])
    wave = f"wave {min(found['wave'] + 1, waves)}/{waves}, " if waves > 1 else ""
    return f"{wave}{step}weight {_percent(found['weight'])}"


def _step_number(found: Shown) -> str:
    steps = found["steps"] if isinstance(found["steps"], int) else len(found["steps"])
    return "" if found["hurried"] or not steps else f"{min(found['step'] + 1, steps)}/{steps}"


def _waves(found: Shown) -> str:
    is_on = found["phase"] in ("running", "frozen")
    names = [", ".join(wave) for wave in found["waves"]]
    return " → ".join(
        f"[{name}]" if is_on and at == found["wave"] else f"{name} ✓" if at < found["wave"] else name
        for at, name in enumerate(names)
    )


def _steps(found: Shown) -> str:
    if not found["configured"]:
        return ""
    if found["hurried"]:
        return _NO_STEPS
    is_on = found["phase"] in ("running", "frozen")
    has_all = found["phase"] == "keeping" or found["outcome"] == "promoted"
    shown = []
    for at, text in enumerate([*(_step(each) for each in found["steps"]), "all requests"]):
        is_done = has_all or at < found["step"]
        shown.append(f"[{text}]" if is_on and at == found["step"] else f"{text} ✓" if is_done else text)
    return " → ".join(shown)


def _step(step: Shown) -> str:
    kind = str(step["kind"])
    if kind == "weight":
        return _percent(step["weight"])
    if kind == "pause":
        return "approval" if step.get("approval") else f"pause {_span(step['seconds'])}"
    if kind == "analysis":
        return f"analysis {_span(step['seconds'])}"
    if kind == "replicas":
        return f"replicas {step['replicas']}"
    if kind == "mirror":
        return f"mirror {_percent(step['percent'])}" if step["percent"] else "mirror ends"
    return f"{kind} {step['name']}={step['value']}" if step.get("name") else f"{kind} ends"


def _revisions(found: Shown, region: Shown) -> list[dict[str, Any]]:
    """One row per revision of a region: the new one, copies of requests to it, then the old one if it is there."""
    new, old, goal = region["candidate"], region["stable"], region["goal"]
    waits = region["failure"] or ("agent silent" if region["lost"] else "") or region["waitsFor"]
    rows = [
        {
            "wave": region["wave"] + 1,
            "region": region["region"],
            "revision": f"{found['revision']} new",
            "wanted": _percent(goal["weight"] if goal else region["weight"]),
            "taken": _percent(region["routed"]),
            "ready": f"{new['ready']}/{_wanted_instances(region)}",
            "waits_for": "left out" if region["leftOut"] else waits,
            **_traffic(new),
        }
    ]
    if copies := new.get("copies"):
        about = {"wave": region["wave"] + 1, "region": region["region"], "revision": f"{found['revision']} copies"}
        rows.append({**about, **_traffic(copies)})
    if old["present"]:
        rows.append(
            {
                "wave": region["wave"] + 1,
                "region": region["region"],
                "revision": f"{found['stableRevision']} old",
                "wanted": _percent(old.get("weight")),
                "taken": _percent(old.get("routed")),
                "ready": f"{old['ready']}/{old['instances']}" if "ready" in old else "",
                **_traffic(old),
            }
        )
    return rows


def _wanted_instances(region: Shown) -> int:
    goal, told = region["goal"], int(region["candidate"]["instances"])
    return int(goal["instances"]) if goal else told


def _traffic(revision: Shown) -> dict[str, str]:
    requests, failed = revision.get("requests"), revision.get("failed") or 0
    if requests is None:
        return {}
    return {
        "requests": str(requests),
        "failed": f"{failed} ({100 * failed / requests:.1f} %)" if failed else "0",
        "p50": _ms(revision.get("p50")),
        "p99": _ms(revision.get("p99")),
    }


def _percent(weight: Any) -> str:
    return "" if weight is None else f"{weight} %"


def _ms(value: Any) -> str:
    return "" if value is None else f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _span(seconds: float) -> str:
    return f"{seconds:g}s" if seconds < 120 else duration(seconds)


def _left(moment: Any, now: datetime) -> str:
    if not moment:
        return ""
    return f"in {duration(max(0.0, (datetime.fromisoformat(str(moment)) - now).total_seconds()))}"
