"""Evaluates each autoscaler every fifteen seconds: reads its target's scale and its metrics, writes scale and
status."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.client import ResourceClient, TransportError
from shoal.controllers.autoscaling.behavior import limit, remember, rules_of
from shoal.controllers.autoscaling.model import MetricError, Proposal, ScaleHistory
from shoal.controllers.autoscaling.proposals import Proposals, ScaleTarget
from shoal.controllers.context import ControllerContext
from shoal.errors import ApiError, NotFound
from shoal.kube.labels import parse
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile import DONE, Cache, EventType, ObjectKey, Result

PERIOD_S = 15.0


@dataclass(slots=True)
class _Evaluation:
    """The findings of one evaluation, from which the status is made."""

    hpa: Obj
    now: float
    conditions: list[Obj]
    metrics: list[Obj] = field(default_factory=list)
    current: int = 0
    desired: int = 0
    scaled_at: str = ""

    def set_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        before = next((each for each in self.conditions if each["type"] == kind), None)
        same = before is not None and before["status"] == status
        at = before["lastTransitionTime"] if before is not None and same else format_time(self.now)
        found = {
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at,
        }  # fmt: skip
        if before is None:
            self.conditions.append(found)
        else:
            self.conditions[self.conditions.index(before)] = found

    def status(self) -> Obj:
        found: Obj = {
            "observedGeneration": self.hpa["metadata"].get("generation", 1),
            "currentReplicas": self.current,
            "desiredReplicas": self.desired,
            "currentMetrics": self.metrics,
            "conditions": self.conditions,
        }
        if self.scaled_at:
            found["lastScaleTime"] = self.scaled_at
        return found


class Autoscaler:
    def __init__(self, context: ControllerContext, hpas: Cache, pods: Cache) -> None:
        self._context = context
        self._hpas, self._pods = hpas, pods
        self._proposals = Proposals(context.client)
        self._resource = context.resource("horizontalpodautoscalers", "autoscaling")
        self._histories: dict[str, ScaleHistory] = {}  # by uid
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        hpa = self._hpas.get(key)
        known = self._uids.get(key)
        if known is not None and (hpa is None or hpa["metadata"]["uid"] != known):
            self._histories.pop(self._uids.pop(key), None)
        if hpa is None:
            return DONE
        uid = self._uids[key] = hpa["metadata"]["uid"]
        history = self._histories.setdefault(uid, ScaleHistory())
        before = hpa.get("status") or {}
        evaluation = _Evaluation(
            hpa, self._context.clock.wall_s(), [dict(each) for each in before.get("conditions") or ()]
        )
        evaluation.current, evaluation.desired = before.get("currentReplicas", 0), before.get("desiredReplicas", 0)
        evaluation.scaled_at = before.get("lastScaleTime") or ""
        await self._evaluate(evaluation, history)
        status = evaluation.status()
        if status != before:
            try:
                await self._resource.replace_status({**hpa, "status": status})
            except NotFound:
                return DONE
        return Result(after_s=PERIOD_S)

    def _event(self, evaluation: _Evaluation, warning: bool, reason: str, message: str) -> None:
        kind = EventType.WARNING if warning else EventType.NORMAL
        self._context.events.record(evaluation.hpa, kind, reason, message)

    async def _evaluate(self, evaluation: _Evaluation, history: ScaleHistory) -> None:
        spec, namespace = evaluation.hpa["spec"], evaluation.hpa["metadata"]["namespace"]
        reference = spec["scaleTargetRef"]
        try:
            resource = await self._context.client.by_kind(reference["kind"], reference.get("apiVersion", ""))
            scale = await resource.get_subresource(reference["name"], "scale", namespace)
        except (ApiError, TransportError) as error:
            self._event(evaluation, True, "FailedGetScale", str(error))
            message = f"the HPA controller was unable to get the target's current scale: {error}"
            evaluation.set_condition("AbleToScale", "False", "FailedGetScale", message)
            return
        message = "the HPA controller was able to get the target's current scale"
        evaluation.set_condition("AbleToScale", "True", "SucceededGetScale", message)
        evaluation.current = (scale.get("spec") or {}).get("replicas", 0)
        decided = await self._decide(evaluation, scale, history)
        if decided is None:
            evaluation.desired = evaluation.current
            return
        evaluation.desired, why = decided
        if evaluation.desired != evaluation.current:
            await self._scale(evaluation, resource, scale, why, history)

    async def _decide(self, evaluation: _Evaluation, scale: Obj, history: ScaleHistory) -> tuple[int, str] | None:
        """The new number of replicas and the reason; None if the metrics give no result."""
        spec, current = evaluation.hpa["spec"], evaluation.current
        least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
        if current == 0 and least != 0:
            message = "scaling is disabled since the replica count of the target is zero"
            evaluation.set_condition("ScalingActive", "False", "ScalingDisabled", message)
            return 0, ""
        if current > most:
            return most, "Current number of replicas above Spec.MaxReplicas"
        if current < least:
            return least, "Current number of replicas below Spec.MinReplicas"
        best = await self._propose(evaluation, scale)
        if best is None:
            return None
        why = f"{best.name} above target" if best.replicas > current else "All metrics below target"
        limited = limit(spec, current, best.replicas, history, evaluation.now)
        evaluation.set_condition("AbleToScale", *limited.able)
        evaluation.set_condition("ScalingLimited", *limited.limited)
        return limited.replicas, why

    async def _propose(self, evaluation: _Evaluation, scale: Obj) -> Proposal | None:
        """The highest proposal. If one of several metrics is unavailable, the others can still scale up."""
        selector = (scale.get("status") or {}).get("selector") or ""
        if not selector:
            message = "the HPA target's scale is missing a selector"
            self._event(evaluation, True, "SelectorRequired", "selector is required")
            evaluation.set_condition("ScalingActive", "False", "InvalidSelector", message)
            return None
        spec, namespace = evaluation.hpa["spec"], evaluation.hpa["metadata"]["namespace"]
        target = ScaleTarget(
            namespace=namespace, selector=selector, replicas=evaluation.current,
            present=(scale.get("status") or {}).get("replicas", 0),
            pods=self._pods.select(parse(selector), namespace=namespace),
        )  # fmt: skip
        tolerance = rules_of(spec).tolerance
        found: list[Proposal] = []
        faults: list[MetricError] = []
        for metric in spec.get("metrics") or ():
            try:
                found.append(await self._proposals.of(metric, target, tolerance, evaluation.now))
            except MetricError as fault:
                faults.append(fault)
                self._event(evaluation, True, fault.reason, str(fault))
        evaluation.metrics = [each.status for each in found]
        best = max(found, key=lambda each: each.replicas, default=None)
        if best is None or (faults and best.replicas < evaluation.current):
            self._cannot(evaluation, faults, len(found) + len(faults))
            return None
        message = f"the HPA was able to successfully calculate a replica count from {best.name}"
        evaluation.set_condition("ScalingActive", "True", "ValidMetricFound", message)
        return best

    def _cannot(self, evaluation: _Evaluation, faults: list[MetricError], total: int) -> None:
        first = faults[0] if faults else MetricError("there are no metrics", "InvalidMetricSourceType")
        message = f"the HPA was unable to compute the replica count: {first}"
        evaluation.set_condition("ScalingActive", "False", first.reason, message)
        text = f"invalid metrics ({len(faults)} invalid out of {total}), first error is: {first}"
        self._event(evaluation, True, "FailedComputeMetricsReplicas", text)

    async def _scale(
        self, evaluation: _Evaluation, resource: ResourceClient, scale: Obj, why: str, history: ScaleHistory
    ) -> None:
        try:
            wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": evaluation.desired}}
            await resource.replace(wanted, subresource="scale")
        except (ApiError, TransportError) as error:
            self._event(
                evaluation, True, "FailedRescale", f"New size: {evaluation.desired}; reason: {why}; error: {error}"
            )
            message = f"the HPA controller was unable to update the target scale: {error}"
            evaluation.set_condition("AbleToScale", "False", "FailedUpdateScale", message)
            evaluation.desired = evaluation.current
            return
        message = f"the HPA controller was able to update the target scale to {evaluation.desired}"
        evaluation.set_condition("AbleToScale", "True", "SucceededRescale", message)
        self._event(evaluation, False, "SuccessfulRescale", f"New size: {evaluation.desired}; reason: {why}")
        remember(evaluation.hpa["spec"], history, evaluation.current, evaluation.desired, evaluation.now)
        evaluation.scaled_at = format_time(evaluation.now)
