"""Status: compares actual with desired state, in pure functions over rows. Nothing derivable is stored.

For each place of an object: the version desired, applied and reported, how old each is, and the reason of the first
difference between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.control.database import tables
from shoal.control.domain.plan import needed_regions, told_instances
from shoal.control.domain.rollouts.views import rollout_brief, rollout_sentence
from shoal.control.domain.silence import LOST, UNREACHABLE, silence_of
from shoal.control.rollout.progress import KEEPING
from shoal.sync.keys import Place

BAD = frozenset({"ApplyFailed", LOST, UNREACHABLE, "Failing", "Unplaced"})
UNSCHEDULABLE = "Unschedulable"  # as the scheduler says it of a pod
NO_CAPACITY = "NoCapacity"  # a region cannot start instances beside the old ones


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """Everything a view needs, as read in one go. Names are by id."""

    now: int
    regions: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[Place, tables.Agent] = field(default_factory=dict)
    topology: Sequence[tables.Topology] = ()
    desired: Sequence[tables.Desired] = ()
    instances: Sequence[tables.Instance] = ()
    # by app and region, the gateways whose acknowledgement is waited for
    behind: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    rollouts: Mapping[str, tables.Rollout] = field(default_factory=dict)  # those under way, by app
    _rows: dict[str, list[tables.Topology]] = field(default_factory=dict, init=False)
    _desired: dict[str, dict[Place, tables.Desired]] = field(default_factory=dict, init=False)
    _instances: dict[tuple[str, Place], list[tables.Instance]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for row in self.topology:
            self._rows.setdefault(row.deployment_id, []).append(row)
        for desired in self.desired:
            place = Place(desired.cluster_id, desired.shard)
            self._desired.setdefault(desired.object_id, {})[place] = desired
        for each in self.instances:
            self._instances.setdefault((each.deployment_id, Place(each.cluster_id, each.shard)), []).append(each)

    def rows_of(self, deployment_id: str) -> list[tables.Topology]:
        return self._rows.get(deployment_id, [])

    def desired_of(self, object_id: str) -> dict[Place, tables.Desired]:
        return self._desired.get(object_id, {})

    def instances_at(self, deployment_id: str, place: Place) -> list[tables.Instance]:
        return self._instances.get((deployment_id, place), [])


@dataclass(frozen=True, slots=True)
class PlaceState:
    """The state of one place, in a word, and why."""

    state: str
    reason: str = ""
    message: str = ""


def app_status(app: tables.App, deployments: Sequence[tables.Deployment], facts: StatusFacts) -> dict[str, Any]:
    """An app: its newest revision in every region, the live one, and a line that says it all."""
    known = {each.id: each for each in deployments}
    newest = known.get(app.deployment_id)
    if newest is None:
        return {"summary": "No revision", "state": "Empty", "revision": app.revision, "regions": [], "conditions": []}
    view = _AppView(app, known, facts)
    regions = view.regions(newest.revision)
    others = [
        {"deployment": each.id, "revision": each.revision, "status": each.status, "regions": found}
        for each in deployments
        if each.id != newest.id and each.desired_state == "running" and (found := view.regions(each.revision))
    ]
    wanted = [row for row in regions if row["desired"]["state"] in ("running", "stopped")]
    ready = [row for row in wanted if row["state"] in ("Ready", "Stopped", "Drifted")]
    state = _app_state(newest, len(ready), len(wanted))
    word = state if state in ("Ready", "Stopped") else f"{state}: ready"
    return {
        "summary": f"{word} {len(ready)}/{len(wanted)} regions",
        "state": state,
        "deployment": newest.id,
        "revision": newest.revision,
        "status": newest.status,
        "reason": newest.reason or _first_reason(regions),
        "live": app.live_deployment_id,
        "image": newest.image,
        "age": age_s(newest.created_at, facts.now),
        "regions": regions,
        "others": others,
        "conditions": _conditions(newest, len(ready), len(wanted), regions, app),
        "rollout": rollout_brief(facts.rollouts[app.id]) if app.id in facts.rollouts else None,
    }


@dataclass(frozen=True, slots=True)
class _AppView:
    """The rows of an app, by the revision that they count as."""

    app: tables.App
    deployments: Mapping[str, tables.Deployment]
    facts: StatusFacts

    def regions(self, revision: int) -> list[dict[str, Any]]:
        """A revision, place by place; what is being removed comes last."""
        shown, going = [], []
        for deployment in self.deployments.values():
            rows = self.facts.rows_of(deployment.id)
            shown += [self._region(deployment, row) for row in rows if _revision(row, deployment) == revision]
            placed = {Place(row.cluster_id, row.shard) for row in rows}
            if deployment.revision == revision:
                going += [
                    _going(row, self.facts)
                    for place, row in sorted(self.facts.desired_of(deployment.id).items())
                    if row.action != "apply" and not row.gone_at and place not in placed
                ]
        return sorted(shown, key=lambda each: (each["region"], each["cluster"], each["shard"])) + going

    def _region(self, deployment: tables.Deployment, row: tables.Topology) -> dict[str, Any]:
        facts = self.facts
        place = Place(row.cluster_id, row.shard)
        desired = facts.desired_of(deployment.id).get(place)
        instances = facts.instances_at(deployment.id, place)
        finding = judge(row, desired, instances, facts.agents.get(place), facts.now)
        if _revision(row, deployment) == self.app.revision:
            finding = self._in_exchange(row, instances, finding)
        observed = (desired.observed if desired else None) or {}
        return {
            "region": facts.regions.get(row.region_id, row.region_id),
            "cluster": facts.clusters.get(row.cluster_id, row.cluster_id),
            "shard": row.shard,
            "state": finding.state,
            "reason": finding.reason,
            "message": finding.message,
            "weight": row.weight or 0,
            "desired": {
                "version": desired.number if desired else 0,
                "state": row.desired_status,
                "replicas": row.replicas,
                "autoscaling": row.autoscaling,
                "age": age_s(desired.committed_at, facts.now) if desired else None,
            },
            "applied": {
                "version": desired.applied_number if desired else 0,
                "age": age_s(desired.applied_at, facts.now) if desired else None,
            },
            "reported": {
                "ready": sum(_is_ready(each) for each in instances),
                "needed": _needed(row),
                "instances": len(instances),
                "desired": observed.get("desired"),
                "available": observed.get("available"),
                "drift": observed.get("drift") or [],
                "age": age_s(desired.observed_at, facts.now) if desired else None,
            },
            "moving": bool(row.moved_from) or row.desired_status == "leaving",
            "placement": row.reason,
        }

    @property
    def _is_promoted(self) -> bool:
        """Whether nothing is left to do but to remove what is kept for a way back."""
        rollout = self.facts.rollouts.get(self.app.id)
        return rollout is not None and rollout.phase == KEEPING

    def _in_exchange(
        self, row: tables.Topology, instances: Sequence[tables.Instance], finding: PlaceState
    ) -> PlaceState:
        """The newest revision in a region in which an older one is left: who gets the requests, and what is missing."""
        older = [
            (_revision(each, deployment), each)
            for deployment in self.deployments.values()
            for each in self.facts.rows_of(deployment.id)
            if each.region_id == row.region_id and _revision(each, deployment) != self.app.revision
        ]
        if not older or not told_instances(None, row.replicas, row.autoscaling):
            return finding
        keeps = next((f"revision {revision} keeps serving" for revision, each in older if each.weight == 100), "")
        if finding.state in BAD or finding.state == "Stopped":
            full = any(each.reason == UNSCHEDULABLE for each in instances if not _is_ready(each))
            why = finding.message or ("it never became ready and was stopped" if finding.state == "Stopped" else "")
            text = "; ".join(part for part in (why, keeps) if part)
            state = "Failing" if finding.state == "Stopped" else finding.state
            return PlaceState(state, NO_CAPACITY if full else finding.reason or "Halted", text)
        behind = self.facts.behind.get((self.app.id, row.region_id), ())
        if behind:
            text = f"waits for gateways to take their new routes: {', '.join(behind)}"
            return PlaceState("Progressing", "GatewayBehind", f"{text} (`shoal sentinels forget` ends the wait)")
        shares = ", ".join(f"revision {revision} has {each.weight} % of requests" for revision, each in older)
        if finding.state in ("Ready", "Drifted"):
            if self._is_promoted and not any(each.weight or each.routed for _, each in older):
                kept = ", ".join(f"revision {revision}" for revision, _ in older)
                note = f"{kept} is kept without requests: `shoal rollout undo` goes back at once"
                return PlaceState(finding.state, finding.reason, "; ".join(p for p in (finding.message, note) if p))
            return PlaceState("Progressing", "Exchanging", shares)
        return PlaceState(finding.state, finding.reason, "; ".join(p for p in (finding.message, keeps or shares) if p))


def _revision(row: tables.Topology, deployment: tables.Deployment) -> int:
    return row.revision or deployment.revision


def _needed(row: tables.Topology) -> int:
    if row.desired_status == "stopped":
        return 0
    return max(told_instances(row.instances, row.replicas, row.autoscaling), row.target or 0)


def _going(row: tables.Desired, facts: StatusFacts) -> dict[str, Any]:
    agent = facts.agents.get(Place(row.cluster_id, row.shard))
    held = brake_of(agent, row.stream)
    silence = silence_of(agent, facts.now)
    return {
        "region": "",
        "cluster": facts.clusters.get(row.cluster_id, row.cluster_id),
        "shard": row.shard,
        "state": "Removing",
        "reason": "BrakeHeld" if held else silence.reason if silence is not None else "",
        "message": held or f"{row.action} for {age_s(row.committed_at, facts.now)} s",
        "desired": {"version": row.number, "state": row.action, "age": age_s(row.committed_at, facts.now)},
        "applied": {"version": row.applied_number, "age": age_s(row.applied_at, facts.now)},
        "reported": {"age": age_s(row.observed_at, facts.now)},
        "moving": False,
        "placement": {},
    }


def judge(
    row: tables.Topology,
    desired: tables.Desired | None,
    instances: Sequence[tables.Instance],
    agent: tables.Agent | None,
    now: int,
) -> PlaceState:
    """The first reason why a place is not in its desired state."""
    if not row.cluster_id:
        refused = "; ".join(f"{name}: {why}" for name, why in (row.reason.get("refused") or {}).items())
        because = str(row.reason.get("because") or "no cluster accepts it")
        return PlaceState("Unplaced", "NoPlace", f"{because} ({refused})" if refused else because)
    if (silence := silence_of(agent, now)) is not None:
        return PlaceState(silence.reason, silence.reason, silence.message)
    if desired is None:
        return PlaceState("Progressing", "NotSent", "nothing is deployed here yet")
    if desired.error:
        error = desired.error
        tries = f", {error['attempts']} attempts" if error.get("attempts") else ""
        return PlaceState("ApplyFailed", str(error.get("reason") or "Error"), f"{error.get('message', '')}{tries}")
    if desired.applied_number < desired.number:
        return PlaceState("Progressing", *_not_applied(desired, agent, now))
    if row.desired_status == "stopped":
        running = sum(each.status == "running" for each in instances)
        return PlaceState("Progressing", "Stopping", f"{running} instances run") if running else PlaceState("Stopped")
    return _judge_instances(row, desired, instances)


def _not_applied(desired: tables.Desired, agent: tables.Agent | None, now: int) -> tuple[str, str]:
    if agent is None:
        return "NoAgent", "no agent has joined for this cluster and shard"
    held = brake_of(agent, desired.stream)
    if held:
        return "BrakeHeld", held
    return "NotApplied", f"version {desired.number} has waited for its agent for {age_s(desired.committed_at, now)} s"


def _judge_instances(row: tables.Topology, desired: tables.Desired, instances: Sequence[tables.Instance]) -> PlaceState:
    needed = _needed(row)
    ready = sum(_is_ready(each) for each in instances)
    moving = row.desired_status == "leaving" or bool(row.moved_from)
    if ready >= needed:
        drift = (desired.observed or {}).get("drift") or []
        if drift:
            return PlaceState("Drifted", "Drift", f"changed in the cluster: {', '.join(drift)}")
        return PlaceState("Ready", "Moving" if moving else "")
    worst = worst_instance(instances)
    fault = (desired.observed or {}).get("fault") or {}
    if fault and (len(instances) < needed or worst is None or _is_starting(worst)):
        return PlaceState("Failing", fault["reason"], f"{fault['reason']}: {fault['message']}")
    if worst is not None and not _is_starting(worst):
        return PlaceState("Failing", worst.reason or "Failed", instance_text(worst))
    return PlaceState("Progressing", "NotReady", f"{ready} of {needed} instances are ready")


def worst_instance(instances: Sequence[tables.Instance]) -> tables.Instance | None:
    """The instance that best explains why the place is not ready."""
    bad = [
        each for each in instances if not _is_ready(each) and (each.reason or each.exit_code or each.status == "failed")
    ]
    return max(bad, key=lambda each: (each.status == "failed", each.restarts, each.name), default=None)


def _is_starting(instance: tables.Instance) -> bool:
    """Its program runs, and so far nothing says that it will not become ready."""
    return instance.status != "failed" and instance.reason == "NotReady" and not instance.restarts


def instance_text(instance: tables.Instance) -> str:
    parts = [f"{instance.name}: {instance.reason or instance.status}"]
    if instance.exit_code:
        parts.append(f"exit code {instance.exit_code}")
    if instance.restarts:
        parts.append(f"{instance.restarts} restarts")
    text = ", ".join(parts)
    return f"{text}: {instance.message}" if instance.message else text


def brake_of(agent: tables.Agent | None, stream: str) -> str:
    """Why an agent holds deletions of a stream back; empty when it does not."""
    controller = ((agent.state if agent else None) or {}).get(stream) or {}
    brake = controller.get("brake") or {}
    if not brake.get("held"):
        return ""
    return str(brake.get("reason") or f"{brake.get('count', 0)} deletions wait for confirmation")


def agent_status(agent: tables.Agent, cluster: str, region: str, now: int) -> dict[str, Any]:
    """An agent's last heartbeat, and its age."""
    state = agent.state or {}
    controllers = {
        name: {
            key: found.get(key)
            for key in ("cursor", "connection", "breaker", "objects", "buffered", "retrying", "lag_seconds", "brake")
        }
        for name in ("deployments", "sentinels")
        if (found := state.get(name))
    }
    silence = silence_of(agent, now)
    lag = max((float(each.get("lag_seconds") or 0.0) for each in controllers.values()), default=0.0)
    return {
        "cluster": cluster,
        "region": region,
        "shard": agent.shard,
        "agent": agent.agent,
        "epoch": agent.epoch,
        "software": agent.software,
        "state": {LOST: "Lost"}.get(silence.reason, silence.reason) if silence is not None else "Joined",
        "reason": silence.message if silence is not None else "",
        "lastHeartbeat": age_s(agent.last_heartbeat_at, now),
        "lag": lag,
        "controllers": controllers,
        "held": [name for name in ("deployments", "sentinels") if brake_of(agent, name)],
        "image": state.get("image"),  # None: it is no Deployment that can be upgraded
    }


