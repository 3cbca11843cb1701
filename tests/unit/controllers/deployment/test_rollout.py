"""How a Deployment sizes its ReplicaSets: rolling steps within their bounds, proportional scaling, recreating."""

from __future__ import annotations

from typing import Any

import pytest
from deployment_world import World, make_deployment, make_set, rolling
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.deployment.model import bounds_of
from shoal.controllers.deployment.rollout import new_size


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (4, 0, "1%", (0, 1)),  # both come to nothing
        (2, "1%", "0%", (1, 0)),
        (5, 2, 3, (2, 3)),
        (3, 0, 10, (0, 3)),
        (0, "25%", 1, (0, 0)),
    ],
)
def test_surge_is_rounded_up_and_unavailability_down(
    replicas: int, surge: Any, unavailable: Any, expected: tuple[int, int]
) -> None:
    bounds = bounds_of(make_deployment(replicas, strategy=rolling(surge, unavailable)))
    assert (bounds.surge, bounds.unavailable) == expected


@pytest.mark.parametrize(
    ("present", "new", "size"), [(10, 0, 3), (13, 3, 3), (11, 3, 5), (8, 8, 10), (20, 0, 0), (0, 0, 10), (12, 12, 10)]
)
def test_the_new_one_grows_into_the_room_that_the_surge_leaves(present: int, new: int, size: int) -> None:
    bounds = bounds_of(make_deployment(10, strategy=rolling(3, 2)))
    assert new_size(bounds, present, new) == size


def rollout(
    new: int, new_available: int, old: int, old_available: int, surge: int = 3, unavailable: int = 2
) -> dict[str, int]:
    owner = make_deployment(10, image="app:2", strategy=rolling(surge, unavailable))
    world = World(
        owner,
        make_set(owner, "app:1", old, revision=1, available=old_available),
        make_set(owner, "app:2", new, revision=2, available=new_available),
    )
    world.step()
    return world.sizes()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # grow first
        ((0, 0, 10, 10), {"app:1": 10, "app:2": 3}),
        # at the limit: shrink what may be unavailable
        ((3, 0, 10, 10), {"app:1": 8, "app:2": 3}),
        ((3, 3, 10, 10), {"app:1": 5, "app:2": 3}),
        # new pods that never become available keep the old ones
        ((5, 0, 8, 8), {"app:1": 8, "app:2": 5}),
        # old pods that are broken go first
        ((3, 0, 10, 8), {"app:1": 8, "app:2": 3}),
        ((3, 0, 10, 5), {"app:1": 8, "app:2": 3}),
        ((10, 10, 3, 3), {"app:1": 0, "app:2": 10}),
        # one that is larger than wanted shrinks
        ((12, 12, 0, 0), {"app:1": 0, "app:2": 10}),
    ],
)
def test_one_rolling_step(state: tuple[int, int, int, int], expected: dict[str, int]) -> None:
    assert rollout(*state) == expected


def test_a_rollover_takes_pods_from_all_old_ones_the_oldest_first() -> None:
    owner = make_deployment(10, image="app:3", strategy=rolling(3, 2))
    world = World(
        owner,
        make_set(owner, "app:1", 8, revision=1),
        make_set(owner, "app:2", 5, revision=2, available=0),
        make_set(owner, "app:3", 0, revision=3),
    )
    world.step()
    assert world.sizes() == {"app:1": 8, "app:2": 0, "app:3": 0}


def test_a_rollback_uses_the_old_one_again() -> None:
    world = World(make_deployment(4))
    world.complete()
    world.roll("app:2")
    world.complete()
    world.roll("app:1")
    world.complete()
    assert world.sizes() == {"app:1": 4, "app:2": 0}


def test_recreating_waits_for_the_end_of_every_old_pod() -> None:
    world = World(make_deployment(3, strategy={"type": "Recreate"}))
    world.complete()
    world.roll("app:2")
    world.step()
    assert world.sizes() == {"app:1": 0}
    world.step()  # its ReplicaSet still reports pods
    assert world.sizes() == {"app:1": 0}
    world.settle()
    world.step(old_pods_run=True)  # and they take their time to end
    assert world.sizes() == {"app:1": 0}
    world.step(old_pods_run=False)
    assert world.sizes() == {"app:1": 0, "app:2": 3}


