"""The picture of a rollout, the lines of its watch mode, and what commands answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from shown_objects import a_shown_rollout

from shoal.cli.fleet.rollout_text import (
    answer_of,
    began,
    decision_rows,
    history_rows,
    lines_of,
    picture,
    state_of,
    under_way_rows,
    under_way_text,
)

NOW = datetime(2027, 1, 31, 12, 1, 0, tzinfo=UTC)
APP = "demo/production/shop"


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_picture_has_steps_waves_numbers_of_both_revisions_and_the_time_left() -> None:
    lines = picture(a_shown_rollout(), APP, NOW).splitlines()
    assert lines[0].split(maxsplit=1)[1] == "3 of demo/production/shop, canary, revision 1 → 2"
    assert "running for 60s, started by ann" in lines[1]
    assert lines[2].endswith("[us] → eu")
    assert lines[3].endswith("5 % ✓ → [analysis 10s] → 25 % → approval → header beta=v2 → mirror 5 % → all requests")
    assert lines[4].endswith("in 4.0s")
    assert lines[5].endswith("analysis takes 10 s")
    header, new, old, later = (line.split() for line in lines[lines.index("") + 1 :][:4])
    assert header[:5] == ["WAVE", "REGION", "REVISION", "WANTED", "TAKEN"]
    assert new == ["1", "us", "2", "new", "5", "%", "0", "%", "1/1", "62", "3", "(4.8", "%)", "4.5", "ms", "18", "ms",
                   "sentinel-x"]  # fmt: skip
    assert old[:10] == ["1", "us", "1", "old", "95", "%", "100", "%", "2/2", "1180"]
    assert later[:3] == ["2", "eu", "2"] and "0/0" in later
    assert lines[-1].split()[2:5] == ["rollout", "step", "1"], "who decided; the wave counts from 1"


def test_copies_have_a_line_of_their_own() -> None:
    found = a_shown_rollout()
    found["regions"][0]["candidate"]["copies"] = {"requests": 50, "failed": 2, "p50": 4.5, "p99": 18.2}
    lines = [line.split() for line in picture(found, APP, NOW).splitlines()]
    shown = next(line for line in lines if "copies" in line)
    assert shown == ["1", "us", "2", "copies", "-", "-", "-", "50", "2", "(4.0", "%)", "4.5", "ms", "18", "ms", "-"]
    assert sum(line[1:3] == ["us", "2"] and "new" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"hurried": True}, "(left out)"),
        ({"step": 6}, "mirror 5 % ✓ → [all requests]"),
        ({"phase": "keeping", "step": 6}, "mirror 5 % ✓ → all requests ✓"),
        ({"phase": "ended", "outcome": "rolledBack", "step": 2}, "analysis 10s ✓ → 25 % → approval"),
    ],
)
def test_steps_are_marked_by_where_it_is(more: dict[str, Any], line: str) -> None:
    assert line in picture(a_shown_rollout(**more), APP, NOW)


def test_a_rollout_without_steps_has_a_short_picture() -> None:
    found = a_shown_rollout(configured=False, strategy="rolling", steps=[], hold="instances are exchanged in us")
    text = picture(found, APP, NOW)
    assert "Steps" not in text and "instances are exchanged in us" in text


def test_lines_of_watch_mode_change_with_decisions_weights_and_readiness_only() -> None:
    found = a_shown_rollout()
    busier = a_shown_rollout(dueAt="2027-01-31T12:09:00+00:00", verdict="more")
    busier["regions"][0]["candidate"]["requests"] = 700
    assert lines_of(found, APP) == lines_of(busier, APP)
    assert lines_of(found, APP)[1:] == [
        "rollout 3 of demo/production/shop in us: 0 % of requests, ready 1/1",
        "rollout 3 of demo/production/shop in eu: 0 % of requests, ready 0/0",
        "rollout 3 of demo/production/shop: running, wave 1/2, step 2/6, weight 5 %, analysis takes 10 s",
    ]
    assert lines_of(found, APP)[0].endswith("rollout 3 of demo/production/shop: step, weight is done")


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "running"),
        ({"paused": True}, "paused"),
        ({"phase": "keeping"}, "promoted"),
        ({"phase": "goingBack"}, "goes back"),
        ({"phase": "frozen"}, "frozen"),
        ({"phase": "ended", "outcome": "rolledBack"}, "went back"),
        ({"phase": "ended", "outcome": "superseded"}, "replaced by a newer one"),
        ({"phase": "ended", "outcome": "promoted"}, "promoted"),
    ],
)
def test_the_state_is_a_word(more: dict[str, Any], word: str) -> None:
    assert state_of(a_shown_rollout(**more)) == word


@pytest.mark.parametrize(
    ("verb", "more", "line"),
    [
        (
            "pause",
            {"paused": True},
            " is paused at wave 1/2, step 2/6, weight 5 %; `shoal rollout resume` lets it go on",
        ),
        ("resume", {}, " goes on at wave 1/2, step 2/6, weight 5 %: analysis takes 10 s"),
        ("skip", {"phase": "keeping"}, ": promoted"),
        ("promote", {"hurried": True}, " is promoted without the steps that are left: revision 2 gets all requests"),
        ("abort", {"phase": "goingBack"}, " goes back to revision 1 in all regions"),
    ],
)
def test_a_command_answers_with_one_line(verb: str, more: dict[str, Any], line: str) -> None:
    assert answer_of(verb, a_shown_rollout(**more), APP) == f"rollout 3 of demo/production/shop{line}"


def test_what_began_is_said_with_its_strategy_or_without_steps() -> None:
    head = "rollout 3 of demo/production/shop"
    assert (
        began(a_shown_rollout(), APP)
        == f"{head}: revision 2 takes the place of 1, canary, wave 1/2, step 2/6, weight 5 %"
    )
    assert began(a_shown_rollout(hurried=True), APP) == f"{head}: revision 2 takes the place of 1, without steps"
    assert began(a_shown_rollout(configured=False), APP) == f"{head}: revision 2 takes the place of 1, without steps"


def test_history_has_the_time_and_the_outcome_of_each() -> None:
    found = a_shown_rollout(phase="ended", outcome="rolledBack", endedAt="2027-01-31T12:00:42+00:00", reason="p99")
    (row,) = history_rows([found], NOW)
    assert (row["rollout"], row["state"], row["took"], row["started"]) == (3, "went back", "42s", "60s ago")
    (decision,) = decision_rows(found["decisions"])
    assert (decision["actor"], decision["wave"], decision["step"]) == ("rollout", 1, 2)


def test_only_rollouts_with_steps_are_shown_beside_the_apps() -> None:
    found = {**a_shown_rollout(), "waves": 2, "steps": 6}
    (row,) = under_way_rows([(APP, {"rollout": found}), ("a", {}), ("b", {"rollout": {**found, "configured": False}})])
    assert row == {
        "rollout": f"{APP} 3", "revision": "1 → 2", "wave": "1/2", "step": "2/6", "weight": "5 %", "state": "running",
        "reason": "analysis takes 10 s",
    }  # fmt: skip
    assert under_way_text(found) == ("3, revision 1 → 2: running, wave 1/2, step 2/6, weight 5 %, analysis takes 10 s")
    assert under_way_text(None) == ""
