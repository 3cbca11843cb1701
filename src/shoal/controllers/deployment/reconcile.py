"""Executes the next step of a Deployment: creates, scales and deletes ReplicaSets, and writes the status."""

from __future__ import annotations

from typing import assert_never

from shoal.controllers.context import ControllerContext
from shoal.controllers.deployment.model import (
    REVISION,
    Action,
    CreateReplicaSet,
    DeleteReplicaSet,
    DeploymentPlan,
    UpdateReplicaSet,
)
from shoal.controllers.deployment.plan import is_desired, plan
from shoal.controllers.deployment.replicasets import family_of
from shoal.controllers.deployment.status import CREATE_FAILED, creation_failed
from shoal.controllers.pods.claims import Claimer
from shoal.controllers.pods.control import namespace_ends
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import by_controller, controlled_by, selector_of
from shoal.controllers.pods.status import is_terminal
from shoal.controllers.pods.template import controller_reference
from shoal.controllers.replicaset.plan import replicas_of
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey


class DeploymentController:
    """Reconciles Deployments."""

    def __init__(self, context: ControllerContext) -> None:
        self.deployments = context.informer("deployments", "apps")
        self.replica_sets = context.informer("replicasets", "apps", controller=by_controller)
        self.pods = context.informer("pods", controller=by_controller)
        self._clock = context.clock
        self._events = context.events
        self._resource = context.resource("deployments", "apps")
        self._sets = context.resource("replicasets", "apps")
        self._expectations = Expectations(context.clock)
        self._claimer = Claimer(self._sets, self.replica_sets.cache, self._resource, self._expectations)
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        deployment = self.deployments.cache.get(key)
        if deployment is None:
            self._expectations.forget(self._uids.pop(key, ""))
            return DONE
        uid = self._uids[key] = deployment["metadata"]["uid"]
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        reference = controller_reference(deployment, "apps/v1", "Deployment")
        claimed = await self._claimer.claim(deployment, reference, selector_of(deployment))
        decided = plan(
            deployment, claimed, old_pods_run=self._old_pods_run(deployment, claimed), now=self._clock.wall_s()
        )
        for action in decided.actions:
            if not await self._act(deployment, action):
                return DONE
        await self._report(deployment, decided)
        return Result(after_s=decided.recheck_s)

    def _old_pods_run(self, deployment: Obj, replica_sets: tuple[Obj, ...]) -> bool:
        if (deployment["spec"].get("strategy") or {}).get("type") != "Recreate":
            return False
        old = family_of(deployment, replica_sets).old
        return any(not is_terminal(pod) for each in old for pod in controlled_by(self.pods.cache, each))

    async def _act(self, deployment: Obj, action: Action) -> bool:
        """Execute one action; return whether to continue."""
        match action:
            case CreateReplicaSet(made):
                return await self._create(deployment, made)
            case UpdateReplicaSet(changed, before):
                answer = await self._sets.replace(changed)
                self._wrote(deployment, answer)
                self._record_scaled(deployment, answer, before)
            case DeleteReplicaSet(old):
                await self._delete(deployment, old)
            case _:
                assert_never(action)
        return True

    async def _create(self, deployment: Obj, made: Obj) -> bool:
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        try:
            answer = await self._sets.create(made)
        except AlreadyExists:
            found = await self._sets.get(name, namespace)
            if is_desired(deployment, found):
                self._wrote(deployment, found)  # the cache lags
                return True
            await self._collided(deployment)
            return False
        except ApiError as error:
            if namespace_ends(error):
                return False
            status, message = creation_failed(deployment, name, error.message, self._clock.wall_s())
            self._events.record(deployment, EventType.WARNING, CREATE_FAILED, message)
            await self._write_status(deployment, status)
            raise
        self._wrote(deployment, answer)
        self._record_scaled(deployment, answer, 0)
        return True

    async def _collided(self, deployment: Obj) -> None:
        """Another ReplicaSet has the name: count a collision, which changes the hash."""
        status = deployment.get("status") or {}
        await self._write_status(deployment, {**status, "collisionCount": (status.get("collisionCount") or 0) + 1})

    async def _delete(self, deployment: Obj, old: Obj) -> None:
        about = old["metadata"]
        try:
            await self._sets.delete(about["name"], about["namespace"], uid=about["uid"])
        except (NotFound, Conflict):
            return
        self._expectations.deleted(deployment["metadata"]["uid"], self.replica_sets.cache, old)

    def _record_scaled(self, deployment: Obj, replica_set: Obj, before: int) -> None:
        size = replicas_of(replica_set)
        if size == before:
            return
        way = "up" if size > before else "down"
        message = f"Scaled {way} replica set {replica_set['metadata']['name']} from {before} to {size}"
        self._events.record(deployment, EventType.NORMAL, "ScalingReplicaSet", message)

    async def _report(self, deployment: Obj, decided: DeploymentPlan) -> None:
        if decided.status == deployment.get("status") and not decided.revision:
            return
        about = deployment["metadata"]
        if decided.revision:
            annotations = {**(about.get("annotations") or {}), REVISION: decided.revision}
            deployment = {**deployment, "metadata": {**about, "annotations": annotations}}
        await self._write_status(deployment, decided.status)

    async def _write_status(self, deployment: Obj, status: Obj) -> None:
        answer = await self._resource.replace_status({**deployment, "status": status})
        self._expectations.wrote(deployment["metadata"]["uid"], self.deployments.cache, answer)

    def _wrote(self, deployment: Obj, replica_set: Obj) -> None:
        self._expectations.wrote(deployment["metadata"]["uid"], self.replica_sets.cache, replica_set)