@pytest.mark.parametrize(
    ("sizes", "before", "after", "expected"),
    [
        # replicas, surge 3 of 10: grown in proportion
        ([8, 5], (10, 13), 20, [14, 9]),
        ([8, 5], (10, 13), 5, [5, 3]),
        # leftovers go to the largest; among equals up: the newest, down: the oldest
        ([5, 5], (8, 11), 9, [5, 7]),
        ([5, 5], (8, 10), 6, [4, 5]),
        ([8, 5], (10, 13), 0, [0, 0]),
    ],
)
def test_scaling_amid_a_rollout_keeps_the_proportions(
    sizes: list[int], before: tuple[int, int], after: int, expected: list[int]
) -> None:
    owner = make_deployment(after, image="app:2", strategy=rolling(3, 2))
    world = World(
        owner,
        make_set(owner, "app:1", sizes[0], revision=1, desired=before[0], most=before[1]),
        make_set(owner, "app:2", sizes[1], revision=2, desired=before[0], most=before[1]),
    )
    world.step()
    assert list(world.sizes().values()) == expected


def test_scaling_outside_of_a_rollout_scales_the_one_that_runs() -> None:
    world = World(make_deployment(3))
    world.complete()
    world.change(replicas=7)
    world.step()
    assert world.sizes() == {"app:1": 7}
    world.change(replicas=0)
    world.step()
    world.settle()
    world.change(replicas=2)
    world.complete()
    assert world.sizes() == {"app:1": 2}


def test_a_template_and_a_size_changed_at_once_both_come_true() -> None:
    world = World(make_deployment(3))
    world.complete()
    world.change(replicas=6)
    world.roll("app:2")
    world.complete()
    assert world.sizes() == {"app:1": 0, "app:2": 6}


def test_a_change_of_strategy_amid_a_rollout_and_a_scaling_does_not_get_stuck() -> None:
    world = World(make_deployment(10, strategy=rolling(3, 2)))
    world.complete()
    world.roll("app:2")
    world.step()
    world.settle()
    world.step()
    world.change(strategy={"type": "Recreate"}, replicas=4)
    world.complete()
    assert world.sizes() == {"app:1": 0, "app:2": 4}


AMOUNT = st.integers(0, 6) | st.sampled_from(["0%", "10%", "25%", "50%", "100%"])


@settings(max_examples=150)
@given(st.data())
def test_a_rollout_stays_within_its_bounds_and_ends(data: st.DataObject) -> None:
    """Pods become available in any order and templates change on the way; yet there are never too many pods and never
    too few available ones, and in the end all are new."""
    replicas = data.draw(st.integers(0, 12))
    strategy = rolling(data.draw(AMOUNT), data.draw(AMOUNT))
    world = World(make_deployment(replicas, strategy=strategy))
    world.complete()
    bounds = bounds_of(world.owner)
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.integers(0, 5)) == 0:
            world.roll(f"app:{data.draw(st.integers(1, 4))}")
        world.step()
        assert world.total <= bounds.most
        for name, each in list(world.sets.items()):
            known = each["status"].get("availableReplicas") or 0
            size = each["spec"]["replicas"]
            world.report(name, available=data.draw(st.integers(min(known, size), size)))
        assert world.available >= bounds.least_available
    world.complete(limit=200)
    wanted = world.owner["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {image: size for image, size in world.sizes().items() if size} == ({wanted: replicas} if replicas else {})


@settings(max_examples=150)
@given(st.data())
def test_scaling_at_any_moment_converges(data: st.DataObject) -> None:
    world = World(
        make_deployment(data.draw(st.integers(0, 10)), strategy=rolling(data.draw(AMOUNT), data.draw(AMOUNT)))
    )
    for _ in range(data.draw(st.integers(1, 15))):
        match data.draw(st.integers(0, 3)):
            case 0:
                world.change(replicas=data.draw(st.integers(0, 15)))
            case 1:
                world.roll(f"app:{data.draw(st.integers(1, 3))}")
            case 2:
                world.change(paused=data.draw(st.booleans()))
        world.step()
        assert all(each["spec"]["replicas"] >= 0 for each in world.sets.values())
        for name, each in list(world.sets.items()):
            world.report(name, available=data.draw(st.integers(0, each["spec"]["replicas"])))
    world.change(paused=False)
    world.complete(limit=200)
    wanted, replicas = (
        world.owner["spec"]["template"]["spec"]["containers"][0]["image"],
        world.owner["spec"]["replicas"],
    )
    assert {image: size for image, size in world.sizes().items() if size} == ({wanted: replicas} if replicas else {})
