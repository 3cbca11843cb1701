"""The schemas of ``shard.io/v1``: bounds, defaults, and rules whose messages contain the fix."""

from __future__ import annotations

from shoal.crds import shard_fields
from shoal.kube.objects import Obj

NAME_LIMIT = 40  # leaves room for the suffix of a shard and for the label that carries the name
SLOTS_LIMIT = 1024
STATE_LIMIT_BYTES = 256 * 1024
NAMES_SHOWN = 100

_TEXT: Obj = {"type": "string"}
_NAME: Obj = {"type": "string", "maxLength": 253}
_COUNT: Obj = {"type": "integer", "minimum": 0}
_EPOCH: Obj = {"type": "integer", "format": "int64", "minimum": 0}
_TIME: Obj = {"type": "string", "format": "date-time"}
_FREE: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_RATIO: Obj = {"type": "number", "minimum": 0, "maximum": 1}


def _duration(default: str = "") -> Obj:
    made: Obj = {"type": "string", "maxLength": 20, "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"}
    return {**made, "default": default} if default else made


def _object(properties: Obj, *, required: tuple[str, ...] = (), rules: tuple[tuple[str, str], ...] = ()) -> Obj:
    made: Obj = {"type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    if rules:
        made["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return made


def _list(items: Obj, *, limit: int, keys: tuple[str, ...] = ()) -> Obj:
    made: Obj = {"type": "array", "items": items, "maxItems": limit}
    if keys:
        return {**made, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return {**made, "x-kubernetes-list-type": "atomic"}


def _column(name: str, path: str, kind: str = "string", *, priority: int = 0) -> Obj:
    made: Obj = {"name": name, "jsonPath": path, "type": kind}
    return {**made, "priority": priority} if priority else made


_KIND: Obj = {"type": "string", "minLength": 1, "maxLength": 63}
_GROUP: Obj = {"type": "string", "maxLength": 253}
_QUANTITIES: Obj = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}
_SELECTOR = _object(
    {
        "matchLabels": {"type": "object", "additionalProperties": _TEXT},
        "matchExpressions": _list(
            _object(
                {
                    "key": _TEXT,
                    "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": _list(_TEXT, limit=64),
                },
                required=("key", "operator"),
            ),
            limit=32,
        ),
    }
)
_TARGET = _object(
    {
        "group": _GROUP,
        "kind": _KIND,
        "selector": _SELECTOR,
        "namespaceSelector": _SELECTOR,
        "controlled": _list(_object({"group": _GROUP, "kind": _KIND}, required=("kind",)), limit=16),
    },
    required=("kind",),
)

_WEBHOOK = _object(
    {
        "url": {"type": "string", "maxLength": 2048, "pattern": r"^https?://[^/?#@\s]+([/?][^#\s]*)?$"},
        "timeout": _duration("10s"),
        "maxBytes": {"type": "integer", "minimum": 1, "maximum": 16 * 1024 * 1024, "default": 1024 * 1024},
        "caBundle": {"type": "string", "format": "byte", "maxLength": 1024 * 1024},
    },
    required=("url",),
    rules=(
        ("duration(self.timeout) > duration('0s')", "timeout must be more than 0"),
        (
            "!has(self.caBundle) || self.url.startsWith('https://')",
            "caBundle needs an https:// url: over http there is no certificate to check",
        ),
    ),
)

_CONFIG_SPEC = _object(
    {
        "minShards": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
        "maxShards": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
        "scaleUpThreshold": {**_RATIO, "default": 0.8},
        "scaleDownThreshold": {**_RATIO, "default": 0.3},
        "loadBalanceStrategy": {
            "type": "string",
            "enum": ["consistent-hash", "round-robin", "least-loaded"],
            "default": "consistent-hash",
        },
        "healthCheckInterval": _duration("30s"),
        "gracefulShutdownTimeout": _duration("30s"),
        "resources": _object({"requests": _QUANTITIES, "limits": _QUANTITIES}),
        "targets": _list(_TARGET, limit=16),
        "template": _FREE,
        "externalWorkers": {"type": "boolean", "default": False},
        "worker": _object(
            {
                "concurrency": {"type": "integer", "minimum": 1, "maximum": 1000},
                "batch": {"type": "integer", "minimum": 1, "maximum": 10000},
                "handlerTimeout": _duration(),
                "drainTimeout": _duration(),
            },
            rules=(
                (
                    "!has(self.handlerTimeout) || duration(self.handlerTimeout) > duration('0s')",
                    "handlerTimeout must be more than 0",
                ),
            ),
        ),
        "handler": _object({"webhook": _WEBHOOK}),
        "queueDepthLimit": _COUNT,
        "latencyTarget": _duration(),
        "customMetrics": _list(
            _object(
                {"name": {"type": "string", "minLength": 1, "maxLength": 63}, "target": {"type": "number"}},
                required=("name", "target"),
                rules=(("self.target > 0.0", "target must be more than 0"),),
            ),
            limit=16,
            keys=("name",),
        ),
        "sustainedFor": _duration("30s"),
        "cooldown": _duration("2m"),
        "leaseDuration": _duration("15s"),
        "heartbeatInterval": _duration("3s"),
        "rebalanceThreshold": {**_RATIO, "default": 0.2},
        "maxConcurrentMigrations": {"type": "integer", "minimum": 1, "maximum": SLOTS_LIMIT, "default": 256},
        "migrationTimeout": _duration("30s"),
        "forecast": _object({"horizon": _duration("1m")}),
        "cost": _object(
            {"perShardHour": {"type": "number", "minimum": 0}, "budgetPerHour": {"type": "number", "minimum": 0}},
            required=("perShardHour", "budgetPerHour"),
            rules=(("self.perShardHour > 0.0", "perShardHour must be more than 0"),),
        ),
        "healthCheck": _object(
            {
                "path": {"type": "string", "maxLength": 256, "pattern": "^/", "default": "/readyz"},
                "port": {"type": "integer", "minimum": 1, "maximum": 65535, "default": 8080},
                "timeout": _duration("1s"),
                "failureThreshold": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
            }
        ),
        "update": _object({"maxSurge": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1}}),
    },
    rules=(
        ("self.minShards <= self.maxShards", "minShards must not exceed maxShards"),
        (
            "self.scaleDownThreshold < self.scaleUpThreshold",
            "scaleDownThreshold must be below scaleUpThreshold, otherwise the number of shards never settles",
        ),
        (
            "duration(self.leaseDuration).getMilliseconds() >= 3 * duration(self.heartbeatInterval).getMilliseconds()",
            "leaseDuration must be at least three times heartbeatInterval, otherwise one lost heartbeat fails a shard",
        ),
        ("duration(self.heartbeatInterval) >= duration('100ms')", "heartbeatInterval must be 100ms or more"),
        ("duration(self.leaseDuration) >= duration('1s')", "leaseDuration must be 1s or more"),
        (
            "!self.externalWorkers || !has(self.template)",
            "template must not be set with externalWorkers: the manager starts no workers then",
        ),
    ),
)

_CONDITION = _object(
    {
        "type": _TEXT,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": _TEXT,
        "message": _TEXT,
        "lastTransitionTime": _TIME,
        "observedGeneration": _EPOCH,
    },
    required=("type", "status"),
)

_CONFIG_STATUS = _object(
    {
        "observedGeneration": _EPOCH,
        "currentShards": _COUNT,
        "healthyShards": _COUNT,
        "desiredShards": _COUNT,
        "drainingShards": _COUNT,
        "updatedShards": _COUNT,
        "totalLoad": {"type": "number"},
        "averageLoad": {"type": "number"},
        "queueDepth": _COUNT,
        "strategy": _TEXT,
        "assignedCount": _COUNT,
        "unassignedSlots": _COUNT,
        "movingSlots": _COUNT,
        "epoch": _EPOCH,
        "lastScaleTime": _TIME,
        "lastScale": _TEXT,
        "decision": _TEXT,
        "conditions": _list(_CONDITION, limit=16, keys=("type",)),
    }
)

CONFIG: Obj = {
    "description": "How a controller's work is distributed over several active workers.",
    **_object(
        {"spec": shard_fields.described(_CONFIG_SPEC, shard_fields.CONFIG), "status": _CONFIG_STATUS},
        required=("spec",),
        rules=(
            (
                f"self.metadata.name.size() <= {NAME_LIMIT}",
                f"the name must have {NAME_LIMIT} characters or fewer: labels and pod names contain it",
            ),
            ("!self.metadata.name.contains('.')", "the name must not contain dots: pods are named after it"),
        ),
    ),
}
CONFIG_COLUMNS = [
    _column("Strategy", ".spec.loadBalanceStrategy"),
    _column("Min", ".spec.minShards", "integer"),
    _column("Max", ".spec.maxShards", "integer"),
    _column("Shards", ".status.currentShards", "integer"),
    _column("Healthy", ".status.healthyShards", "integer"),
    _column("Load", ".status.averageLoad", "number"),
    _column("Decision", ".status.decision", priority=1),
    _column("Age", ".metadata.creationTimestamp", "date"),
]

_POSITION: Obj = {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**32 - 1}
_RANGE = _object(
    {"start": _POSITION, "end": _POSITION},
    required=("start", "end"),
    rules=(("self.start <= self.end", "start must not exceed end; a range never passes the ring's end"),),
)

INSTANCE: Obj = {
    "description": "One shard.",
    **_object(
        {
            "spec": _object(
                {
                    "shardId": {"type": "string", "minLength": 1, "maxLength": 63},
                    "hashRange": _RANGE,
                    "hashRanges": _list(_RANGE, limit=SLOTS_LIMIT),
                    "resources": _list(_TEXT, limit=1000),
                    "config": _TEXT,
                    "replaces": _TEXT,
                    "templateHash": _TEXT,
                    "drain": {"type": "boolean"},
                },
                required=("shardId",),
                rules=(("self.shardId == oldSelf.shardId", "shardId cannot be changed; create another instance"),),
            ),
            "status": _object(
                {
                    "phase": {"type": "string", "enum": ["Pending", "Running", "Draining", "Failed", "Terminated"]},
                    "phaseSince": _TIME,
                    "reason": _TEXT,
                    "state": _TEXT,
                    "term": {"type": "integer"},
                    "joined": {"type": "boolean"},
                    "load": {"type": "number"},
                    "queueDepth": _COUNT,
                    "lastHeartbeat": _TIME,
                    "slots": _COUNT,
                    "assignedCount": _COUNT,
                    "assignedResources": _list(_TEXT, limit=NAMES_SHOWN),
                    "healthStatus": _object(
                        {
                            "healthy": {"type": "boolean"},
                            "lastCheck": _TIME,
                            "errorCount": _COUNT,
                            "message": _TEXT,
                        }
                    ),
                    "conditions": _list(_CONDITION, limit=16, keys=("type",)),
                }
            ),
        },
        required=("spec",),
    ),
}
INSTANCE_COLUMNS = [
    _column("Config", ".spec.config"),
    _column("Phase", ".status.phase"),
    _column("State", ".status.state"),
    _column("Slots", ".status.slots", "integer"),
    _column("Objects", ".status.assignedCount", "integer"),
    _column("Load", ".status.load", "number"),
    _column("Reason", ".status.reason", priority=1),
    _column("Age", ".metadata.creationTimestamp", "date"),
]

_SLOT: Obj = {"type": "integer", "minimum": 0, "maximum": SLOTS_LIMIT - 1}
_ENTRY = _object(
    {
        "slot": _SLOT,
        "owner": _TEXT,
        "term": {"type": "integer"},
        "epoch": _EPOCH,
        "move": _object(
            {
                "phase": {"type": "string", "enum": ["Prepare", "Drain", "Restore"]},
                "from": _TEXT,
                "to": _TEXT,
                "toTerm": {"type": "integer"},
                "nextEpoch": _EPOCH,
                "state": _TEXT,
                "digest": _TEXT,
            },
            required=("phase",),
        ),
    },
    required=("slot", "owner", "epoch"),
)
SLOTS: Obj = {
    "description": "Which shard owns which slot, for a range of slots. Written by the manager, always as a whole.",
    **_object(
        {
            "spec": _object(
                {"config": _TEXT, "first": _SLOT, "last": _SLOT, "entries": _list(_ENTRY, limit=SLOTS_LIMIT)},
                required=("config", "first", "last", "entries"),
            )
        },
        required=("spec",),
    ),
}
SLOTS_COLUMNS = [
    _column("Config", ".spec.config"),
    _column("First", ".spec.first", "integer"),
    _column("Last", ".spec.last", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
]

STATE: Obj = {
    "description": "The state of a slot that a worker saves for its next owner. Written once; the manager removes it.",
    **_object(
        {
            "spec": _object(
                {
                    "config": _NAME,
                    "slot": _SLOT,
                    "epoch": _EPOCH,
                    "shard": _NAME,
                    "data": {"type": "string", "format": "byte", "maxLength": (STATE_LIMIT_BYTES + 2) // 3 * 4},
                    "digest": _NAME,
                },
                required=("config", "slot", "epoch", "shard", "data"),
                rules=(("self == oldSelf", "a state is written once; the next epoch gets another object"),),
            )
        },
        required=("spec",),
    ),
}
STATE_COLUMNS = [
    _column("Config", ".spec.config"),
    _column("Slot", ".spec.slot", "integer"),
    _column("Epoch", ".spec.epoch", "integer"),
    _column("Shard", ".spec.shard"),
]

RESOURCE: Obj = {
    "description": "An object of the built-in worker: shards share out these if their ShardConfig names no other kind.",
    **_object(
        {
            "spec": {**_FREE, "description": "Any data; the webhook of the ShardConfig gets it."},
            "status": _object(
                {
                    "phase": {"type": "string", "enum": ["Failed", "Processed"]},
                    "processedBy": _TEXT,
                    "processedAt": _TIME,
                    "attempts": _COUNT,
                    "observedGeneration": _EPOCH,
                    "message": _TEXT,
                }
            ),
        }
    ),
}
RESOURCE_COLUMNS = [
    _column("Phase", ".status.phase"),
    _column("Processed by", ".status.processedBy"),
    _column("Attempts", ".status.attempts", "integer"),
    _column("Message", ".status.message", priority=1),
    _column("Age", ".metadata.creationTimestamp", "date"),
]
