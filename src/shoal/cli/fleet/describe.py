"""``shoal describe``: one object with its status and recent events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.events import EVENT_COLUMNS, event_rows
from shoal.cli.fleet.history import revision_rows
from shoal.cli.fleet.kinds import ObjectName
from shoal.cli.fleet.rollout_text import under_way_text
from shoal.cli.fleet.session import Environment, FleetSession, KindWord, MaybeName, Project, opened
from shoal.cli.fleet.views import (
    AGENT_COLUMNS,
    APP_COLUMNS,
    GATEWAY_COLUMNS,
    INSTANCE_COLUMNS,
    REFUSED_COLUMNS,
    REVISION_COLUMNS,
    agent_rows,
    app_rows,
    gateway_rows,
    instance_rows,
    reason_of,
    refused_of_gateways,
)
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, brief, document, duration, facts, indented, put, render
from shoal.cli.timestamps import age_of

app = new_app("Show one object in full.")

EVENTS = 10
REVISIONS = 5
_PLACE_COLUMNS = ("cluster", "state", "desired", "applied", "reported", "reason")

Shown = Mapping[str, Any]


@app.command()
def describe(
    kind: KindWord,
    name: MaybeName = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show an object with its state in every cluster and its recent events."""
    with opened(context, project, environment) as session:
        known = gather(session, session.find(kind, name))
    put(known, output, lambda: text_of(known, RealClock().now()))


def gather(session: FleetSession, ref: ObjectName) -> dict[str, Any]:
    """The object, its status and its events, as the control plane returns them."""
    known: dict[str, Any] = {"object": session.get(ref), "status": session.get(ref, "status")}
    if ref.kind.name == "App":
        known["revisions"] = session.get(ref, "deployments", limit=REVISIONS)["items"]
        known["instances"] = session.get(ref, "instances")["items"]
    known["events"] = session.get(ref, "events", limit=EVENTS)["items"]
    return known


def text_of(known: Shown, now: datetime) -> str:
    found, status = known["object"], known["status"]
    metadata = found["metadata"]
    head: list[tuple[str, Any]] = [
        ("Name", metadata["name"]),
        ("Kind", found["kind"]),
        ("Project", metadata.get("project")),
        ("Environment", metadata.get("environment")),
        ("Namespace", metadata.get("namespace")),
        ("Labels", _pairs(metadata.get("labels"))),
        ("Annotations", _pairs(metadata.get("annotations"))),
        ("Version", f"{metadata.get('version')}, generation {metadata.get('generation')}"),
        ("Created", f"{metadata.get('createdAt')} ({age_of(metadata.get('createdAt'), now)} ago)"),
        ("Changed", f"{metadata.get('updatedAt')} ({age_of(metadata.get('updatedAt'), now)} ago)"),
    ]
    sections = [facts(head), *(_app(known, now) if found["kind"] == "App" else _other(found, status))]
    events = known["events"]
    sections.append(_section("Events", render(event_rows(events), EVENT_COLUMNS) if events else "none\n"))
    return "\n".join(section for section in sections if section)


def _app(known: Shown, now: datetime) -> list[str]:
    status = known["status"]
    about = [
        ("Status", status["summary"]),
        ("Reason", status.get("reason")),
        ("Revision", f"{status['revision']} ({status.get('status', '')}{', live' if _is_live(status) else ''})"),
        ("Rollout", under_way_text(status.get("rollout"))),
    ]
    places = render([{**row, "app": None} for row in app_rows([{**status, "name": ""}])], APP_COLUMNS[1:])
    placement = [_placement(row) for row in status["regions"] if row.get("placement")]
    return [
        facts(about),
        _section("Spec", _spec(known["object"]["spec"])),
        _section("Regions", places) if status["regions"] else "",
        _section("Placement", "\n".join(placement)) if placement else "",
        _section("Instances", render(instance_rows(known["instances"]), INSTANCE_COLUMNS))
        if known["instances"]
        else "Instances: none\n",
        _section("Revisions", render(revision_rows(known["revisions"], now), REVISION_COLUMNS)),
    ]


def _is_live(status: Shown) -> bool:
    return bool(status.get("live")) and status.get("live") == status.get("deployment")


def _spec(spec: Shown) -> str:
    """The spec of an app, one line per field."""
    rows: list[tuple[str, Any]] = [(name, _value(value)) for name, value in spec.items() if name != "topology"]
    rows += [(f"region {row['region']}", _region(row)) for row in spec.get("topology") or ()]
    return facts(rows)


def _region(row: Shown) -> str:
    parts = [f"{name} {_value(value)}" for name, value in row.items() if name != "region" and value is not None]
    return ", ".join(parts) or "1 replica"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _pairs(value)
    if isinstance(value, list):
        return ", ".join(brief(each) for each in value)
    return brief(value, 100)


def _pairs(value: Any) -> str:
    return ", ".join(f"{name}={brief(each)}" for name, each in (value or {}).items())


def _placement(row: Shown) -> str:
    placement = row["placement"]
    where = f"{row['region']} → {row['cluster'] or '(no cluster)'}"
    refused = "; ".join(f"{name}: {why}" for name, why in (placement.get("refused") or {}).items())
    text = f"{where}: {placement.get('because') or reason_of(row) or 'unknown'}"
    return f"{text} (refused: {refused})" if refused else text


def _other(found: Shown, status: Shown) -> list[str]:
    sections = [facts([("Status", status.get("summary"))])]
    if found.get("spec"):
        sections.append(_section("Spec", document(found["spec"], Format.YAML)))
    if status.get("apps"):
        rows = [{"name": each["name"], "status": each["summary"], "image": each["image"]} for each in status["apps"]]
        sections.append(_section("Apps", render(rows, ("name", "status", "image"))))
    if status.get("agents"):
        sections.append(_section("Agents", render(agent_rows(status["agents"]), AGENT_COLUMNS)))
    if status.get("places"):
        sections.append(_section("Places", render(_place_rows(status["places"]), _PLACE_COLUMNS)))
        if rows := gateway_rows(status["places"]):
            sections.append(_section("Gateways", render(rows, GATEWAY_COLUMNS)))
        if rows := refused_of_gateways(status["places"]):
            sections.append(_section("Refused", render(rows, REFUSED_COLUMNS)))
    return sections


def _place_rows(places: Sequence[Shown]) -> list[dict[str, Any]]:
    return [
        {
            "cluster": f"{each['cluster']}/{each['shard']}",
            "state": each["state"],
            "desired": f"v{each['desired']['version']}",
            "applied": f"v{each['applied']['version']}" if each["applied"]["version"] else "",
            "reported": duration(each["reported"].get("age")),
            "reason": reason_of(each),
        }
        for each in places
    ]


def _section(title: str, text: str) -> str:
    return f"{title}:\n{indented(text)}"
