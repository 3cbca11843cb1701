"""What the fields of ``shard.io/v1`` mean: shown by ``kubectl explain`` and in the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.kube.objects import Obj

CONFIG: Mapping[str, str] = {
    "minShards": "The fewest shards.",
    "maxShards": "The most shards.",
    "scaleUpThreshold": "More shards when the average load stays above this.",
    "scaleDownThreshold": "One shard fewer when the load would have stayed below this without it.",
    "loadBalanceStrategy": "Which shard gets a slot. It may change at any time.",
    "healthCheckInterval": "How often the manager checks workers and writes their figures to the status.",
    "gracefulShutdownTimeout": "How long a worker may take to hand over its slots before it is ended.",
    "resources": "Requests and limits of the built-in workers.",
    "targets": "The kinds whose objects are shared out; ShardedResources if there are none.",
    "targets.group": "API group; empty for the core group.",
    "targets.kind": "Kind of the objects.",
    "targets.selector": "Only objects with these labels.",
    "targets.namespaceSelector": "Only objects in namespaces with these labels.",
    "targets.controlled": "Kinds whose objects follow the object that controls them to its slot.",
    "targets.controlled.group": "API group; empty for the core group.",
    "targets.controlled.kind": "Kind of the objects.",
    "template": "The pod template of the workers, as in a Deployment; left out: the built-in worker, or workers that "
    "are started elsewhere.",
    "externalWorkers": "Whether all workers are started elsewhere: the manager starts none.",
    "worker": "Limits of each worker; a worker's own flags come first.",
    "worker.concurrency": "Handlers at once.",
    "worker.batch": "Objects at once of a handler that takes batches.",
    "worker.handlerTimeout": "How long a handler may take.",
    "worker.drainTimeout": "How long the handlers of a slot that moves may take to end.",
    "handler": "What the built-in worker does with a ShardedResource.",
    "handler.webhook": "Where it sends each one; without, it marks it as processed.",
    "handler.webhook.url": "An answer other than 2xx is a failure, which is tried again.",
    "handler.webhook.timeout": "Of one call, with connecting.",
    "handler.webhook.maxBytes": "The largest request and answer.",
    "handler.webhook.caBundle": "PEM in base64; left out: the authorities of the system.",
    "queueDepthLimit": "More shards when the average queue stays longer than this; 0: queues decide nothing.",
    "latencyTarget": "More shards when handlers take longer than this.",
    "customMetrics": "More shards when the average of a figure that workers report stays above its target.",
    "customMetrics.name": "The figure's name.",
    "customMetrics.target": "The average over the shards stays at or below it.",
    "sustainedFor": "How long a reason for more shards has to last.",
    "cooldown": "The time between two changes, and how long a reason for fewer shards has to last.",
    "leaseDuration": "A shard that has not renewed its lease for so long is lost.",
    "heartbeatInterval": "How often a worker renews its lease and reports.",
    "rebalanceThreshold": "Slots move when the loads of two shards differ by more than this for sustainedFor.",
    "maxConcurrentMigrations": "The most slots that move at a time.",
    "migrationTimeout": "How long one step of a move may take before it is taken back.",
    "forecast": "More shards already when the trend of the load passes the threshold.",
    "forecast.horizon": "How far ahead the trend is followed.",
    "cost": "No more shards than the budget pays for, and never fewer than minShards.",
    "cost.perShardHour": "The price of one shard for an hour.",
    "cost.budgetPerHour": "What all shards may cost in an hour.",
    "healthCheck": "An HTTP check of each worker's pod.",
    "healthCheck.path": "Path of the check; an answer other than 2xx is a failure.",
    "healthCheck.port": "Port of the pod.",
    "healthCheck.timeout": "How long an answer may take.",
    "healthCheck.failureThreshold": "Failures in a row after which the shard is not healthy.",
    "update": "How workers are replaced when the template changes.",
    "update.maxSurge": "How many new workers are started at a time.",
}


def described(schema: Obj, texts: Mapping[str, str]) -> Obj:
    """A copy of the schema with the texts, which are named by their paths in it."""
    made: Obj = _apart(schema)
    for path, text in texts.items():
        field = made
        for name in path.split("."):
            field = (field.get("items") or field)["properties"][name]
        field["description"] = text
    return made


def _apart(value: Any) -> Any:
    """A copy in which no part is in two places, as a selector is in the schema."""
    if isinstance(value, dict):
        return {key: _apart(each) for key, each in value.items()}
    return [_apart(each) for each in value] if isinstance(value, list) else value
