"""The next step of a Deployment: actions on its ReplicaSets, and the status. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.controllers.deployment import status as reports
from shoal.controllers.deployment.model import (
    NO_LIMIT,
    REVISION,
    Action,
    Bounds,
    CreateReplicaSet,
    DeleteReplicaSet,
    DeploymentPlan,
    UpdateReplicaSet,
    actual_of,
    annotation_of,
    bounds_of,
    progress_deadline_s,
)
from shoal.controllers.deployment.replicasets import (
    Family,
    annotations_of_new,
    by_revision,
    family_of,
    new_replica_set,
    next_revision,
    replicas_annotations,
)
from shoal.controllers.deployment.rollout import Sizes, is_scaling, name_of, new_size, scale, scale_down_old, total
from shoal.controllers.pods.conditions import find_condition
from shoal.controllers.pods.status import is_terminating
from shoal.controllers.replicaset.plan import replicas_of
from shoal.kube.objects import Obj


def plan(deployment: Obj, replica_sets: Sequence[Obj], *, old_pods_run: bool, now: float) -> DeploymentPlan:
    """``replica_sets`` are those that the Deployment controls; ``old_pods_run`` is whether pods of old ReplicaSets
    still run, used only by Recreate."""
    family = family_of(deployment, replica_sets)
    if is_terminating(deployment):
        return DeploymentPlan(status=reports.plan_counts(deployment, family, reports.conditions_of(deployment), now))
    bounds = bounds_of(deployment)
    step = _Step(deployment, family, bounds, now)
    if deployment["spec"].get("paused"):
        return step.scaled(clean=True)
    if is_scaling(family, bounds):
        return step.scaled(clean=False)
    if step.rolling:
        return step.rolled()
    return step.recreated(old_pods_run)


class _Step:
    """A step being planned: the resulting family, and the actions that lead to it."""

    def __init__(self, deployment: Obj, family: Family, bounds: Bounds, now: float) -> None:
        self.deployment = deployment
        self.bounds = bounds
        self.now = now
        self.rolling = (deployment["spec"].get("strategy") or {}).get("type") == "RollingUpdate"
        self._observed = {each["metadata"]["name"]: each for each in family.all}
        self._present: dict[str, Obj] = dict(self._observed)
        self._new = name_of(family.new) if family.new is not None else ""
        self._created = False
        self._deleted: list[Obj] = []
        self._conditions = reports.paused_conditions(deployment, reports.conditions_of(deployment), now)
        self._revision = ""
        if family.new is not None:
            self._found(family.new, family)

    @property
    def family(self) -> Family:
        """The family after the actions so far."""
        new = self._present.get(self._new)
        return Family(new, tuple(each for name, each in self._present.items() if name != self._new))

    # the kinds of steps

    def scaled(self, *, clean: bool) -> DeploymentPlan:
        """A step that only changes sizes: the Deployment was scaled, or is paused."""
        family = self.family
        status = self.deployment.get("status") or {}
        sizes = scale(family, self.bounds, rolling=self.rolling, present=status.get("replicas") or 0)
        self._resize(sizes, annotate=True)
        if clean:
            self._clean()
        counted = reports.plan_counts(self.deployment, self.family, self._conditions, self.now)
        return self._decision(counted, None)

    def rolled(self) -> DeploymentPlan:
        """A rolling step: scale up the new ReplicaSet, or else scale down the old ones."""
        if not self._new:
            self._create(new_size(self.bounds, total(self.family.all), 0))
        new = self._present[self._new]
        size = new_size(self.bounds, total(self.family.all), replicas_of(new))
        grown = self._resize({self._new: size})
        if not grown and not self._resize(scale_down_old(self.family, self.bounds)):
            self._clean_if_complete()
        return self._with_progress()

    def recreated(self, old_pods_run: bool) -> DeploymentPlan:
        """A step of Recreate: scale all old ReplicaSets to 0; scale up the new one when none of their pods runs."""
        family = self.family
        if self._resize({name_of(each): 0 for each in family.active_old}):
            return self._with_progress()
        if old_pods_run or any(actual_of(each) for each in family.old):
            return self._with_progress()
        if not self._new:
            self._create(self.bounds.replicas)
        self._resize({self._new: self.bounds.replicas})
        self._clean_if_complete()
        return self._with_progress()

    # parts of steps

    def _found(self, new: Obj, family: Family) -> None:
        """The new ReplicaSet exists: its annotations and its minReadySeconds follow the Deployment."""
        revision = next_revision(family.old)
        annotations = annotations_of_new(self.deployment, new, revision)
        min_ready_s = self.deployment["spec"].get("minReadySeconds") or 0
        spec = new["spec"]
        if min_ready_s != (spec.get("minReadySeconds") or 0):
            spec = {**spec, "minReadySeconds": min_ready_s}
        if spec is not new["spec"] or annotations != (new["metadata"].get("annotations") or {}):
            about = {**new["metadata"], "annotations": annotations}
            self._present[self._new] = {**new, "metadata": about, "spec": spec}
        self._revision = annotations.get(REVISION, "")
        if progress_deadline_s(self.deployment) is not None:
            if find_condition(self._conditions, reports.PROGRESSING) is None:
                self._conditions = reports.found_conditions(self._conditions, self._new, self.now)

    def _create(self, replicas: int) -> None:
        revision = next_revision(self.family.old)
        made = new_replica_set(self.deployment, replicas, revision, self.bounds)
        self._new, self._created, self._revision = name_of(made), True, str(revision)
        self._present[self._new] = made
        if progress_deadline_s(self.deployment) is not None:
            self._conditions = reports.created_conditions(self._conditions, self._new, self.now)

    def _resize(self, sizes: Sizes, *, annotate: bool = False) -> bool:
        """Set the sizes of ReplicaSets; return whether any changed. With ``annotate`` unchanged ones also get the
        annotation of the desired size."""
        resized = False
        for name, size in sizes.items():
            each = self._present[name]
            differs = replicas_of(each) != size
            if not differs and not annotate:
                continue
            annotations = {**(each["metadata"].get("annotations") or {}), **replicas_annotations(self.bounds)}
            self._present[name] = {
                **each,
                "metadata": {**each["metadata"], "annotations": annotations},
                "spec": {**each["spec"], "replicas": size},
            }
            resized = resized or differs
        return resized

    def _clean_if_complete(self) -> None:
        if reports.is_complete(self.deployment, self.deployment.get("status") or {}):
            self._clean()

    def _clean(self) -> None:
        """Delete the oldest of the old ReplicaSets beyond the limit of the history, if they have no pods."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        if limit is None or limit == NO_LIMIT:
            return
        old = sorted((each for each in self.family.old if not is_terminating(each)), key=by_revision)
        self._deleted += [each for each in old[: max(0, len(old) - limit)] if _is_empty(each)]

    # the end

    def _with_progress(self) -> DeploymentPlan:
        status, recheck_s = reports.plan_rollout_status(self.deployment, self.family, self._conditions, self.now)
        return self._decision(status, recheck_s)

    def _decision(self, status: Obj, recheck_s: float | None) -> DeploymentPlan:
        actions: list[Action] = []
        for name, each in self._present.items():
            before = self._observed.get(name)
            if before is None:
                actions.append(CreateReplicaSet(each))
            elif each is not before and each != before:
                actions.append(UpdateReplicaSet(each, replicas_of(before)))
        actions += map(DeleteReplicaSet, self._deleted)
        revision = self._revision if self._revision != annotation_of(self.deployment, REVISION) else ""
        return DeploymentPlan(actions=tuple(actions), status=status, revision=revision, recheck_s=recheck_s)


def _is_empty(replica_set: Obj) -> bool:
    about, status = replica_set["metadata"], replica_set.get("status") or {}
    observed = (about.get("generation") or 0) <= (status.get("observedGeneration") or 0)
    return observed and not actual_of(replica_set) and not replicas_of(replica_set)


def is_desired(deployment: Obj, found: Obj) -> bool:
    """Whether a ReplicaSet with the name of the new one is the new one, or a hash collision."""
    family = family_of(deployment, (found,))
    owners = found["metadata"].get("ownerReferences") or ()
    return family.new is not None and any(
        each.get("controller") and each["uid"] == deployment["metadata"]["uid"] for each in owners
    )
