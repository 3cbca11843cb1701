"""Tables of nodes, namespaces, events, settings, quotas, leases, classes and priorities."""

from __future__ import annotations

from typing import Any, Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, NAME, Cells, Printer, column
from shoal.kube.tables.text import NONE, UNKNOWN, age, condition, metadata, name, since, spec, status

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _node(obj: Obj, now: float) -> Cells:
    info = status(obj).get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name(obj),
        _node_status(obj),
        _node_roles(metadata(obj).get("labels") or {}),
        age(obj, now),
        info.get("kubeletVersion") or "",
        _node_address(obj, "InternalIP"),
        _node_address(obj, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(obj: Obj) -> str:
    ready = None
    for found in status(obj).get("conditions") or ():
        if found.get("type") == "Ready":
            ready = found
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if spec(obj).get("unschedulable") else text


def _node_roles(labels: dict[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role") or "")
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(obj: Obj, kind: str) -> str:
    for found in status(obj).get("addresses") or ():
        if found.get("type") == kind:
            return found.get("address") or ""
    return NONE


def _namespace(obj: Obj, now: float) -> Cells:
    return [name(obj), status(obj).get("phase") or "", age(obj, now)]


def _event(obj: Obj, now: float) -> Cells:
    """Cells of an Event of either version; events.k8s.io/v1 has other names for the same fields."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first = since(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    last_time = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = since(last_time, now) if last_time else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    series = obj.get("series")
    if series is not None:
        last = since(series.get("lastObservedTime"), now)
        count = series.get("count") or 0
    kind = (about.get("kind") or "").lower()
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath") or "",
        _event_source(obj, source),
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
        name(obj),
    ]


def _event_source(obj: Obj, source: Obj) -> str:
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _config_map(obj: Obj, now: float) -> Cells:
    return [name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age(obj, now)]


def _secret(obj: Obj, now: float) -> Cells:
    return [name(obj), obj.get("type") or "", len(obj.get("data") or ()), age(obj, now)]


def _name_and_age(obj: Obj, now: float) -> Cells:
    return [name(obj), age(obj, now)]


def _component_status(obj: Obj, now: float) -> Cells:
    healthy = condition(obj, "Healthy")
    if healthy is None:
        return [name(obj), "Unknown", "", ""]
    text = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name(obj), text, healthy.get("message") or "", healthy.get("error") or ""]


def _resource_quota(obj: Obj, now: float) -> Cells:
    current = status(obj)
    hard, used = current.get("hard") or {}, current.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        target = limits if resource.startswith("limits.") else requests
        target.append(f"{resource}: {used.get(resource, 0)}/{hard[resource]}")
    return [name(obj), ", ".join(requests), ", ".join(limits), age(obj, now)]


def _lease(obj: Obj, now: float) -> Cells:
    return [name(obj), spec(obj).get("holderIdentity") or "", age(obj, now)]


def _priority_class(obj: Obj, now: float) -> Cells:
    return [
        name(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        age(obj, now),
        obj.get("preemptionPolicy") or "",
    ]


def _runtime_class(obj: Obj, now: float) -> Cells:
    return [name(obj), obj.get("handler") or "", age(obj, now)]


def _flow_schema(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    dangling = condition(status(obj), "Dangling")
    return [
        name(obj),
        (wanted.get("priorityLevelConfiguration") or {}).get("name") or "",
        wanted.get("matchingPrecedence") or 0,
        (wanted.get("distinguisherMethod") or {}).get("type") or NONE,
        age(obj, now),
        "?" if dangling is None else dangling.get("status") or "",
    ]


def _priority_level(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    limited = wanted.get("limited")
    queuing = ((limited or {}).get("limitResponse") or {}).get("queuing")
    queues: list[Any] = [NONE] * 3
    if queuing is not None:
        queues = [queuing.get(field) or 0 for field in ("queues", "handSize", "queueLengthLimit")]
    shares: Any = NONE if limited is None else limited.get("nominalConcurrencyShares") or 0
    return [name(obj), wanted.get("type") or "", shares, *queues, age(obj, now)]


PRINTERS: Final = {
    ("", "Node"): Printer(
        [
            NAME,
            column("Status", "Whether the node is ready and accepts new pods."),
            column("Roles", "Roles of the node, from its labels."),
            AGE,
            column("Version", "Version of the node's agent."),
            column("Internal-IP", "Address inside the cluster.", wide=True),
            column("External-IP", "Address outside the cluster.", wide=True),
            column("OS-Image", "Operating system.", wide=True),
            column("Kernel-Version", "Kernel and processor architecture.", wide=True),
            column("Container-Runtime", "Container runtime.", wide=True),
        ],
        _node,
    ),
    ("", "Namespace"): Printer(
        [NAME, column("Status", "Active, or Terminating while it is emptied."), AGE], _namespace
    ),
    ("", "ConfigMap"): Printer([NAME, column("Data", "Number of entries."), AGE], _config_map),
    ("", "Secret"): Printer(
        [NAME, column("Type", "What the secret is for."), column("Data", "Number of entries."), AGE], _secret
    ),
    ("", "ServiceAccount"): Printer([NAME, AGE], _name_and_age),
    ("", "ComponentStatus"): Printer(
        [
            NAME,
            column("Status", "Whether the component is healthy."),
            column("Message", "Message of the component."),
            column("Error", "What is wrong with it."),
        ],
        _component_status,
    ),
    ("", "ResourceQuota"): Printer(
        [
            NAME,
            column("Request", "Requests and object counts: used and allowed."),
            column("Limit", "Limits: used and allowed."),
            AGE,
        ],
        _resource_quota,
    ),
    ("coordination.k8s.io", "Lease"): Printer([NAME, column("Holder", "Holder of the lease."), AGE], _lease),
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        [
            NAME,
            column("Value", "Priority of pods of the class.", "integer"),
            column("Global-Default", "Whether pods without a class get this one.", "boolean"),
            AGE,
            column("PreemptionPolicy", "Whether its pods may preempt others."),
        ],
        _priority_class,
    ),
    ("node.k8s.io", "RuntimeClass"): Printer(
        [NAME, column("Handler", "Runtime that nodes use for it."), AGE], _runtime_class
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): Printer(
        [
            NAME,
            column("PriorityLevel", "Level that its requests go to."),
            column("MatchingPrecedence", "Order in which schemas are tried, lowest first."),
            column("DistinguisherMethod", "How its requests are divided into flows."),
            AGE,
            column("MissingPL", "Whether its priority level is missing."),
        ],
        _flow_schema,
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): Printer(
        [
            NAME,
            column("Type", "Exempt from limits, or limited."),
            column("NominalConcurrencyShares", "Its share of the requests served at a time."),
            column("Queues", "Number of queues."),
            column("HandSize", "Queues that one flow may use."),
            column("QueueLengthLimit", "Requests that one queue holds."),
            AGE,
        ],
        _priority_level,
    ),
}

_EVENT: Final = Printer(
    [
        column("Last Seen", "Time since it last happened."),
        column("Type", "Normal or Warning."),
        column("Reason", "Why, in one word."),
        column("Object", "Object of the event."),
        column("Subobject", "Part of the object.", wide=True),
        column("Source", "Component that reported it.", wide=True),
        column("Message", "What happened."),
        column("First Seen", "Time since it first happened.", wide=True),
        column("Count", "How often it happened.", wide=True),
        column("Name", "Name of the event.", wide=True, form="name"),
    ],
    _event,
)
PRINTERS["", "Event"] = PRINTERS["events.k8s.io", "Event"] = _EVENT
