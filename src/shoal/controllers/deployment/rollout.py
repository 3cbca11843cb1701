"""Computes the next size of each ReplicaSet of a Deployment: rolling steps, recreating, scaling. Pure.

Sizes are keyed by the name of the ReplicaSet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.controllers.deployment.model import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    Bounds,
    available_of,
    number_of,
)
from shoal.controllers.deployment.replicasets import Family, by_age
from shoal.controllers.replicaset.plan import replicas_of
from shoal.kube.objects import Obj

Sizes = dict[str, int]


def name_of(obj: Obj) -> str:
    found: str = obj["metadata"]["name"]
    return found


def total(replica_sets: Sequence[Obj], count: Callable[[Obj], int] = replicas_of) -> int:
    return sum(map(count, replica_sets))


def new_size(bounds: Bounds, present: int, new: int) -> int:
    """The next size of the new ReplicaSet, now ``new``, when all together have ``present`` pods: as many as the surge
    allows, and no more than desired."""
    if new >= bounds.replicas:
        return bounds.replicas
    return new + max(0, min(bounds.most - present, bounds.replicas - new))


def scale_down_old(family: Family, bounds: Bounds) -> Sizes:
    """Scale down old ReplicaSets: first unavailable pods, then others as long as enough stay available. Unavailable
    pods of the new one do not count."""
    new, old = family.new, family.active_old
    if new is None or not old:
        return {}
    waiting = replicas_of(new) - available_of(new)
    budget = total(family.all) - bounds.least_available - waiting
    if budget <= 0:
        return {}
    sizes = {name_of(each): replicas_of(each) for each in old}
    for each in old:
        unhealthy = max(0, replicas_of(each) - available_of(each))
        taken = min(budget, unhealthy)
        sizes[name_of(each)] -= taken
        budget -= taken
    spare = total(old, available_of) + available_of(new) - bounds.least_available
    for each in old:
        taken = min(max(0, spare), sizes[name_of(each)])
        sizes[name_of(each)] -= taken
        spare -= taken
    return {name_of(each): sizes[name_of(each)] for each in old if sizes[name_of(each)] != replicas_of(each)}


def is_scaling(family: Family, bounds: Bounds) -> bool:
    """Whether the Deployment was scaled since its ReplicaSets were last sized."""
    wanted = (number_of(each, DESIRED_REPLICAS) for each in family.active)
    return any(each is not None and each != bounds.replicas for each in wanted)


def is_saturated(new: Obj | None, bounds: Bounds) -> bool:
    """Whether the new ReplicaSet has all the pods, all available, and was sized for them."""
    return (
        new is not None
        and replicas_of(new) == bounds.replicas == available_of(new)
        and number_of(new, DESIRED_REPLICAS) == bounds.replicas
    )


def scale(family: Family, bounds: Bounds, *, rolling: bool, present: int) -> Sizes:
    """The sizes for a Deployment that was scaled, unchanged ones included, because their annotations record the size of
    the Deployment. ``present`` is the number of pods in its status."""
    active = family.active
    if len(active) <= 1:
        one = active[0] if active else family.new or (family.old[-1] if family.old else None)
        return {} if one is None else {name_of(one): bounds.replicas}
    if is_saturated(family.new, bounds):
        return {name_of(each): 0 for each in family.active_old}
    return _proportions(active, bounds, present) if rolling else {name_of(each): replicas_of(each) for each in active}


def _proportions(active: Sequence[Obj], bounds: Bounds, present: int) -> Sizes:
    """Scale all ReplicaSets in proportion, so that scaling neither advances nor reverts a rollout."""
    allowed = bounds.most if bounds.replicas > 0 else 0
    difference = allowed - total(active)
    newest_first = sorted(active, key=by_age, reverse=difference > 0)
    ordered = sorted(newest_first, key=replicas_of, reverse=True)
    sizes = {name_of(each): replicas_of(each) for each in ordered}
    left = difference
    for each in ordered:
        if not left:
            break
        share = _share(each, bounds, present)
        taken = min(share, left) if difference > 0 else max(share, left)
        sizes[name_of(each)] += taken
        left -= taken
    if ordered:
        largest = name_of(ordered[0])
        sizes[largest] = max(0, sizes[largest] + left)
    return sizes


def _share(replica_set: Obj, bounds: Bounds, present: int) -> int:
    size = replicas_of(replica_set)
    if bounds.replicas == 0:
        return -size
    before = number_of(replica_set, MAX_REPLICAS) or present
    return _rounded(size * bounds.most, before) - size if before else 0


def _rounded(numerator: int, denominator: int) -> int:
    """The quotient rounded to the nearest integer, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)
