"""Decides the next step of an exchange of revisions in a region.

    more instances of the new one ─▶ they are ready ─▶ weight moves to it ─▶ gateways acknowledge ─▶ fewer of the old

A revision gets no more weight than its ready instances carry. Ready instances and those of the old revisions together
never are fewer than wanted, and never more than wanted plus the surge. An instance of an old revision goes only when no
gateway may send requests to it: *routed* is the most that some gateway may still send, and it falls to the weight when
all gateways have acknowledged. Deciding twice from the same facts gives the same.

A rollout may set a *goal*: then the new revision gets no more than that, and the stable one keeps all its instances.
Where nothing stable is left to protect, the goal does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.control.rollout.model import Lead, RegionFacts, RegionGoal, RevisionFacts, RevisionStep


def surge_of(size: int, surge: int | str = "25%") -> int:
    """How many instances more there may be: a number, or percents of ``size``; at least one."""
    if isinstance(surge, int):
        return max(1, surge)
    return max(1, -(-size * int(surge.removesuffix("%")) // 100))


def led_to(leads: Iterable[Lead]) -> str:
    """The revision that gateways of regions without instances lead to: the one that gets most in a region that has
    some. Between equals it is the older one, which all gateways know."""
    known = [each for each in leads if each.routed]
    return max(known, key=lambda each: (each.routed, -each.revision)).id if known else ""


def step(region: RegionFacts) -> tuple[RevisionStep, ...]:
    """The next state of every revision of a region, in the order in which they were given."""
    if region.goal is not None and region.goal.stays:
        return tuple(
            RevisionStep(id=each.id, weight=each.weight, routed=each.routed, count=each.count)
            for each in region.revisions
        )
    stable = _stable(region)
    new = next((each for each in region.revisions if each.is_wanted), None)
    goal = region.goal if stable is not None and new is not None and not new.is_halted and region.size else None
    if not region.size:
        weights = dict.fromkeys((each.id for each in region.revisions), 0)
    elif goal is not None and stable is not None and new is not None:
        weights = _granted_weights(region, goal, new, stable)
    else:
        weights = _weights(region)
    routed = {each.id: max(each.routed, weights[each.id]) for each in region.revisions}
    if goal is not None and stable is not None and new is not None:
        counts, is_promoted = _granted_counts(region, goal, new, stable, routed), _is_promoted(region, goal, new)
    else:
        counts, is_promoted = _counts(region, routed), False
    return tuple(
        RevisionStep(
            id=each.id,
            weight=weights[each.id],
            routed=routed[each.id],
            count=counts[each.id],
            is_free=is_promoted if each.is_wanted else not is_promoted and counts[each.id] >= region.size,
            removed=not each.is_wanted and not each.is_held and not counts[each.id] and not routed[each.id],
        )
        for each in region.revisions
    )


def _stable(region: RegionFacts) -> RevisionFacts | None:
    """What a goal protects: it gets requests, or did so before the new revision got all of them."""
    return next((each for each in region.revisions if each.is_stable and not each.is_wanted), None)


def _granted_weights(
    region: RegionFacts, goal: RegionGoal, new: RevisionFacts, stable: RevisionFacts
) -> dict[str, int]:
    weights = dict.fromkeys((each.id for each in region.revisions), 0)
    ready = min(new.ready, region.size)
    carried = 100 * ready // region.size
    others = any(each.routed for each in region.revisions if each.id not in (new.id, stable.id))
    if goal.recreates or (goal.keeps and new.weight == 100):
        granted = 100 if ready else 0
    elif not stable.ready and ready:
        granted = 100  # nothing else answers
    elif ready < min(goal.count, region.size) or others:
        # a batch that is not complete changes routes only downwards, and so do gateways that lead to a third revision
        granted = min(goal.weight, carried, new.weight)
    else:
        granted = min(goal.weight, carried)
    weights[new.id], weights[stable.id] = granted, 100 - granted
    return weights


def _granted_counts(
    region: RegionFacts, goal: RegionGoal, new: RevisionFacts, stable: RevisionFacts, routed: dict[str, int]
) -> dict[str, int]:
    counts = {
        each.id: each.count if each.is_held and not routed[each.id] else _slots(routed[each.id], region.size)
        for each in region.revisions
    }
    if goal.recreates:
        running = sum(each.ready for each in region.revisions if not each.is_wanted)
        counts[stable.id], counts[new.id] = 0, 0 if running and not new.ready else region.size
    else:
        counts[stable.id] = region.size
        counts[new.id] = max(goal.count, counts[new.id])
    return counts


def _is_promoted(region: RegionFacts, goal: RegionGoal, new: RevisionFacts) -> bool:
    """Whether the new revision has everything: its own replicas or autoscaler decide then, and not the stable one's."""
    return goal.weight == 100 == new.weight and (goal.keeps or new.ready >= region.size)


