"""When a revision is ready: pure decisions over what was reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.domain.gate import RowFacts, converged, finished_moves, passes, serving
from shoal.sync.keys import Place


def row(region: str = "eu", **fields: Any) -> RowFacts:
    given = {"needed": 2, "ready": 2, "applied": True, "desired_status": "running", "place": Place("c", "s")} | fields
    return RowFacts(id=f"top_{region}", region_id=region, region=region, **given)


rows = st.lists(
    st.builds(
        row,
        region=st.sampled_from(["eu", "us", "ap"]),
        needed=st.integers(0, 3),
        ready=st.integers(0, 3),
        applied=st.booleans(),
        desired_status=st.sampled_from(["running", "leaving", "stopped"]),
    ),
    max_size=5,
)


@pytest.mark.parametrize("fields", [{"applied": False}, {"ready": 1}, {"place": Place("", "")}])
def test_every_dimension_counts_not_only_the_image(fields: dict[str, Any]) -> None:
    assert row().healthy
    assert not row(**fields).healthy


@pytest.mark.parametrize(
    "change",
    [
        {"applied": False}, {"health": "unhealthy"}, {"running_image": ""}, {"running_image": "other"},
        {"available": 1},
    ],
)  # fmt: skip
def test_a_gateway_has_converged_when_every_dimension_has(change: dict[str, Any]) -> None:
    good = {"applied": True, "health": "healthy", "running_image": "i", "image": "i", "available": 2, "desired": 2}
    assert converged(**good)
    assert not converged(**(good | change))
    assert converged(**(good | {"image": "", "running_image": "other"})), "the agent chose it"


def test_one_of_three_regions_may_be_down() -> None:
    known = [row("eu"), row("us"), row("ap", ready=0)]
    assert passes(known, "allButOne")
    assert not passes(known, "all")
    assert not passes([row("eu"), row("us", ready=0), row("ap", ready=0)], "allButOne")


def test_a_single_region_must_be_healthy() -> None:
    assert passes([row()], "allButOne")
    assert not passes([row(ready=0)], "allButOne")


@settings(max_examples=200, deadline=None)
@given(known=rows, rule=st.sampled_from(["all", "allButOne", 1, 2]))
def test_a_revision_passes_only_with_a_healthy_region_and_more_health_never_hurts(
    known: list[RowFacts], rule: Any
) -> None:
    if passes(known, rule):
        assert any(each.done or not each.needed for each in known)
        assert passes([*known, row("eu")], rule) or "eu" not in {each.region for each in known}


def test_a_region_without_instances_decides_nothing() -> None:
    empty = row("eu", needed=0, ready=0)
    assert not passes([empty, row("us", ready=0)], "allButOne")
    assert passes([empty, row("us")], "all")
    assert passes([empty], "allButOne")
    assert not passes([row("eu", needed=0, ready=0, applied=False)], "allButOne")


@pytest.mark.parametrize("fields", [{"weight": 50}, {"alone": False}])
def test_a_region_is_done_when_its_exchange_has_ended(fields: dict[str, Any]) -> None:
    assert row().done
    assert not row(**fields).done
    assert not passes([row(**fields)], "allButOne")


def test_nothing_to_run_is_not_ready() -> None:
    assert not passes([], "allButOne")
    assert not passes([row(desired_status="stopped", needed=0, ready=0)], "allButOne")


def test_a_move_ends_when_the_new_row_is_healthy() -> None:
    assert not finished_moves([row(moved_from="top_old", ready=1)])
    assert finished_moves([row(moved_from="top_old"), row("us")])[0].region == "eu"


def test_traffic_needs_an_instance_not_only_a_healthy_row() -> None:
    assert serving([row(needed=0, ready=0)]) == {}
    assert set(serving([row(), row("us", ready=0)])) == {"eu"}
