"""Saved checks: running them and storing them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answers_world import done, the_world

from shoal.errors import ConfigError, Invalid, NotFound
from shoal.navigator.answers.checks import FileChecks, MemoryChecks, SavedCheck, new_check, run_check
from shoal.navigator.answers.fleet import read_deployments
from shoal.navigator.answers.query.model import QueryError
from shoal.navigator.model import FORBIDDEN, KindStatus
from shoal.testing.views import AT_S

WORLD = the_world()


def fleet() -> Any:
    return read_deployments(WORLD.fleet)


def run(check: SavedCheck) -> dict[str, Any]:
    return done(run_check(check, WORLD.view, fleet))


def test_a_check_holds_or_shows_examples_of_what_is_wrong() -> None:
    crash = run(SavedCheck(name="crash", query="pods where status = CrashLoopBackOff"))
    assert (crash["ok"], crash["total"]) == (False, 2)
    assert [each["name"] for each in crash["examples"]] == ["web-2", "web-1"]
    assert run(SavedCheck(name="x", query="pods where status = Evicted"))["ok"]
    assert run(SavedCheck(name="x", query="pods where ready and region = eu", expect="some"))["ok"]
    missing = run(SavedCheck(name="x", query="pods where region = mars", expect="some"))
    assert (missing["ok"], missing["total"], missing["examples"]) == (False, 0, [])
    assert run(SavedCheck(name="x", query="pods where not ready count"))["total"] == 2


def test_what_may_not_be_read_is_unknown_and_never_ok() -> None:
    world = the_world()
    at = next(n for n, each in enumerate(world.view.known) if each.name == "us-1")
    refused = KindStatus(kind="pods", state=FORBIDDEN, error="pods is forbidden", rows=None)
    world.view.known[at] = replace(world.view.known[at], kinds=(refused,))

    def run_here(query: str, expect: str = "empty") -> dict[str, Any]:
        return done(run_check(SavedCheck(name="x", query=query, expect=expect), world.view, fleet))

    unknown = run_here("pods where status = Evicted")
    assert unknown["ok"] is None and unknown["error"] == "unknown: the edge may not read pods of us-1"
    assert run_here("pods where status = Evicted", "some")["ok"] is None
    assert run_here("pods where status = CrashLoopBackOff")["ok"] is False, "one was found"
    assert run_here("pods where ready", "some")["ok"] is True
    assert run_here("pods where status = Evicted and region = eu")["ok"] is True, "of a cluster where all is read"
    assert run_here("services where name = nothing")["ok"] is True


def test_a_check_whose_query_is_no_longer_valid_fails_with_the_reason() -> None:
    found = run(SavedCheck(name="old", query="pods where colour = red"))
    assert not found["ok"]
    assert "no field 'colour'" in found["error"]


def test_checks_outlive_the_process_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "checks.json"
    check = SavedCheck(name="a", query="pods", expect="some", description="d")
    FileChecks(path).put(check)
    FileChecks(path).put(SavedCheck(name="b", query="nodes"))
    FileChecks(path).remove("b")
    assert FileChecks(path).all() == {"a": check}
    with pytest.raises(NotFound):
        FileChecks(path).remove("b")
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"checks\.json is not a valid file of checks"):
        FileChecks(path)


@pytest.mark.parametrize("name", ["Bad Name", "", "-a", "a" * 64])
def test_a_check_needs_a_name_that_can_be_in_a_path(name: str) -> None:
    with pytest.raises(Invalid, match="name: Invalid value"):
        new_check(name, "pods", now_s=AT_S)


def test_a_check_is_saved_only_with_a_valid_query() -> None:
    with pytest.raises(QueryError):
        new_check("a", "pods wher ready", now_s=AT_S)
    assert MemoryChecks().all() == {}
