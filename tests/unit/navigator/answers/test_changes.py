"""The history of one object."""

from __future__ import annotations

from answers_world import the_world

from shoal.navigator.answers.changes import shown_moments

WORLD = the_world()


def test_the_history_of_an_object_shows_the_changed_fields() -> None:
    found = shown_moments(WORLD.history.moments)
    assert [each["change"] for each in found] == ["put", "changed", "removed"]
    assert found[1]["fields"] == [{"path": "spec.replicas", "before": 1, "after": 2}]
