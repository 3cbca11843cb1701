"""Executes the next step of a DaemonSet: pods, revisions, and its status."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.controllers.context import ControllerContext
from shoal.controllers.daemonset.backoff import FailedPods, Key
from shoal.controllers.daemonset.model import DaemonSetPlan
from shoal.controllers.daemonset.plan import plan, pods_for, slots_of
from shoal.controllers.pods.claims import Claimer
from shoal.controllers.pods.control import BURST, Failure, PodControl, namespace_ends
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import by_controller, selector_of
from shoal.controllers.pods.status import is_terminating
from shoal.controllers.pods.template import controller_reference
from shoal.controllers.revisions.history import RevisionHistory, Revisions
from shoal.controllers.revisions.plan import REVISION_LABEL, name_of
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey


class DaemonSetController:
    """Reconciles DaemonSets."""

    def __init__(self, context: ControllerContext) -> None:
        self.owners = context.informer("daemonsets", "apps")
        self.nodes = context.informer("nodes")
        self.pods = context.informer("pods", controller=by_controller)
        self._clock = context.clock
        self._events = context.events
        self._resource = context.resource("daemonsets", "apps")
        self._expectations = Expectations(context.clock)
        self._control = PodControl(context, self.pods.cache, self._expectations)
        self._claimer = Claimer(context.resource("pods"), self.pods.cache, self._resource, self._expectations)
        self.history = RevisionHistory(context, "daemonsets", self._expectations, hash_label=REVISION_LABEL)
        self._failed = FailedPods()
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        owner = self.owners.cache.get(key)
        if owner is None:
            uid = self._uids.pop(key, "")
            self._expectations.forget(uid)
            self._failed.forget(uid)
            return DONE
        uid = self._uids[key] = owner["metadata"]["uid"]
        if is_terminating(owner):
            return DONE
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        reference = controller_reference(owner, "apps/v1", "DaemonSet")
        try:
            revisions = await self.history.sync(owner, reference)
        except ApiError as error:
            if namespace_ends(error):
                return DONE
            raise
        mark = revisions.update["metadata"]["labels"][REVISION_LABEL]
        pods = await self._claimer.claim(owner, reference, selector_of(owner))
        now_s = self._clock.monotonic()
        decided = plan(
            owner, slots_of(owner, self.nodes.cache, pods), mark, now=self._clock.wall_s(),
            waits_s=lambda node: self._failed.remaining_s(_failed_key(owner, node), now_s),
        )  # fmt: skip
        failure = await self._act(owner, reference, mark, decided)
        await self._report(owner, decided.status, revisions)
        if failure is not None:
            raise failure
        await self.history.truncate(owner, revisions.all, _live(revisions, pods))
        return Result(after_s=decided.recheck_s)

    async def _act(self, owner: Obj, reference: Obj, mark: str, decided: DaemonSetPlan) -> Failure | None:
        for node in decided.failed_on:
            self._failed.failed(_failed_key(owner, node), self._clock.monotonic())
        for remark in decided.remarks:
            kind = EventType.WARNING if remark.warning else EventType.NORMAL
            self._events.record(owner, kind, remark.reason, remark.message)
        created = await self._control.create(owner, pods_for(owner, reference, mark, decided.nodes[:BURST]))
        deleted = await self._control.delete(owner, decided.deleted)
        return created.failure or deleted.failure

    async def _report(self, owner: Obj, status: Obj, revisions: Revisions) -> None:
        if revisions.collisions:
            status = {**status, "collisionCount": revisions.collisions}
        if status == owner.get("status"):
            return
        answer = await self._resource.replace_status({**owner, "status": status})
        self._expectations.wrote(owner["metadata"]["uid"], self.owners.cache, answer)


def _failed_key(owner: Obj, node: str) -> Key:
    return owner["metadata"]["uid"], (owner.get("status") or {}).get("observedGeneration") or 0, node


def _live(revisions: Revisions, pods: Sequence[Obj]) -> set[str]:
    """The names of the revisions that are in use."""
    marks = {(pod["metadata"].get("labels") or {}).get(REVISION_LABEL) for pod in pods}
    used = {name_of(each) for each in revisions.all if each["metadata"]["labels"].get(REVISION_LABEL) in marks}
    return used | {name_of(revisions.update)}
