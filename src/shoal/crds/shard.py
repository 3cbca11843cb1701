"""``shard.io/v1``: the sharding of a controller, and its shards.

Users write ShardConfigs, and ShardedResources if they have no kind of their own to share out. A manager writes
ShardInstances (one per shard) and ShardSlots (the owner of each slot, in a few objects that are written by
compare-and-swap). Workers write ShardStates (the state of a slot that moves). All but ShardedResources are in the
namespace of the ShardConfig, where the workers run too.
"""

from __future__ import annotations

import re

import msgspec

from shoal.crds import shard_schema as schema
from shoal.kube.objects import Obj

GROUP = "shard.io"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
SHARDED_RESOURCE = "ShardedResource"

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``1m30s`` as seconds. The schema has checked the form."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text))


class _View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Unknown fields are ignored: the server has pruned fields that are not in the schema."""


class Controlled(_View, frozen=True, kw_only=True):
    """A kind whose objects have a target's object as their controller and follow its slot."""

    group: str = ""
    kind: str


class ShardTarget(_View, frozen=True, kw_only=True):
    """A kind whose objects are distributed over shards. Both selectors are as in Kubernetes; none selects all."""

    group: str = ""
    kind: str
    selector: Obj | None = None
    namespace_selector: Obj | None = None
    controlled: list[Controlled] = []


_DEFAULT_TARGET = ShardTarget(group=GROUP, kind=SHARDED_RESOURCE)


class CustomMetric(_View, frozen=True, kw_only=True):
    """A figure that workers report; its average over the shards should stay at or below ``target``."""

    name: str
    target: float


class Forecast(_View, frozen=True, kw_only=True):
    """Scale up when the trend of the load exceeds the threshold within ``horizon``."""

    horizon: str = "1m"


class Cost(_View, frozen=True, kw_only=True):
    """No more shards than the budget pays for, but never fewer than ``minShards``."""

    per_shard_hour: float
    budget_per_hour: float


class ShardHealthCheck(_View, frozen=True, kw_only=True):
    """An HTTP check of each worker's pod: any status but 2xx is a failure. After ``failureThreshold`` failures in a row
    the shard is unhealthy."""

    path: str = "/readyz"
    port: int = 8080
    timeout: str = "1s"
    failure_threshold: int = 3


class Update(_View, frozen=True, kw_only=True):
    """How workers are replaced when the template changes: ``maxSurge`` new ones at a time."""

    max_surge: int = 1


class WorkerLimits(_View, frozen=True, kw_only=True):
    """Limits of each worker. A worker's own flags come first; what neither names has the worker's default."""

    concurrency: int = 0  # handlers at once; 0: not named
    batch: int = 0  # objects of a batch handler at once; 0: not named
    handler_timeout: str = ""
    drain_timeout: str = ""


class HandlerWebhook(_View, frozen=True, kw_only=True):
    """Where the built-in worker sends each ShardedResource. Any answer but 2xx is a failure; it retries."""

    url: str
    timeout: str = "10s"  # of one call, connecting included
    max_bytes: int = 1024 * 1024  # of a request and of an answer
    ca_bundle: str = ""  # PEM in base64; empty: the system's authorities


class ShardHandler(_View, frozen=True, kw_only=True):
    """What the built-in worker does with a ShardedResource; without a webhook it marks it as processed."""

    webhook: HandlerWebhook | None = None


