"""Why things are as they are: the chain of steps from what was asked for to what runs, each with its state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.dashboard.live.plan import Row, row
from shoal.dashboard.topics.status_rows import moment, told

Json = Mapping[str, Any]

OK, WAITING, BAD = "ok", "waiting", "bad"
_BAD = frozenset({"ApplyFailed", "AgentLost", "ClusterUnreachable", "Failing", "Unplaced"})
_DONE = frozenset({"Ready", "Stopped", "Drifted"})


def step(level: str, title: str, text: str, **more: Any) -> Row:
    return row(level=level, title=title, text=told(text), **{name: value or None for name, value in more.items()})


def chain(steps: Iterable[Row], good: str) -> dict[str, Row]:
    """The rows of a chain. The first step that is bad, else the first that waits, is the verdict."""
    known = list(steps)
    found = {f"step/{order}": {**each, "order": order} for order, each in enumerate(known)}
    verdict = next((each for each in known if each["level"] == BAD), None)
    verdict = verdict or next((each for each in known if each["level"] == WAITING), None)
    found["#"] = {"level": verdict["level"], "text": verdict["text"]} if verdict else {"level": OK, "text": good}
    return found


def app_steps(
    name: str, status: Json, history: Json, rollout: str, gateways: Sequence[Json], routes: Sequence[Json], now_ms: int
) -> list[Row]:
    """From the revision over every place to the gateways. ``rollout`` is what it says, empty without one."""
    found = [_applied(name, status, history)]
    if rollout:
        found.append(
            step(*_rollout(status, rollout), kind="Rollout", name=name, command=f"shoal rollout status {name}")
        )
    for place in status["regions"]:
        found += _place(place, name, now_ms)
    for other in status.get("others") or ():
        where = ", ".join(f"{each['region']} ({each.get('weight') or 0} % of requests)" for each in other["regions"])
        text = f"revision {other['revision']} still runs, {other['status']}: {where}"
        found.append(step(OK, "Older revision", text, kind="App", name=name))
    for each in routes:
        good = each["state"] == "Applied"
        level = OK if good else WAITING if each["state"] in ("Progressing", "Unplaced") else BAD
        text = f"{each['spec'].get('host', '')} leads here" if good else str(each["message"])
        home = f"{each['project']}/{each['environment']}/{each['name']}"
        found.append(step(level, "Route", f"{each['name']}: {text}", kind="Route", name=home))
    if not routes:
        found.append(step(OK, "Route", "no route leads to it: only other apps reach it", kind="App", name=name))
    for each in gateways if routes else ():
        level = OK if not each["reason"] else BAD if each["health"] == "unhealthy" else WAITING
        text = each["reason"] or f"{each['health']}, {each['available']} of {each['desired']} replicas are available"
        found.append(
            step(level, "Gateway", f"{each['region']}: {text}", kind="Gateway", name=each["gateway"],
                 region=each["region"], cluster=each["cluster"])
        )  # fmt: skip
    return found


def _applied(name: str, status: Json, history: Json) -> Row:
    changes = history["changes"]
    who = f"{changes[0]['actor']} ({changes[0]['action']})" if changes else "nobody that is still known"
    if not status.get("deployment"):
        return step(BAD, "Applied", "it has no revision", kind="App", name=name)
    text = f"revision {status['revision']} of {status['image']}, last changed by {who}"
    level = BAD if status["state"] in ("Failed", "Broken") else OK
    if level == BAD and status.get("reason"):
        text = f"{text}; {status['state'].lower()}: {status['reason']}"
    command = f"shoal rollback app {name}" if level == BAD else f"shoal history app {name}"
    return step(level, "Applied", text, kind="App", name=name, command=command)


def _rollout(status: Json, sentence: str) -> tuple[str, str, str]:
    brief = status.get("rollout")
    if brief is None:
        return OK, "Rollout", sentence
    if brief["phase"] in ("goingBack", "frozen"):
        return BAD, "Rollout", sentence
    return WAITING if brief["phase"] == "running" else OK, "Rollout", sentence


def _place(place: Json, name: str, now_ms: int) -> list[Row]:
    """A region, from the choice of its cluster to its instances; what comes after a fault is left out."""
    region, cluster = place["region"] or place["cluster"], place["cluster"]
    about = {"kind": "App", "name": name, "region": place["region"], "cluster": cluster}
    if place["state"] == "Removing":
        return [step(WAITING, "Removing", f"{region}: {place['message']}", **about)]
    if place["state"] == "Unplaced":
        return [step(BAD, "Placed", f"{region}: {place['message']}", command=f"shoal explain app {name}", **about)]
    because = (place.get("placement") or {}).get("because")
    found = [step(OK, "Placed", f"{region} → {cluster}" + (f": {because}" if because else ""), **about)]
    desired, applied, reported = place["desired"], place["applied"], place["reported"]
    if place["state"] in ("AgentLost", "ClusterUnreachable"):
        found.append(
            step(BAD, "Agent", f"{cluster}: {place['message']}", kind="Cluster", name=cluster, region=place["region"],
                 cluster=cluster, command="shoal agents",
                 fix="what runs there goes on; look at the cluster, its network and the agent's log")
        )  # fmt: skip
        return found
    if place["state"] == "ApplyFailed":
        found.append(step(BAD, "Applied in the cluster", f"{cluster}: {place['reason']}: {place['message']}", **about))
        return found
    if applied["version"] < desired["version"]:
        found.append(step(WAITING, "Applied in the cluster", f"{cluster}: {place['message']}", **about))
        return found
    when = moment(applied["age"], now_ms)
    found.append(step(OK, "Applied in the cluster", f"{cluster} has version {applied['version']}", at=when, **about))
    level = OK if place["state"] in _DONE else BAD if place["state"] in _BAD else WAITING
    ready = f"{reported.get('ready', 0)} of {reported.get('needed', 0)} instances are ready"
    text = f"{cluster}: {ready}" + (f"; {place['message']}" if place["message"] and place["message"] != ready else "")
    fix = {"Drifted": "apply it again, or change the app to what the cluster has"}.get(place["state"])
    found.append(step(level, "Instances", text, at=moment(reported.get("age"), now_ms), fix=fix, **about))
    return found


def place_steps(kind: str, name: str, shown: Json) -> list[Row]:
    """A route, policy, gateway or key at each of its places."""
    found = []
    for place in shown["places"]:
        state = place["state"]
        level = OK if state in ("Applied", "Removed") else WAITING if state in ("Progressing", "Removing") else BAD
        text = f"{place['cluster']}: {state}" + (f", {place['message'] or place['reason']}" if level != OK else "")
        found.append(step(level, "In the cluster", text, kind=kind, name=name, cluster=place["cluster"]))
    return found or [
        step(WAITING, "In the cluster", "nowhere yet: no gateway of its environment runs", kind=kind, name=name)
    ]


def cluster_steps(name: str, agents: Sequence[Json], seen: Json | None, now_ms: int) -> list[Row]:
    if not agents:
        text = "no agent has joined"
        return [step(BAD, "Agent", text, kind="Cluster", name=name, command=f"shoal cluster join {name}")]
    found = []
    for agent in agents:
        where = f"{agent['cluster']}/{agent['shard']}"
        about = {"kind": "Agent", "name": where, "cluster": name, "region": agent["region"], "command": "shoal agents"}
        good = agent["state"] == "Joined"
        heard = moment(agent["lastHeartbeat"], now_ms)
        text = f"{where}: {'joined, ' + agent['agent'] if good else agent['reason']}"
        found.append(step(OK if good else BAD, "Agent", text, at=heard, **about))
        for controller, state in (agent["controllers"] or {}).items():
            faults = [f"{state['retrying']} objects are tried again"] if state.get("retrying") else []
            if state.get("breaker") not in (None, "", "closed"):
                faults.append(f"its breaker is {state['breaker']}")
            if controller in agent["held"]:
                faults.append("deletions wait for confirmation")
            text = f"{controller}: {', '.join(faults) or str(state.get('objects') or 0) + ' objects are as wanted'}"
            found.append(step(WAITING if faults else OK, "Controller", text, **about))
    if seen is not None:
        good = seen["freshness"] == "healthy"
        text = f"the navigator's view is {seen['freshness']}"
        found.append(step(OK if good else WAITING, "Navigator", text, kind="Cluster", name=name, cluster=name))
        for each in seen["kinds"]:
            if each["state"] in ("forbidden", "failing"):
                text = f"{each['kind']} cannot be read: {each['error']}"
                found.append(step(WAITING, "Navigator", text, kind="Cluster", name=name, cluster=name))
    return found


def rollout_steps(name: str, found: Json) -> list[Row]:
    """From its beginning over its decisions to what it waits for."""
    steps = [
        step(OK, "Began", f"revision {found['stableRevision']} → {found['revision']}, {found['strategy']}",
             kind="Rollout", name=name)
    ]  # fmt: skip
    for each in found["decisions"][-20:]:
        bad = each["action"] in ("rollback", "freeze", "fail") or "abort" in each["action"]
        steps.append(
            step(BAD if bad else OK, each["action"], each["reason"] or each["action"], kind="Rollout", name=name)
        )
    for region in found["regions"]:
        if region["failure"] or region["waitsFor"]:
            waits = region["waitsFor"]
            text = region["failure"] or (", ".join(waits) if isinstance(waits, list | tuple) else str(waits))
            level = BAD if region["failure"] else WAITING
            steps.append(step(level, "Region", f"{region['region']}: {text}", region=region["region"]))
    if found["hold"] and not found["outcome"]:
        steps.append(step(WAITING, "Waits", found["hold"], kind="Rollout", name=name))
    if found["failure"]:
        steps.append(step(BAD, "Failed", found["failure"], kind="Rollout", name=name))
    return steps


def pod_steps(pod: Json, events: Sequence[Json], node: Json | None) -> list[Row]:
    """A pod of any cluster: who asked for it, its node, its containers, and what its cluster said last."""
    name = f"{pod['namespace']}/{pod['name']}"
    about = {"kind": "Pod", "name": name, "cluster": pod["cluster"]}
    found = []
    if pod.get("app"):
        found.append(step(OK, "App", f"belongs to {pod['app']}", kind="App", name=str(pod["app"])))
    if not pod.get("node"):
        why = next((each["message"] for each in reversed(events) if each["reason"] == "FailedScheduling"), "")
        found.append(step(BAD if why else WAITING, "Node", why or "it has no node yet", **about))
        return found
    if node is not None and not node.get("ready"):
        text = f"node {pod['node']} is not ready"
        found.append(step(BAD, "Node", text, kind="Node", name=str(pod["node"]), cluster=pod["cluster"]))
    else:
        found.append(step(OK, "Node", f"on {pod['node']}", **about))
    ready = bool(pod.get("ready"))
    restarts = sum(each["restarts"] for each in pod["containers"])
    text = str(pod["status"] or pod["phase"]) + (f", {restarts} restarts" if restarts else "")
    bad = not ready and str(pod.get("status")) not in ("Running", "Pending", "ContainerCreating", "Succeeded")
    found.append(step(OK if ready else BAD if bad else WAITING, "Containers", text, **about))
    for each in [each for each in events if each["type"] == "Warning"][-3:]:
        level = OK if ready else BAD
        found.append(step(level, each["reason"], each["message"], **about))
    return found