def _weights(region: RegionFacts) -> dict[str, int]:
    size = region.size
    new, olds = _split(region)
    ready = {each.id: min(each.ready, size) for each in region.revisions if not each.is_halted}
    total = sum(ready.values())
    if not total:
        return {each.id: each.weight for each in region.revisions}
    slots = dict.fromkeys((each.id for each in region.revisions), 0)
    if new is not None and not new.is_halted:
        slots[new.id] = _carried(new, ready[new.id], size, sum(ready.get(each.id, 0) for each in olds))
    if total < size:
        slots |= {id_: count for id_, count in ready.items() if new is None or id_ != new.id}
    else:
        left = size - sum(slots.values())
        for each in olds:
            slots[each.id] = min(ready.get(each.id, 0), left)
            left -= slots[each.id]
    return _percents(slots)


def _carried(new: RevisionFacts, ready: int, size: int, others: int) -> int:
    """How many of its ready instances get requests: all when the batch is complete, so that each batch changes routes
    once; before, those that do already, and what the others cannot carry."""
    if ready >= min(new.count, size):
        return ready
    return min(ready, max(_slots(new.weight, size), size - others))


def _counts(region: RegionFacts, routed: dict[str, int]) -> dict[str, int]:
    size = region.size
    new, olds = _split(region)
    ready = 0 if new is None or new.is_halted else min(new.ready, size)
    counts: dict[str, int] = {}
    for each in olds:
        needed = _slots(routed[each.id], size)
        counts[each.id] = each.count if each.is_held and not needed else needed
    left = size - ready - sum(counts.values())  # capacity that only old ones can give, of those that get requests
    serving = [each for each in olds if routed[each.id]]
    for each in serving:
        more = max(0, min(left, each.count - counts[each.id]))
        counts[each.id] += more
        left -= more
    if serving and left > 0:
        counts[serving[0].id] += left
    if new is not None:
        room = size + region.surge - sum(counts.values())
        carrying = min(new.ready, _slots(routed[new.id], size))  # of one that was wanted before and gets requests still
        counts[new.id] = 0 if new.is_halted else max(min(size, max(room, 1)), carrying)
    return counts


def _split(region: RegionFacts) -> tuple[RevisionFacts | None, list[RevisionFacts]]:
    """The new revision, and the old ones: first those that gateways send most to."""
    new = next((each for each in region.revisions if each.is_wanted), None)
    olds = [each for each in region.revisions if not each.is_wanted]
    return new, sorted(olds, key=lambda each: (-each.routed, -each.weight, -each.revision))


def _slots(weight: int, size: int) -> int:
    """How many instances carry so many percent of the requests; at least one carries any."""
    return max(1, round(weight * size / 100)) if weight and size else 0


def _percents(slots: dict[str, int]) -> dict[str, int]:
    """Shares as whole percents that add up to 100."""
    total = sum(slots.values())
    if not total:
        return dict.fromkeys(slots, 0)
    exact = {id_: 100 * count / total for id_, count in slots.items()}
    found = {id_: int(share) for id_, share in exact.items()}
    order: Sequence[str] = sorted(exact, key=lambda id_: found[id_] - exact[id_])
    for id_ in order[: 100 - sum(found.values())]:
        found[id_] += 1
    return found
