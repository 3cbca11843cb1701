"""Keeps the number of pods of ReplicaSets and similar kinds, and writes their status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.claims import Claimer
from shoal.controllers.pods.control import BURST, BatchOutcome, PodControl
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import CONTROLLER, by_controller, controlled_by
from shoal.controllers.pods.ranking import to_delete
from shoal.controllers.pods.status import is_active, is_terminating, next_availability_s
from shoal.controllers.pods.template import controller_reference, pod_of
from shoal.controllers.replicaset.plan import missing, plan_status
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, Result
from shoal.reconcile.keys import ObjectKey, controller_of


@dataclass(frozen=True, slots=True)
class ReplicatedKind:
    """A kind that keeps a number of equal pods."""

    plural: str
    group: str
    api_version: str
    kind: str
    selector_of: Callable[[Obj], Selector]
    reports_terminating: bool
    has_siblings: bool  # several objects can share a controller, as the ReplicaSets of a Deployment


class ReplicaController:
    """Reconciles the objects of one replicated kind."""

    def __init__(self, context: ControllerContext, kind: ReplicatedKind) -> None:
        self._kind = kind
        self._clock = context.clock
        self.pods = context.informer("pods", controller=by_controller)
        self.owners = context.informer(kind.plural, kind.group, controller=by_controller)
        self._resource = context.resource(kind.plural, kind.group)
        self._expectations = Expectations(context.clock)
        self._control = PodControl(context, self.pods.cache, self._expectations)
        self._claimer = Claimer(context.resource("pods"), self.pods.cache, self._resource, self._expectations)
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        owner = self.owners.cache.get(key)
        if owner is None:
            self._expectations.forget(self._uids.pop(key, ""))
            return DONE
        uid = self._uids[key] = owner["metadata"]["uid"]
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        reference = controller_reference(owner, self._kind.api_version, self._kind.kind)
        claimed = await self._claimer.claim(owner, reference, self._kind.selector_of(owner))
        active = [pod for pod in claimed if is_active(pod)]
        lacked = missing(owner, active)
        outcome = BatchOutcome()
        if lacked and not is_terminating(owner):
            outcome = await self._manage(owner, reference, active, lacked)
            active = _after(active, outcome.done, created=lacked > 0)
        terminating = sum(is_terminating(pod) for pod in claimed)
        if lacked < 0:
            terminating += len(outcome.done)
        now = self._clock.wall_s()
        status = plan_status(
            owner, active, now, failure=str(outcome.failure or ""), lacked=lacked,
            terminating=terminating if self._kind.reports_terminating else None,
        )  # fmt: skip
        await self._report(owner, status)
        if outcome.failure is not None:
            raise outcome.failure
        return Result(after_s=next_availability_s(active, owner["spec"].get("minReadySeconds") or 0, now))

    async def _manage(self, owner: Obj, reference: Obj, active: list[Obj], lacked: int) -> BatchOutcome:
        if lacked > 0:
            pod = pod_of(owner["spec"]["template"], owner, reference)
            return await self._control.create(owner, [pod] * min(lacked, BURST))
        chosen = to_delete(active, self._related(owner, active), min(-lacked, BURST), self._clock.wall_s())
        return await self._control.delete(owner, chosen)

    def _related(self, owner: Obj, active: list[Obj]) -> list[Obj]:
        """The pods of all owners with the same controller."""
        parent = controller_of(owner) if self._kind.has_siblings else None
        if parent is None:
            return active
        siblings = self.owners.cache.by_index(CONTROLLER, parent["uid"])
        return [pod for sibling in siblings for pod in controlled_by(self.pods.cache, sibling)]

    async def _report(self, owner: Obj, status: Obj) -> None:
        if status == owner.get("status"):
            return
        answer = await self._resource.replace_status({**owner, "status": status})
        self._expectations.wrote(owner["metadata"]["uid"], self.owners.cache, answer)


def _after(active: list[Obj], done: tuple[Obj, ...], *, created: bool) -> list[Obj]:
    """The active pods after the creations or deletions."""
    if created:
        return [*active, *done]
    gone = {pod["metadata"]["uid"] for pod in done}
    return [pod for pod in active if pod["metadata"]["uid"] not in gone]
