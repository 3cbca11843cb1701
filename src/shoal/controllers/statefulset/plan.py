"""The next step of a StatefulSet: create in order, delete from the end, update from the end. Pure.

With ordered pods a step ends at the first pod that it must wait for; with parallel pods nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.controllers.pods.amounts import scaled
from shoal.controllers.pods.status import (
    is_available,
    is_ready,
    is_terminal,
    is_terminating,
    next_availability_s,
    phase_of,
)
from shoal.controllers.replicaset.plan import replicas_of
from shoal.controllers.revisions.plan import name_of, template_of
from shoal.controllers.statefulset.identity import (
    claim_names,
    in_range,
    is_stale,
    new_claims,
    new_pod,
    references_of,
    revision_of,
    with_identity,
)
from shoal.controllers.statefulset.model import (
    Action,
    CreateClaims,
    CreatePod,
    DeletePod,
    Refuse,
    StatefulSetPlan,
    UpdateClaim,
    UpdatePod,
    is_parallel,
    ordinal_of,
    start_of,
)
from shoal.kube.objects import Obj

FindClaim = Callable[[str], Obj | None]

STALE_S = 5.0  # how often to check whether a terminating claim is gone


def plan(
    owner: Obj,
    pods: Sequence[Obj],
    *,
    claim_of: FindClaim,
    current: Obj,
    update: Obj,
    collisions: int,
    now: float,
) -> StatefulSetPlan:
    """``pods`` belong to the set; ``current`` and ``update`` are the revisions that it rolls from and to."""
    step = _Step(owner, pods, claim_of, current, update, now)
    step.run()
    return StatefulSetPlan(
        actions=tuple(step.actions),
        parallel=step.parallel,
        status=step.status(collisions),
        recheck_s=step.recheck_s(),
    )


class _Step:
    def __init__(
        self, owner: Obj, pods: Sequence[Obj], claim_of: FindClaim, current: Obj, update: Obj, now: float
    ) -> None:
        self.owner, self.now, self.claim_of = owner, now, claim_of
        self.current, self.update = current, update
        self.parallel = is_parallel(owner)
        self.actions: list[Action] = []
        self._pods = pods
        self._min_ready_s = owner["spec"].get("minReadySeconds") or 0
        self._updating = 0  # pods that this step deletes to update them
        self._stale = False
        by_ordinal = {ordinal_of(pod): pod for pod in pods}
        start = start_of(owner)
        self._replicas = [by_ordinal.get(ordinal) for ordinal in range(start, start + replicas_of(owner))]
        self._condemned = [pod for _, pod in sorted(by_ordinal.items(), reverse=True) if not self._in_range(pod)]

    def _in_range(self, pod: Obj) -> bool:
        return in_range(self.owner, ordinal_of(pod))

    def _unavailable(self, pod: Obj | None) -> bool:
        return pod is None or is_terminating(pod) or not is_available(pod, self._min_ready_s, self.now)

    def run(self) -> None:
        for index, pod in enumerate(self._replicas):
            if self._replica(start_of(self.owner) + index, pod) and not self.parallel:
                return
        for pod in self._condemned:
            self._keep_claims_right(pod)
        for pod in self._condemned:
            if self._condemn(pod) and not self.parallel:
                return
        if (self.owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
            self._roll()

    # desired pods

    def _replica(self, ordinal: int, pod: Obj | None) -> bool:
        """Plan one pod; return whether the following pods must wait for it."""
        if pod is None:
            self._create(ordinal)
            return True
        if is_terminal(pod):
            if not is_terminating(pod):
                self.actions.append(DeletePod(pod))
            return True
        if phase_of(pod) == "Pending":
            missing = self._missing_claims(ordinal)
            if missing:
                self.actions.append(CreateClaims(pod, tuple(missing)))
        if self._unavailable(pod) and not self.parallel:
            return True
        self._keep_claims_right(pod)
        renamed = with_identity(pod)
        if renamed is not None:
            self.actions.append(UpdatePod(renamed))
        return False

    def _create(self, ordinal: int) -> None:
        pod = self._new_pod(ordinal)
        claims = [found for name in claim_names(self.owner, ordinal) if (found := self.claim_of(name)) is not None]
        if any(is_stale(self.owner, claim, pod) for claim in claims):
            self._stale = True
            return
        going = [claim["metadata"]["name"] for claim in claims if is_terminating(claim)]
        if going:
            self.actions.append(Refuse(pod, f"pvc {going[0]} is being deleted"))
            return
        self.actions.append(CreatePod(pod, tuple(self._missing_claims(ordinal))))

    def _new_pod(self, ordinal: int) -> Obj:
        """A new pod: below the partition with the current revision, from it on with the update revision."""
        strategy = self.owner["spec"].get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate")
        kept = 0
        if rolling is not None:
            kept = rolling.get("partition") or 0
        elif strategy.get("type") == "RollingUpdate":
            kept = (self.owner.get("status") or {}).get("currentReplicas") or 0
        revision = self.current if ordinal < start_of(self.owner) + kept else self.update
        return new_pod(self.owner, template_of(revision), name_of(revision), ordinal)

    def _missing_claims(self, ordinal: int) -> list[Obj]:
        return [each for each in new_claims(self.owner, ordinal) if self.claim_of(each["metadata"]["name"]) is None]

    def _keep_claims_right(self, pod: Obj) -> None:
        for name in claim_names(self.owner, ordinal_of(pod)):
            claim = self.claim_of(name)
            references = references_of(self.owner, claim, pod) if claim is not None else None
            if claim is not None and references is not None:
                about = {**claim["metadata"], "ownerReferences": references}
                self.actions.append(UpdateClaim(pod, {**claim, "metadata": about}))

    # surplus pods

    def _condemn(self, pod: Obj) -> bool:
        """Plan one pod; return whether the following pods must wait for it."""
        if is_terminating(pod):
            return True
        if self._unavailable(pod) and not self.parallel and pod is not self._first_unavailable():
            return True
        self.actions.append(DeletePod(pod))
        return True

    def _first_unavailable(self) -> Obj | None:
        ordered = [*self._replicas, *reversed(self._condemned)]
        return next((pod for pod in ordered if self._unavailable(pod)), None)

    # pods to update

    def _roll(self) -> None:
        rolling = (self.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        partition = rolling.get("partition") or 0
        allowed = max(1, scaled(rolling.get("maxUnavailable", 1), replicas_of(self.owner), round_up=False))
        budget = allowed - sum(map(self._unavailable, self._replicas))
        old = [
            pod
            for pod in reversed(self._replicas[partition:])
            if pod is not None and revision_of(pod) != name_of(self.update) and not is_terminating(pod)
        ]
        if self.parallel:
            for pod in filter(self._unavailable, old):  # already missing
                self._replace(pod)
            old = [pod for pod in old if not self._unavailable(pod)]
        for pod in old[: max(0, budget)]:
            self._replace(pod)

    def _replace(self, pod: Obj) -> None:
        if not is_terminal(pod):  # already deleted
            self.actions.append(DeletePod(pod))
        if revision_of(pod) == name_of(self.current):
            self._updating += 1

    # status

    def status(self, collisions: int) -> Obj:
        counts = {"replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "currentReplicas": 0, "updatedReplicas": 0}
        current, update = name_of(self.current), name_of(self.update)
        for pod in self._pods:
            if not phase_of(pod):
                continue
            counts["replicas"] += 1
            if phase_of(pod) == "Running" and is_ready(pod):
                counts["readyReplicas"] += 1
                counts["availableReplicas"] += is_available(pod, self._min_ready_s, self.now)
            if not is_terminating(pod):
                counts["currentReplicas"] += revision_of(pod) == current
                counts["updatedReplicas"] += revision_of(pod) == update
        counts["currentReplicas"] -= self._updating
        wanted = replicas_of(self.owner)
        if counts["updatedReplicas"] == counts["readyReplicas"] == counts["replicas"] == wanted:
            current, counts["currentReplicas"] = update, counts["updatedReplicas"]
        return _status(self.owner, counts, current, update, collisions)

    def recheck_s(self) -> float | None:
        waits = [next_availability_s(self._pods, self._min_ready_s, self.now), STALE_S if self._stale else None]
        return min((wait for wait in waits if wait is not None), default=None)


def _status(owner: Obj, counts: dict[str, int], current: str, update: str, collisions: int) -> Obj:
    status: dict[str, Any] = {
        "observedGeneration": owner["metadata"].get("generation") or 0,
        "replicas": counts["replicas"],
        "availableReplicas": counts["availableReplicas"],
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collisions,
    }
    status |= {name: counts[name] for name in ("readyReplicas", "currentReplicas", "updatedReplicas") if counts[name]}
    conditions = (owner.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = conditions
    return status
