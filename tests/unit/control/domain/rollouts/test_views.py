"""A rollout in a word, in a sentence and in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, a_fleet, an_app
from rollout_world import APP, CANARY, play, rollout, served

from shoal.control.database.tables import Rollout
from shoal.control.domain.rollouts.views import rollout_brief, rollout_details, rollout_json, rollout_sentence
from shoal.control.rollout.progress import ENDED, FROZEN, GOING_BACK, KEEPING, ROLLED_BACK, SUPERSEDED, Progress
from shoal.control.rollout.progress_json import progress_as_json
from shoal.control.rollout.strategy import StepSpec, Strategy
from shoal.control.rollout.strategy_json import strategy_as_json

NOW = 1_700_000_000_000
STEPS = (StepSpec(kind="weight", percent=25), StepSpec(kind="pause", seconds=60), StepSpec(kind="pause"))
STRATEGY = Strategy(kind="canary", is_configured=True, steps=STEPS, hold_limit_s=3600)
AT = Progress(waves=(("reg_us",), ("reg_eu",)), specs=(-1, -1), step=1, settled_ms=NOW, hold="pause takes 60 s")
WHY = "5.2 % of 1 240 requests to revision 2 failed in us, 0.0 % of 23 560 to revision 1"


def a_row(progress: Progress, strategy: Strategy = STRATEGY) -> Rollout:
    return Rollout(
        id="rol_1", number=3, revision=2, stable_revision=1, strategy=strategy_as_json(strategy), phase=progress.phase,
        outcome=progress.outcome, progress=progress_as_json(progress), due_at=NOW + 5000, actor="ann", correlation="",
        created_at=NOW, updated_at=NOW, ended_at=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("progress", "sentence"),
    [
        (AT, "rollout 3 from revision 1 to 2 (step 2 of 3, wave 1 of 2, weight 25 %): pause takes 60 s"),
        (
            replace(AT, is_paused=True),
            "rollout 3 from revision 1 to 2 (step 2 of 3, wave 1 of 2, weight 25 %): paused by a person",
        ),
        (replace(AT, phase=GOING_BACK, failure=WHY), f"rollout 3 goes back to revision 1: {WHY}"),
        (replace(AT, phase=ENDED, outcome=ROLLED_BACK, failure=WHY), f"rollout 3 went back: {WHY}"),
        (
            replace(AT, phase=FROZEN, failure=WHY),
            f"rollout 3 is frozen: {WHY}; `shoal rollout resume`, `promote` or `abort` ends this",
        ),
        (
            replace(AT, phase=KEEPING, kept_until_ms=NOW),
            "rollout 3 is promoted; revision 1 is kept until 2023-11-14T22:13:20Z",
        ),
        (replace(AT, phase=ENDED, outcome=SUPERSEDED), ""),
    ],
)
def test_one_sentence_says_what_it_waits_for_or_why_it_went_back(progress: Progress, sentence: str) -> None:
    assert rollout_sentence(a_row(progress)).replace(".000Z", "Z").replace("+00:00", "Z") == sentence


@pytest.mark.parametrize(
    ("progress", "strategy", "weight"),
    [
        (AT, STRATEGY, 25),
        (replace(AT, step=3), STRATEGY, 100),
        (replace(AT, is_hurried=True), STRATEGY, 100),
        (replace(AT, phase=GOING_BACK), STRATEGY, 0),
        (replace(AT, phase=ENDED, outcome=ROLLED_BACK), STRATEGY, 0),
        (AT, Strategy(), 100),
    ],
)
def test_the_weight_is_that_of_the_regions_whose_turn_it_is(
    progress: Progress, strategy: Strategy, weight: int
) -> None:
    assert rollout_brief(a_row(progress, strategy))["weight"] == weight


def test_the_step_has_an_end_where_time_ends_it_and_the_hold_has_its_limit() -> None:
    def shown(progress: Progress) -> tuple[Any, Any]:
        found = rollout_details(a_row(progress), {}, {}, [], {})
        return found["stepUntil"], found["holdEndsAt"]

    until, limit = shown(AT)
    assert (until[:19], limit) == ("2023-11-14T22:14:20", "")
    assert shown(replace(AT, settled_ms=0)) == ("", "")
    until, limit = shown(replace(AT, step=2, held_ms=NOW))
    assert (until, limit[:19]) == ("", "2023-11-14T23:13:20")
    assert shown(replace(AT, is_paused=True))[0] == ""


def test_the_line_of_the_history_has_no_progress() -> None:
    found = rollout_json(a_row(AT))
    assert (found["number"], found["phase"], found["configured"], found["reason"]) == (
        3, "running", True, "pause takes 60 s",
    )  # fmt: skip


async def test_status_has_the_rollout_that_is_under_way_and_explain_says_why_one_went_back(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=4)
        (before,) = (await world.fleet.status(ADMIN))["apps"]
        assert before["rollout"] is None
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        await play(world)
        for shown in ((await world.fleet.status(ADMIN))["apps"][0], await world.fleet.status(ADMIN, APP)):
            found = shown["rollout"]
            assert (found["number"], found["step"], found["steps"], found["weight"]) == (1, 1, 4, 25)
        assert (await world.fleet.explain(ADMIN, APP))["lines"][1] == (
            "rollout 1 from revision 1 to 2 (step 2 of 4, wave 1 of 1, weight 25 %): pause takes 60 s"
        )
        await world.fleet.command_rollout(ADMIN, APP, "abort", reason="a bad feeling")
        await play(world)
        assert (await rollout(world))["outcome"] == "rolledBack"
        assert (await world.fleet.status(ADMIN))["apps"][0]["rollout"] is None
        lines = (await world.fleet.explain(ADMIN, APP))["lines"]
        assert lines[1] == "rollout 1 went back: aborted by ann: a bad feeling"
