"""The exchange of revisions in a region, step by step, and what holds whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.model import RegionFacts, RevisionFacts, RevisionStep
from shoal.control.rollout.plan import led_to, step, surge_of


def old(id_: str = "v1", *, size: int, revision: int = 1, **fields: object) -> RevisionFacts:
    facts = RevisionFacts(
        id=id_, revision=revision, weight=100, routed=100, count=size, ready=size, is_wanted=False
    )  # fmt: skip
    return replace(facts, **fields)


def new(id_: str = "v2", *, revision: int = 2, **fields: object) -> RevisionFacts:
    facts = RevisionFacts(id=id_, revision=revision, weight=0, routed=0, count=0, ready=0, is_wanted=True)
    return replace(facts, **fields)


def region(size: int, *revisions: RevisionFacts, surge: int = 0) -> RegionFacts:
    return RegionFacts(size=size, surge=surge or surge_of(size), revisions=revisions)


def acknowledged(revisions: Iterable[RevisionFacts]) -> tuple[RevisionFacts, ...]:
    """The same after every gateway of the region has taken the newest routes."""
    return tuple(replace(each, routed=each.weight) for each in revisions)


def counts(steps: tuple[RevisionStep, ...]) -> dict[str, int]:
    return {each.id: each.count for each in steps}


def weights(steps: tuple[RevisionStep, ...]) -> dict[str, int]:
    return {each.id: each.weight for each in steps}


def taken(facts: RegionFacts, steps: tuple[RevisionStep, ...]) -> RegionFacts:
    """The facts after a step was carried out."""
    kept = {each.id: each for each in steps if not each.removed}
    revisions = tuple(
        replace(each, weight=kept[each.id].weight, routed=kept[each.id].routed, count=kept[each.id].count)
        for each in facts.revisions
        if each.id in kept
    )
    return replace(facts, revisions=revisions)


def test_a_region_exchanges_instances_within_its_surge_batch_by_batch() -> None:
    facts = region(10, old(size=10), new())
    seen: list[tuple[int, int, int]] = []
    for _ in range(20):
        before = facts
        facts = taken(facts, step(facts))
        facts = replace(facts, revisions=tuple(replace(each, ready=each.count) for each in facts.revisions))
        facts = replace(facts, revisions=acknowledged(facts.revisions))
        by_id = {each.id: each for each in facts.revisions}
        seen.append((by_id["v1"].count if "v1" in by_id else 0, by_id["v2"].count, by_id["v2"].weight))
        if facts == before:
            break
    assert seen[:5] == [(10, 3, 0), (10, 3, 30), (7, 6, 30), (7, 6, 60), (4, 9, 60)]
    assert seen[-1] == (0, 10, 100)
    assert [each.id for each in facts.revisions] == ["v2"]


def test_a_revision_gets_no_requests_before_it_is_ready() -> None:
    facts = taken(region(2, old(size=2), new()), step(region(2, old(size=2), new())))
    assert weights(step(facts)) == {"v1": 100, "v2": 0}
    assert counts(step(facts)) == {"v1": 2, "v2": 1}


def test_weight_moves_when_a_batch_is_complete_and_falls_with_the_ready_instances() -> None:
    assert weights(step(region(10, old(size=10), new(count=3, ready=2)))) == {"v1": 100, "v2": 0}
    assert weights(step(region(10, old(size=10), new(count=3, ready=3)))) == {"v1": 70, "v2": 30}
    falling = region(10, old(size=10, count=7, ready=7, weight=70, routed=70), new(count=6, ready=1, weight=30))
    assert weights(step(falling))["v2"] == 12  # of 8 that are ready, its one
    assert counts(step(falling))["v1"] == 9


def test_an_old_instance_stays_until_the_gateways_have_acknowledged() -> None:
    unheard = region(2, old(size=2, weight=50, routed=100), new(count=1, ready=1, weight=50, routed=50))
    assert counts(step(unheard)) == {"v1": 2, "v2": 1}
    heard = replace(unheard, revisions=acknowledged(unheard.revisions))
    assert counts(step(heard)) == {"v1": 1, "v2": 2}


def test_the_old_revision_is_removed_only_when_no_gateway_may_lead_to_it() -> None:
    after = (old(size=1, weight=0, routed=100), new(count=1, ready=1, weight=100, routed=100))
    assert not any(each.removed for each in step(region(1, *after)))
    held = tuple(replace(each, is_held=not each.is_wanted) for each in acknowledged(after))
    kept = step(region(1, *held))
    assert (counts(kept)["v1"], any(each.removed for each in kept)) == (1, False)
    assert [each.id for each in step(region(1, *acknowledged(after))) if each.removed] == ["v1"]


def test_a_dead_old_revision_gives_its_requests_to_what_is_ready() -> None:
    facts = region(10, old(size=10, ready=0), new(count=3, ready=1))
    assert weights(step(facts)) == {"v1": 0, "v2": 100}


def test_a_halted_revision_leaves_everything_to_the_old_one() -> None:
    facts = region(4, old(size=4, count=3, ready=3), new(count=1, ready=0, is_halted=True))
    assert counts(step(facts)) == {"v1": 4, "v2": 0}
    assert weights(step(facts)) == {"v1": 100, "v2": 0}
    assert not any(each.removed for each in step(facts))


def test_a_first_revision_gets_everything_once_an_instance_is_ready() -> None:
    assert weights(step(region(3, new(count=3)))) == {"v2": 0}
    assert weights(step(region(3, new(count=3, ready=1)))) == {"v2": 100}
    assert counts(step(region(3, new()))) == {"v2": 3}


def test_an_old_revision_that_never_got_requests_goes_at_once() -> None:
    facts = region(2, old(size=2, weight=0, routed=0, ready=0), new())
    assert [(each.id, each.count, each.removed) for each in step(facts)] == [("v1", 0, True), ("v2", 2, False)]


def test_a_region_without_instances_has_no_weights_and_removes_the_old_revision() -> None:
    facts = region(0, old(size=0, weight=0, routed=0), new())
    assert [(each.weight, each.count, each.removed) for each in step(facts)] == [(0, 0, True), (0, 0, False)]


def test_regions_without_instances_lead_to_the_revision_that_gets_most() -> None:
    assert led_to(region(2, old(size=2), new()).leads()) == "v1"
    unheard = region(1, old(size=1, weight=0, routed=100), new(count=1, ready=1, weight=100, routed=100))
    assert led_to(unheard.leads()) == "v1"
    assert led_to(replace(unheard, revisions=acknowledged(unheard.revisions)).leads()) == "v2"
    assert led_to(region(0, new(weight=100, routed=100)).leads()) == ""


def test_the_surge_is_at_least_one() -> None:
    assert [surge_of(size) for size in (0, 1, 4, 5, 10, 100)] == [1, 1, 1, 2, 3, 25]
    assert [surge_of(10, "50%"), surge_of(10, 2), surge_of(10, "0%")] == [5, 2, 1]


SIZES = st.integers(1, 120)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ready"), st.integers(0, 2), st.integers(0, 120)),
        st.tuples(st.just("lost"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("acknowledged"), st.just(0), st.just(0)),
        st.tuples(st.just("step"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(size=SIZES, events=EVENTS, third=st.booleans())
def test_whatever_happens_no_revision_is_overloaded_and_the_wanted_capacity_is_told(
    size: int, events: list[tuple[str, int, int]], third: bool
) -> None:
    revisions = (old(size=size), new())
    if third:  # a newer one comes while two are exchanged
        half = size // 2
        revisions = (
            old(size=size, count=size - half, ready=size - half, weight=60, routed=60),
            old("v2", size=size, revision=2, count=half, ready=half, weight=40, routed=40),
            new("v3", revision=3),
        )
    facts = region(size, *revisions)
    for kind, which, amount in events:
        facts = _after(facts, kind, which, amount)
        if kind == "step":
            before, steps = facts, step(facts)
            _check_step(before, steps)
            facts = taken(facts, steps)
            assert step(facts) == tuple(each for each in steps if not each.removed), "doing it twice does the same"
    facts = _finish(facts)
    assert [(each.is_wanted, each.weight, each.count) for each in facts.revisions] == [(True, 100, size)]


def _after(facts: RegionFacts, kind: str, which: int, amount: int) -> RegionFacts:
    found = list(facts.revisions)
    if kind == "acknowledged":
        return replace(facts, revisions=acknowledged(found))
    if kind in ("ready", "lost") and which < len(found):
        one = found[which]
        ready = min(one.count, one.ready + amount) if kind == "ready" else max(0, one.ready - amount)
        found[which] = replace(one, ready=ready)
    return replace(facts, revisions=tuple(found))


def _check_step(before: RegionFacts, steps: tuple[RevisionStep, ...]) -> None:
    size, known = before.size, {each.id: each for each in before.revisions}
    ready = {each.id: min(each.ready, size) for each in before.revisions}
    total = sum(ready.values())
    assert sum(each.weight for each in steps) in ((100,) if total else (0, 100))
    new_id = next(each.id for each in before.revisions if each.is_wanted)
    if total:
        carried = min(total, size)
        for each in steps:  # as whole percents
            assert each.weight * carried < 100 * ready[each.id] + carried + 1
    for each in steps:
        facts = known[each.id]
        if each.id != new_id and each.count < facts.count:
            assert each.count >= round(facts.routed * size / 100), "a gateway may still send more than that carries"
        if each.removed:
            assert (facts.routed, each.weight) == (0, 0)
    olds = sum(each.count for each in steps if each.id != new_id)
    if any(each.routed for each in steps if each.id != new_id):
        assert olds + ready[new_id] >= size
    told = next(each.count for each in steps if each.id == new_id)
    assert told == 1 or olds + told <= size + before.surge


def _finish(facts: RegionFacts) -> RegionFacts:
    """Everything becomes ready, and every gateway acknowledges."""
    for _ in range(60):
        facts = taken(facts, step(facts))
        ready = tuple(replace(each, ready=each.count) for each in facts.revisions)
        facts = replace(facts, revisions=acknowledged(ready))
    return facts
