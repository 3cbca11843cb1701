"""ShardInstances that users create: each joins the ShardConfig that it names. One that names none joins the only one of
its namespace, or of several the only one with built-in workers: ShardConfigs with workers of their own do not count.

The manager's own instances carry the label of their ShardConfig from the start. One without it gets the label, its
owner and the template's hash here; the next pass of the ShardConfig then counts it and starts its worker. One that
cannot join gets a condition with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.crds.shard import read_config
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, Result
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.conditions import condition
from shoal.sharding.manager.observed import ManagerInformers
from shoal.sharding.manager.pods import BuiltinWorker, template_hash
from shoal.sharding.manager.scaling import bounds
from shoal.sharding.manager.writers import Writers, config_reference
from shoal.sharding.model import CONFIG_LABEL, JOINED

_LOOK_S = 10.0  # an instance that cannot join is looked at again


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an instance joins no ShardConfig; ``reason`` is one word."""

    reason: str
    text: str


def choose_config(instance: Obj, configs: Sequence[Obj]) -> Obj | Refusal:
    """The ShardConfig that an instance joins, of those in its namespace."""
    about, spec = instance["metadata"], instance["spec"]
    names = ", ".join(sorted(config["metadata"]["name"] for config in configs))
    if spec["shardId"] != about["name"]:
        text = f"metadata.name is {about['name']!r} and spec.shardId {spec['shardId']!r}: use one name for both"
        return Refusal("NamesDiffer", text)
    if spec.get("config"):
        for config in configs:
            if config["metadata"]["name"] == spec["config"]:
                return config
        text = f"ShardConfig {spec['config']!r} not found in namespace {about['namespace']}"
        return Refusal("ConfigNotFound", f"{text} (existing: {names or 'none'})")
    if len(configs) == 1:
        return configs[0]
    builtin = [config for config in configs if read_config(config).built_in]
    if len(builtin) == 1:
        return builtin[0]
    if configs:
        return Refusal("SeveralConfigs", f"there are several ShardConfigs: name one in spec.config ({names})")
    return Refusal("NoConfig", f"there is no ShardConfig in namespace {about['namespace']}: create one")


class InstanceJoiner:
    """Reconciles ShardInstances without a label; runs while this manager leads."""

    def __init__(self, writers: Writers, sources: ManagerInformers, builtin: BuiltinWorker) -> None:
        self._writers = writers
        self._sources = sources
        self._builtin = builtin

    async def reconcile(self, key: ObjectKey) -> Result:
        instance = self._sources.instances.cache.get(key)
        if instance is None:
            return DONE
        instance = self._writers.instances.overlay.over_one(instance)
        if is_member(instance) or instance["metadata"].get("deletionTimestamp"):
            return DONE
        found = choose_config(instance, self._configs(key.namespace))
        if not isinstance(found, Refusal):
            found = self._full(found) or found
        if isinstance(found, Refusal):
            await self._refuse(instance, found)
            return Result(after_s=_LOOK_S)
        await self._join(instance, found)
        return DONE

    def unjoined(self, config: Obj) -> list[ObjectKey]:
        """The instances that a change of this ShardConfig may concern."""
        place = config["metadata"]["namespace"]
        cache = self._sources.instances.cache
        return [key for key in cache.keys() if key.namespace == place and not is_member(cache.get(key) or {})]

    def _configs(self, namespace: str) -> list[Obj]:
        return [
            config
            for config in self._sources.configs.cache
            if config["metadata"]["namespace"] == namespace and not config["metadata"].get("deletionTimestamp")
        ]

    def _full(self, config: Obj) -> Refusal | None:
        """A refusal if the ShardConfig may not have one more shard."""
        about = config["metadata"]
        _, most, why = bounds(read_config(config))
        members = sum(
            (obj["metadata"].get("labels") or {}).get(CONFIG_LABEL) == about["name"]
            and obj["metadata"]["namespace"] == about["namespace"]
            and (obj.get("status") or {}).get("phase") not in ("Terminated", "Draining")
            for obj in self._sources.instances.cache
        )
        if members < most:
            return None
        return Refusal("AtMaximum", f"ShardConfig {about['name']} has {members} shards, and {why}")

    async def _join(self, instance: Obj, config: Obj) -> None:
        about, name = instance["metadata"], config["metadata"]["name"]
        spec = {**instance["spec"], "config": name}
        hashed = template_hash(self._builtin.completed(read_config(config)))
        if hashed:
            spec["templateHash"] = hashed
        meta = {
            **about,
            "labels": {**(about.get("labels") or {}), CONFIG_LABEL: name},
            "annotations": {**(about.get("annotations") or {}), JOINED: "true"},
            "ownerReferences": [config_reference(config)],
        }
        await self._writers.instances.replace({**instance, "metadata": meta, "spec": spec})
        self._writers.record_event(config, "ShardJoined", f"shard {about['name']}, created by a user, joins")

    async def _refuse(self, instance: Obj, refusal: Refusal) -> None:
        before = instance.get("status") or {}
        known, generation = before.get("conditions") or [], instance["metadata"].get("generation", 0)
        said = ("False", refusal.reason, refusal.text)
        now = condition("Joined", said, known, generation, self._writers.clock.wall_s())
        if now not in known:
            await self._writers.instances.replace_status({**instance, "status": {**before, "conditions": [now]}})


def is_member(instance: Obj) -> bool:
    """Whether a ShardInstance belongs to a ShardConfig."""
    return CONFIG_LABEL in ((instance.get("metadata") or {}).get("labels") or {})