def place_status(row: tables.Desired, facts: StatusFacts) -> dict[str, Any]:
    """Any object at one place: a gateway, a route, a policy."""
    agent = facts.agents.get(Place(row.cluster_id, row.shard))
    state, reason, message = "Applied", "", ""
    if row.action != "apply":
        if row.gone_at:
            state = "Removed"
        else:
            going = _going(row, facts)
            state, reason, message = "Removing", going["reason"], going["message"]
    elif (silence := silence_of(agent, facts.now)) is not None:
        state, reason, message = silence.reason, silence.reason, silence.message
    elif row.error:
        state, reason, message = "ApplyFailed", str(row.error.get("reason") or ""), str(row.error.get("message") or "")
    elif row.applied_number < row.number:
        state, (reason, message) = "Progressing", _not_applied(row, agent, facts.now)
    elif refused := (row.observed or {}).get("refused"):
        state, reason, message = (
            "Refused",
            "Refused",
            "; ".join(f"{one['gateway']}: {one['message']}" for one in refused),
        )
    return {
        "cluster": facts.clusters.get(row.cluster_id, row.cluster_id),
        "shard": row.shard,
        "state": state,
        "reason": reason,
        "message": message,
        "desired": {"version": row.number, "state": row.action, "age": age_s(row.committed_at, facts.now)},
        "applied": {"version": row.applied_number, "age": age_s(row.applied_at, facts.now)},
        "reported": {**_reported(row.observed), "age": age_s(row.observed_at, facts.now)},
    }