class ConfigSpec(_View, frozen=True, kw_only=True):
    min_shards: int = 1
    max_shards: int = 10
    scale_up_threshold: float = 0.8
    scale_down_threshold: float = 0.3
    load_balance_strategy: str = "consistent-hash"
    health_check_interval: str = "30s"
    graceful_shutdown_timeout: str = "30s"
    resources: Obj | None = None
    targets: list[ShardTarget] = []  # none: ShardedResources
    template: Obj | None = None  # a PodTemplateSpec; none: the built-in worker, if it can handle the targets
    external_workers: bool = False  # the manager starts no workers: they come from elsewhere
    worker: WorkerLimits = WorkerLimits()
    handler: ShardHandler = ShardHandler()
    queue_depth_limit: int = 0  # average per shard; 0: queues decide nothing
    latency_target: str = ""  # of a handler, as workers report it; empty: latency decides nothing
    custom_metrics: list[CustomMetric] = []
    sustained_for: str = "30s"  # how long a reason to scale up must last
    cooldown: str = "2m"  # from one scaling to the next, and how long a reason to scale down must last
    lease_duration: str = "15s"
    heartbeat_interval: str = "3s"
    rebalance_threshold: float = 0.2
    max_concurrent_migrations: int = 256  # slots
    migration_timeout: str = "30s"  # of one step
    forecast: Forecast | None = None
    cost: Cost | None = None
    health_check: ShardHealthCheck | None = None
    update: Update = Update()

    @property
    def lease_s(self) -> float:
        return seconds(self.lease_duration)

    @property
    def heartbeat_s(self) -> float:
        return seconds(self.heartbeat_interval)

    @property
    def built_in(self) -> bool:
        """Whether the manager starts built-in workers: all targets are theirs, and no other workers are named."""
        ours = all((target.group, target.kind) == (GROUP, SHARDED_RESOURCE) for target in self.targets)
        return self.template is None and not self.external_workers and ours


class HashRange(_View, frozen=True, kw_only=True, omit_defaults=False):
    """Both ends belong to it; the ring has 2**32 positions."""

    start: int
    end: int


class InstanceSpec(_View, frozen=True, kw_only=True):
    shard_id: str
    hash_range: HashRange | None = None  # the largest arc
    hash_ranges: list[HashRange] = []  # all arcs
    resources: list[str] = []
    config: str = ""  # the ShardConfig; an instance without one has no owner
    replaces: str = ""  # in an update: the shard whose slots all move here
    template_hash: str = ""
    drain: bool = False  # all slots move to other shards


class HealthStatus(_View, frozen=True, kw_only=True):
    healthy: bool = False
    last_check: str = ""
    error_count: int = 0
    message: str = ""


class InstanceStatus(_View, frozen=True, kw_only=True):
    phase: str = "Pending"
    phase_since: str = ""
    reason: str = ""
    state: str = ""  # of the Lease: Ready, Expired, Uncertain, Dead
    term: int = -1  # of the Lease
    joined: bool = False  # it has received its share of slots
    load: float = 0.0
    queue_depth: int = 0
    last_heartbeat: str = ""
    slots: int = 0
    assigned_count: int = 0
    assigned_resources: list[str] = []  # at most 100 of them
    health_status: HealthStatus = HealthStatus()
    conditions: list[Obj] = []  # Joined, of an instance that a user created


def read_config(obj: Obj) -> ConfigSpec:
    """The spec of a ShardConfig, with ShardedResources as its target if it names none; ``msgspec.ValidationError``
    names the error."""
    spec = msgspec.convert(obj.get("spec") or {}, ConfigSpec, strict=False)
    return spec if spec.targets else msgspec.structs.replace(spec, targets=[_DEFAULT_TARGET])


def read_instance(obj: Obj) -> tuple[InstanceSpec, InstanceStatus]:
    return (
        msgspec.convert(obj["spec"], InstanceSpec, strict=False),
        msgspec.convert(obj.get("status") or {}, InstanceStatus, strict=False),
    )


def written(view: msgspec.Struct) -> Obj:
    """A view as JSON data; defaults are left out."""
    made: Obj = msgspec.to_builtins(view)
    return made


def definitions() -> list[Obj]:
    """The CustomResourceDefinitions, to be applied before the first of their objects."""
    return [
        _definition("ShardConfig", "shardconfigs", schema.CONFIG, schema.CONFIG_COLUMNS, short="shc"),
        _definition("ShardInstance", "shardinstances", schema.INSTANCE, schema.INSTANCE_COLUMNS, short="shi"),
        _definition("ShardSlots", "shardslots", schema.SLOTS, schema.SLOTS_COLUMNS, status=False),
        _definition("ShardState", "shardstates", schema.STATE, schema.STATE_COLUMNS, status=False),
        _definition(SHARDED_RESOURCE, "shardedresources", schema.RESOURCE, schema.RESOURCE_COLUMNS, short="shr"),
    ]


def _definition(kind: str, plural: str, whole: Obj, columns: list[Obj], *, short: str = "", status: bool = True) -> Obj:
    names: Obj = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short:
        names["shortNames"] = [short]
    version: Obj = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "additionalPrinterColumns": columns,
    }
    if status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
