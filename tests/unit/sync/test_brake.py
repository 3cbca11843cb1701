"""Deleting a few objects is normal, deleting many at once is held back until a person agrees."""

from __future__ import annotations

from shoal.sync.brake import DeletionBrake


def delete(brake: DeletionBrake, count: int, known: int, now: float, prefix: str = "k") -> int:
    return sum(brake.allow(f"{prefix}{n}", now, known - n) for n in range(count))


def test_five_of_a_few_pass_and_the_sixth_is_held() -> None:
    brake = DeletionBrake()
    assert delete(brake, 6, 10, 0.0) == 5
    assert brake.held == ["k5"]
    assert "wait" in brake.reason()


def test_a_tenth_of_many_passes() -> None:
    brake = DeletionBrake()
    assert delete(brake, 101, 1000, 0.0) == 100
    assert brake.held == ["k100"]


def test_it_forgets_after_ten_minutes_what_it_let_through_but_not_what_it_holds() -> None:
    brake = DeletionBrake()
    delete(brake, 5, 10, 0.0)
    assert delete(brake, 5, 10, 600.0, "later") == 5
    assert not brake.allow("one", 600.0, 10)
    assert not brake.allow("other", 5000.0, 10)
    assert brake.held == ["one", "other"]


def test_the_same_deletion_tried_again_counts_once() -> None:
    brake = DeletionBrake()
    assert all(brake.allow("a", float(second), 10) for second in range(20))


def test_a_person_releases_what_is_held() -> None:
    brake = DeletionBrake()
    delete(brake, 8, 10, 0.0)
    assert brake.confirm(1.0) == ["k5", "k6", "k7"]
    assert all(brake.allow(key, 2.0, 10) for key in ("k5", "k6", "k7"))
    assert brake.reason() == ""


def test_a_key_that_is_wanted_again_is_not_held_any_more() -> None:
    brake = DeletionBrake()
    delete(brake, 6, 10, 0.0)
    brake.forget("k5")
    assert brake.held == []
