"""The history of one object."""

from __future__ import annotations

from dataclasses import replace

from answers_world import the_world

from shoal.navigator.answers.changes import shown_moments

WORLD = the_world()


def test_the_history_of_an_object_shows_the_changed_fields() -> None:
    found = shown_moments(WORLD.history.moments)
    assert [each["change"] for each in found] == ["put", "changed", "removed"]
    assert found[1]["fields"] == [{"path": "spec.replicas", "before": 1, "after": 2}]


def test_the_first_change_shows_its_fields_when_the_state_before_is_known() -> None:
    earlier, later, removed = WORLD.history.moments
    found = shown_moments([replace(later, before=earlier.data), removed])
    assert [each["change"] for each in found] == ["changed", "removed"]
    assert found[0]["fields"] == [{"path": "spec.replicas", "before": 1, "after": 2}]
