"""Counts the pods of a budget and writes its status with the version read, because evictions write it too."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.controllers.context import ControllerContext
from shoal.controllers.disruption.plan import disrupted, expected, failed_status, healthy, needs_scale, status
from shoal.controllers.disruption.scales import NoScale, Scales
from shoal.errors import NotFound
from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, Cache, Change, EventType, ObjectKey, Result, key_of

_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of "
    "the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
    'set ".spec.minAvailable" field of the PDB to an integer value.'
)


class Budgets:
    def __init__(self, context: ControllerContext, budgets: Cache, pods: Cache, scales: Scales) -> None:
        self._context = context
        self._budgets, self._pods = budgets, pods
        self._scales = scales
        self._resource = context.resource("poddisruptionbudgets", "policy")

    def of_pod(self, pod: Obj) -> Iterable[ObjectKey]:
        labels = pod["metadata"].get("labels") or {}
        budgets = self._budgets.select(namespace=pod["metadata"]["namespace"])
        return [key_of(each) for each in budgets if from_object(each["spec"].get("selector")).matches(labels)]

    def of_namespace(self, workload: Obj) -> Iterable[ObjectKey]:
        return [key_of(each) for each in self._budgets.select(namespace=workload["metadata"]["namespace"])]

    async def reconcile(self, key: ObjectKey) -> Result:
        budget = self._budgets.get(key)
        if budget is None:
            return DONE
        pods = self._pods.select(from_object(budget["spec"].get("selector")), namespace=key.namespace)
        if not pods and (budget.get("status") or {}).get("expectedPods"):
            self._event(budget, EventType.NORMAL, "NoPods", "No matching pods found")
        now_s = self._context.clock.wall_s()
        leaving = disrupted((budget.get("status") or {}).get("disruptedPods") or {}, pods, now_s)
        try:
            scale = await self._scale(budget, pods)
        except NoScale as error:
            await self._fail(budget, f"Failed to calculate the number of expected pods: {error}", now_s)
            raise
        self._record_failed(key, pods, leaving.failed)
        wanted = expected(budget["spec"], len(pods), scale)
        await self._write(budget, status(budget, wanted, healthy(pods, leaving.pods), leaving.pods, now_s))
        return DONE if leaving.recheck_s is None else Result(after_s=leaving.recheck_s + 1.0)

    async def _scale(self, budget: Obj, pods: tuple[Obj, ...]) -> int:
        if not needs_scale(budget["spec"]):
            return 0
        scale, unmanaged = await self._scales.wanted(pods)
        if unmanaged:
            message = _UNMANAGED.format(budget["spec"].get("selector"))
            self._event(budget, EventType.WARNING, "UnmanagedPods", message)
        return scale

    def _record_failed(self, key: ObjectKey, pods: tuple[Obj, ...], failed: tuple[str, ...]) -> None:
        for pod in pods:
            if pod["metadata"]["name"] in failed:
                message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
                self._event(pod, EventType.WARNING, "NotDeleted", message)

    async def _fail(self, budget: Obj, message: str, now_s: float) -> None:
        self._event(budget, EventType.WARNING, "CalculateExpectedPodCountFailed", message)
        await self._write(budget, failed_status(budget, message, now_s))

    def _event(self, obj: Obj, type: EventType, reason: str, message: str) -> None:
        self._context.events.record(obj, type, reason, message)

    async def _write(self, budget: Obj, wanted: Obj) -> None:
        if wanted == budget.get("status"):
            return
        try:
            await self._resource.replace_status({**budget, "status": wanted})
        except NotFound:
            return


def size_changed(change: Change) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return bool(old["spec"].get("replicas") != new["spec"].get("replicas"))


def counts_otherwise(change: Change) -> bool:
    """Whether a pod was added or deleted, or its readiness or labels changed; nothing else is counted."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return _counted(old) != _counted(new)


def _counted(pod: Obj) -> tuple[object, ...]:
    about = pod["metadata"]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "")
    return ready, bool(about.get("deletionTimestamp")), about.get("labels"), about.get("ownerReferences")
