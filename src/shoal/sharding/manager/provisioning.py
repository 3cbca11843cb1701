"""Creates and removes shards: ShardInstances and the pods of their workers."""

from __future__ import annotations

import asyncio

from shoal.base.logs import get_logger
from shoal.crds.shard import API_VERSION, InstanceSpec, read_instance, written
from shoal.errors import AlreadyExists, BadRequest, Forbidden, Invalid
from shoal.kube.objects import Obj
from shoal.sharding.leases import LeaseState
from shoal.sharding.manager import lifecycle
from shoal.sharding.manager.lifecycle import Create, Drain, Keep, PhaseDecision, PodState, Shard, ShardPhase
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.manager.observed import Observed, ObservedInstance
from shoal.sharding.manager.pods import template_hash, worker_pod
from shoal.sharding.manager.writers import Writers, config_reference
from shoal.sharding.model import CONFIG_LABEL

log = get_logger("sharding.provisioning")

_AT_ONCE = 32  # writes


class ShardProvisioner:
    def __init__(self, writers: Writers) -> None:
        self._writers = writers

    async def scale(
        self, seen: Observed, memory: ManagerMemory, shards: dict[str, Shard], desired: int
    ) -> dict[str, PhaseDecision]:
        """Create, drain or keep shards until there are ``desired`` ones; returns the phases that change."""
        phase_decisions: dict[str, PhaseDecision] = {}
        for order in lifecycle.plan_shards(tuple(shards.values()), desired, max_surge=seen.spec.update.max_surge):
            match order:
                case Create(replaces):
                    await self._create(seen, memory, replaces)
                case Drain(name, reason, text):
                    shard = shards[name]
                    if shard.phase is not ShardPhase.FAILED or shard.slots == 0:
                        phase_decisions[name] = PhaseDecision(lifecycle.DRAIN_PHASE[shard.phase], reason, text)
                case Keep(name):
                    phase_decisions[name] = PhaseDecision(ShardPhase.RUNNING, "DrainCancelled", "it is needed again")
        return phase_decisions

    async def adopt(self, seen: Observed) -> dict[str, ObservedInstance]:
        """Create ShardInstances for workers that the manager did not start."""
        strangers = [
            name
            for name, found in seen.leases.items()
            if name not in seen.instances and found.state is LeaseState.READY and not found.lease.leaving
        ]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def make(name: str) -> ObservedInstance | None:
            async with limit:
                return await self._instance(seen, InstanceSpec(shard_id=name, config=seen.key.name))

        found = await asyncio.gather(*map(make, strangers))
        return {instance.name: instance for instance in found if instance is not None}

    async def create_pods(self, seen: Observed, memory: ManagerMemory, shards: dict[str, Shard]) -> None:
        """Create the missing pods of pending shards."""
        for name, shard in shards.items():
            if shard.phase is ShardPhase.PENDING and shard.pod is PodState.MISSING and seen.spec.template is not None:
                await self._create_pod(seen, memory, seen.instances[name].obj)

    async def _create_pod(self, seen: Observed, memory: ManagerMemory, instance: Obj) -> None:
        """A refusal (a quota, a missing service account, an invalid template) is kept for the conditions: the next pass
        tries again."""
        name = instance["metadata"]["name"]
        try:
            await self._writers.pods.create(worker_pod(seen.spec, seen.key.name, instance))
            memory.refused_pods.pop(name, None)
        except AlreadyExists:
            memory.refused_pods.pop(name, None)
        except (BadRequest, Forbidden, Invalid) as error:
            if name not in memory.refused_pods:
                text = f"pod {name} was refused: {error}"
                self._writers.record_event(seen.config, "PodRefused", text, warning=True)
                log.warning("the pod of a shard was refused", shard=name, reason=str(error))
            memory.refused_pods[name] = f"the server refused its pod: {error}"

    async def remove(self, seen: Observed, shards: dict[str, Shard]) -> set[str]:
        """Delete the objects of terminated shards: the pod at once, the others when the pod is gone. Returns the shards
        that are removed completely."""
        removed = set()
        for name, shard in shards.items():
            if shard.phase is not ShardPhase.TERMINATED:
                continue
            pod, lease, instance = seen.pods.get(name), seen.leases.get(name), seen.instances[name]
            if pod is not None:
                if not pod["metadata"].get("deletionTimestamp"):
                    await self._writers.pods.delete(pod)
                continue
            held = lease is not None and lease.lease.held
            anew = lease is not None and held and lease.lease.term != instance.status.term
            # a restarted worker has a new term and becomes a new shard; a worker of the old term is still stopping
            over = not held and shard.phase_age_s >= self._writers.kept_s
            if instance.status.phase == ShardPhase.TERMINATED and (anew or over):
                await self._writers.instances.delete(instance.obj)
                removed.add(name)
                if lease is not None and not held:  # not earlier: the terms of a shard must not start at 1 again
                    await self._writers.leases.delete_unchanged(lease.obj)
        return removed

    async def _create(self, seen: Observed, memory: ManagerMemory, replaces: str) -> None:
        name = f"{seen.key.name}-{self._writers.new_suffix()}"
        spec = InstanceSpec(
            shard_id=name, config=seen.key.name, replaces=replaces, template_hash=template_hash(seen.spec)
        )
        instance = await self._instance(seen, spec)
        if instance is None:
            return
        await self._create_pod(seen, memory, instance.obj)
        text = f"created shard {name}" + (f" in place of {replaces}" if replaces else "")
        self._writers.record_event(seen.config, "ShardCreated", text)
        log.info("created a shard", shard=name, replaces=replaces)

    async def _instance(self, seen: Observed, spec: InstanceSpec) -> ObservedInstance | None:
        obj: Obj = {
            "apiVersion": API_VERSION,
            "kind": "ShardInstance",
            "metadata": {
                "name": spec.shard_id,
                "namespace": seen.key.namespace,
                "labels": {CONFIG_LABEL: seen.key.name},
                "ownerReferences": [config_reference(seen.config)],
            },
            "spec": written(spec),
        }
        try:
            made = await self._writers.instances.create(obj)
        except AlreadyExists:
            return None  # the cache does not show it yet
        return ObservedInstance(made, *read_instance(made))
