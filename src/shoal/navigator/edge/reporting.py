"""Selects and encodes the reported objects and fields.

Rows leave out fields that are not queried or that change all the time (versions, heartbeats, managed fields), so that
an idle cluster sends nothing. They also leave out the values of variables with names of secrets. An object gives the
same bytes in every process, since keys are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import translate
from re import compile as pattern_of

import orjson

from shoal.base.logs import REDACTED, is_secret_name
from shoal.kube.objects import Obj
from shoal.navigator.edge.config import NamespaceConfig
from shoal.navigator.model import ReportedKind
from shoal.reconcile.keys import ObjectKey

_METADATA = frozenset({"managedFields", "resourceVersion", "selfLink"})
_ANNOTATIONS = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"}
)


def row_of(kind: ReportedKind, version: str, obj: Obj) -> bytes:
    """The data of an object's row. The object is not modified, since caches share it."""
    kept = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    kept["apiVersion"] = f"{kind.group}/{version}" if kind.group else version
    kept["kind"] = kind.kind
    kept["metadata"] = _metadata(obj["metadata"])
    trim = _TRIMS.get(kind.name)
    if trim is not None:
        trim(kept)
    # orjson's bytes keep their buffer of twice the size: rows are kept for long, so they are copied
    return bytes(memoryview(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)))


class Namespaces:
    """Which namespaces are reported."""

    def __init__(self, config: NamespaceConfig) -> None:
        self._include = [pattern_of(translate(text)) for text in config.include]
        self._exclude = [pattern_of(translate(text)) for text in config.exclude]
        self._known: dict[str, bool] = {}
        self._config = config

    def wants(self, namespace: str) -> bool:
        """True for the empty name, which objects without a namespace have."""
        if not namespace or not (self._include or self._exclude):
            return True
        found = self._known.get(namespace)
        if found is None:
            included = not self._include or any(one.match(namespace) for one in self._include)
            found = included and not any(one.match(namespace) for one in self._exclude)
            self._known[namespace] = found
        return found

    def wants_object(self, kind: ReportedKind, metadata: Obj) -> bool:
        if kind.name == "namespaces":
            return self.wants(metadata["name"])
        return self.wants(metadata.get("namespace") or "")

    def wants_key(self, kind: ReportedKind, key: ObjectKey) -> bool:
        return self.wants(key.name if kind.name == "namespaces" else key.namespace)

    def selector(self, kind: ReportedKind) -> str:
        """A field selector that lets the server filter; empty when the patterns cannot be expressed as one."""
        if not kind.namespaced and kind.name != "namespaces":
            return ""
        field = "metadata.name" if kind.name == "namespaces" else "metadata.namespace"
        include, exclude = self._config.include, self._config.exclude
        parts = [f"{field}!={name}" for name in exclude if not is_pattern(name)]
        if len(include) == 1 and not is_pattern(include[0]):
            parts.append(f"{field}={include[0]}")
        return ",".join(parts)


def is_pattern(name: str) -> bool:
    return bool(set(name) & set("*?[]"))


def _metadata(metadata: Obj) -> Obj:
    kept = {name: value for name, value in metadata.items() if name not in _METADATA}
    annotations = kept.get("annotations")
    if annotations is not None and not _ANNOTATIONS.isdisjoint(annotations):
        left = {name: value for name, value in annotations.items() if name not in _ANNOTATIONS}
        if left:
            kept["annotations"] = left
        else:
            del kept["annotations"]
    return kept


def _trim_pod(pod: Obj) -> None:
    if spec := pod.get("spec"):
        pod["spec"] = _without_secrets(spec)
    status = pod.get("status")
    if status and status.get("conditions"):
        pod["status"] = status | {"conditions": [_without(one, "lastProbeTime") for one in status["conditions"]]}


def _trim_deployment(deployment: Obj) -> None:
    spec = deployment.get("spec") or {}
    template = spec.get("template") or {}
    if template.get("spec"):
        deployment["spec"] = spec | {"template": template | {"spec": _without_secrets(template["spec"])}}


def _trim_node(node: Obj) -> None:
    status = node.get("status")
    if not status:
        return
    kept = {name: value for name, value in status.items() if name not in ("images", "volumesInUse", "volumesAttached")}
    if status.get("conditions"):
        kept["conditions"] = [_without(one, "lastHeartbeatTime") for one in status["conditions"]]
    node["status"] = kept


def _trim_autoscaler(autoscaler: Obj) -> None:
    """Without measurements, which change all the time; conditions repeat them in their messages."""
    if status := autoscaler.get("status"):
        kept = ("currentReplicas", "desiredReplicas", "lastScaleTime", "observedGeneration")
        autoscaler["status"] = {name: status[name] for name in kept if name in status}


def _trim_shard(instance: Obj) -> None:
    """Without heartbeats, and what changes with them; the load in tenths."""
    if status := instance.get("status"):
        changing = ("lastHeartbeat", "queueDepth", "healthStatus")
        instance["status"] = _in_tenths({name: value for name, value in status.items() if name not in changing})


def _trim_shard_config(config: Obj) -> None:
    """As of its shards: loads in tenths, also in what is said about the last decision."""
    if spec := config.get("spec"):
        config["spec"] = _without(spec, "template")
    if status := config.get("status"):
        kept = _in_tenths({name: value for name, value in status.items() if name != "queueDepth"})
        if isinstance(kept.get("decision"), str):
            kept["decision"] = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}", kept["decision"])
        config["status"] = kept


_NUMBER = pattern_of(r"[0-9]+\.[0-9]+")


def _in_tenths(status: Obj) -> Obj:
    loads = {name: round(value, 1) for name in _LOADS if isinstance(value := status.get(name), int | float)}
    return status | loads


_LOADS = ("load", "averageLoad", "totalLoad")


_OF_EVENTS = (
    "action", "apiVersion", "count", "eventTime", "firstTimestamp", "involvedObject", "kind", "lastTimestamp",
    "message", "metadata", "reason", "reportingComponent", "series", "source", "type",
)  # fmt: skip


def _trim_event(event: Obj) -> None:
    """Without fields that no query reads: there are many of them."""
    for name in [name for name in event if name not in _OF_EVENTS]:
        del event[name]


def _without(item: Obj, name: str) -> Obj:
    return {key: value for key, value in item.items() if key != name} if name in item else item


def _without_secrets(spec: Obj) -> Obj:
    changed: Obj = {}
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        if containers and any(_has_secret(one) for one in containers):
            changed[part] = [_redacted(one) for one in containers]
    return spec | changed if changed else spec


def _has_secret(container: Obj) -> bool:
    return any("value" in one and is_secret_name(one["name"]) for one in container.get("env") or ())


def _redacted(container: Obj) -> Obj:
    if not _has_secret(container):
        return container
    env = [one | {"value": REDACTED} if "value" in one and is_secret_name(one["name"]) else one
           for one in container["env"]]  # fmt: skip
    return container | {"env": env}


_TRIMS: dict[str, Callable[[Obj], None]] = {
    "pods": _trim_pod,
    "deployments": _trim_deployment,
    "nodes": _trim_node,
    "horizontalpodautoscalers": _trim_autoscaler,
    "shardconfigs": _trim_shard_config,
    "shardinstances": _trim_shard,
    "events": _trim_event,
}