def _reported(observed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Without what is written down for the next report only."""
    return {name: value for name, value in (observed or {}).items() if name != "told"}


def refused_pieces(row: tables.Desired, name: str, cluster: str) -> list[dict[str, Any]]:
    """What gateways did not take of a route or policy, each with the reason."""
    return [
        {
            "kind": row.kind,
            "name": name,
            "cluster": cluster,
            "gateway": one["gateway"],
            "message": one["message"],
        }
        for one in (row.observed or {}).get("refused") or ()
    ]


def explain(app: tables.App, status: Mapping[str, Any], rollout: tables.Rollout | None) -> list[str]:
    """Why things are where they are, why they are not ready, and what the newest rollout waits for or why it went back,
    in sentences."""
    lines: list[str] = [f"{app.name}: {status['summary']}"]
    if rollout is not None and (text := rollout_sentence(rollout)):
        lines.append(text)
    for row in status["regions"]:
        where = f"{row['region'] or 'leaving'} → {row['cluster'] or '(no cluster)'}/{row['shard'] or '-'}"
        placement = row.get("placement") or {}
        if placement.get("because"):
            refused = "; ".join(f"{name}: {why}" for name, why in (placement.get("refused") or {}).items())
            lines.append(
                f"{where}: placed because {placement['because']}" + (f" (refused {refused})" if refused else "")
            )
        why = row["message"] or row["reason"]
        lines.append(f"{where}: {row['state']}" + (f", {why}" if why else ""))
    for other in status.get("others") or ():
        rows = [row for row in other["regions"] if row["region"]]
        where = ", ".join(f"{row['region']} ({row['weight']} % of requests)" for row in rows)
        lines.append(f"revision {other['revision']} still runs ({other['status']})" + (f": {where}" if where else ""))
    if status["state"] == "Broken":
        back = f"shoal rollback app {app.name}"
        lines.append(f"revision {status['revision']} was ready and fails now: {status['reason']}; to go back: {back}")
    return lines


def age_s(at: int, now: int) -> float | None:
    """Seconds since a moment; None for one that has not been."""
    return round(max(0, now - at) / 1000, 3) if at else None


def _is_ready(instance: tables.Instance) -> bool:
    return instance.ready and instance.status == "running" and not instance.outdated


def _app_state(deployment: tables.Deployment, ready: int, wanted: int) -> str:
    if deployment.status == "stopped":
        return "Stopped"
    if wanted and ready == wanted and deployment.status == "ready" and not deployment.broken_at:
        return "Ready"
    if deployment.status == "failed":
        return "Failed"
    if deployment.broken_at:
        return "Broken"
    return "Degraded" if deployment.status == "ready" else "Progressing"


def _first_reason(regions: Sequence[Mapping[str, Any]]) -> str:
    for wanted in (BAD, {"Progressing"}):
        for row in regions:
            if row["state"] in wanted:
                return f"{row['region']}: {row['message'] or row['reason']}"
    return ""


def _conditions(
    deployment: tables.Deployment, ready: int, wanted: int, regions: Sequence[Mapping[str, Any]], app: tables.App
) -> list[dict[str, Any]]:
    rule = (app.spec.get("readiness") or {}).get("regions", "allButOne")
    enough = wanted > 0 and ready >= needed_regions(rule, wanted)
    placed = all(row["state"] != "Unplaced" for row in regions)
    failing = next((row for row in regions if row["state"] in BAD), None)
    return [
        {"type": "Placed", "status": placed, "message": "" if placed else _first_reason(regions)},
        {"type": "Ready", "status": deployment.status == "ready" and enough, "message": f"{ready}/{wanted} regions"},
        {
            "type": "Degraded",
            "status": failing is not None,
            "message": f"{failing['region']}: {failing['message'] or failing['reason']}" if failing else "",
        },
    ]
