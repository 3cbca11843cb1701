"""`shoal rollout` against a real control plane without agents, where every rollout waits for its first instance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Shoal, a_file, an_app

STEPS = {"steps": [5, {"pause": "approval"}], "every": "30s", "judge": False}


def begun(shoal: Shoal, project: str, folder: Path) -> str:
    """An app with a canary under way; its name."""
    for image in ("shoal/echo", "shoal/echo:2"):
        assert shoal("apply", "-f", a_file(folder, an_app(project, image=image, rollout=STEPS))).code == 0
    return f"{project}/production/web"


def test_an_app_without_a_rollout_says_so(shoal: Shoal, project: str, tmp_path: Path) -> None:
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project))).code == 0
    name = f"{project}/production/web"
    for words in (("status", name), ("history", name, "--number", "7")):
        assert shoal("rollout", *words).code == 1
    assert f"app {name} has no rollout yet: its first revision replaces nothing" in shoal("rollout", "status", name).err
    assert f"`shoal rollout history {name}` lists them" in shoal("rollout", "status", name, "--number", "7").err
    assert "has no rollout yet" in shoal("rollout", "history", name).out
    assert f"did you mean {name}?" in shoal("rollout", "status", "wep", "-p", project, "-e", "production").err


def test_a_canary_is_shown_paused_resumed_and_aborted(shoal: Shoal, project: str, tmp_path: Path) -> None:
    name = begun(shoal, project, tmp_path)
    shown = shoal("rollout", "status", name)
    assert f"1 of {name}, canary, revision 1 → 2" in shown.out
    assert "[5 %] → pause 30s → approval → all requests" in shown.out
    assert json.loads(shoal("rollout", "status", name, "-o", "json").out)["number"] == 1
    assert f"{name} 1" in shoal("status", name).out
    assert "revision 1 → 2: running, step 1/3, weight 5 %" in shoal("describe", "app", name).out
    assert shoal("rollout", "pause", name, "--reason", "lunch").out == (
        f"rollout 1 of {name} is paused at step 1/3, weight 5 %; `shoal rollout resume` lets it go on\n"
    )
    refused = shoal("rollout", "pause", name)
    assert (refused.code, "it is paused already; `rollout resume` lets it go on" in refused.err) == (1, True)
    assert shoal("rollout", "resume", name).out.startswith(f"rollout 1 of {name} goes on at step 1/3, weight 5 %")
    assert shoal("rollout", "skip", name).out.startswith(f"rollout 1 of {name} goes on at step ")
    assert "is promoted without the steps that are left" in shoal("rollout", "promote", name).out
    assert "back to revision 1 in all regions" in shoal("rollout", "abort", name, "--reason", "too slow").out
    decisions = shoal("rollout", "history", name, "--number", "1").out
    assert "admin pauses it: lunch" in decisions and "aborted by admin: too slow" in decisions
    assert "went back" in shoal("rollout", "history", name).out
    assert "rollout 1 went back: aborted by admin" in shoal("explain", name).out


def test_retry_and_undo_begin_other_rollouts(shoal: Shoal, project: str, tmp_path: Path) -> None:
    name = begun(shoal, project, tmp_path)
    assert "the last rollout was not taken back: nothing to retry" in shoal("rollout", "retry", name).err
    assert shoal("rollout", "abort", name, "--reason", "a bad feeling").code == 0
    assert "rollout 1 went back: aborted by admin: a bad feeling" in shoal("explain", name).out
    again = shoal("rollout", "retry", name, "--reason", "it was the network").out
    assert again == f"rollout 2 of {name}: revision 4 takes the place of 3, canary, step 1/3, weight 5 %\n"
    assert "to 4 (retry: it was the network) (step 1 of 3" in shoal("explain", name).out
    back = shoal("rollout", "undo", name, "--reason", "it was not")
    assert (back.code, back.out) == (0, f"rollout 2 of {name} went back to revision 3 in all regions\n"), back
    decisions = shoal("rollout", "history", name, "--number", "2").out
    assert "from revision 3 to 4: canary; retry: it was the network" in decisions
    assert "the template of the stable revision 3 was applied: undo: it was not" in decisions
    assert "nothing to undo" in shoal("rollout", "undo", name).err


@pytest.mark.parametrize("verb", ["pause", "resume", "skip", "promote", "abort", "retry", "undo"])
def test_every_command_says_what_it_does_and_that_there_is_nothing_to_do(
    shoal: Shoal, project: str, tmp_path: Path, verb: str
) -> None:
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project))).code == 0
    refused = shoal("rollout", verb, f"{project}/production/web", "--reason", "none")
    assert refused.code == 1 and refused.out == ""
    said = {"retry": "the last rollout was not taken back", "undo": "no rollout went forward"}
    assert said.get(verb, "no rollout is under way; `rollout history` shows earlier ones") in refused.err
    shown = shoal("rollout", verb, "--help").out
    assert "--reason" in shown and "--correlation-id" in shown


def test_a_rollback_says_that_it_is_a_rollout_without_steps(shoal: Shoal, project: str, tmp_path: Path) -> None:
    for text in ("1", "2", "3"):
        shoal("apply", "-f", a_file(tmp_path, an_app(project, env={"A": text})))
    back = shoal("rollback", "app", f"{project}/production/web", "--to", "2")
    assert back.code == 0
    assert back.out.splitlines()[-1].endswith("revision 4 takes the place of 1, without steps")


def test_a_watch_ends_when_the_rollout_has_gone_back_with_exit_code_1(
    shoal: Shoal, project: str, tmp_path: Path
) -> None:
    name = begun(shoal, project, tmp_path)
    assert shoal("rollout", "abort", name).code == 0
    watched = shoal("rollout", "status", name, "-w")
    assert watched.code == 1
    assert watched.out.splitlines()[-1].startswith(f"rollout 1 of {name}: went back")
    refused = shoal("rollout", "status", name, "-w", "--number", "1")
    assert (refused.code, "--watch follows the newest rollout" in refused.err) == (2, True), refused


@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_apply_takes_force(shoal: Shoal, project: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project)), "--force", *words).code == 0


def test_an_environment_stands_for_its_gateways(shoal: Shoal, project: str, tmp_path: Path) -> None:
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project))).code == 0
    name = f"{project}/production"
    refused = shoal("rollout", "status", f"environment/{name}")
    assert refused.code == 1
    assert f"environment {name} has no rollout yet: the image of its gateways has not changed" in refused.err
    assert "has no rollout yet" in shoal("rollout", "history", "env/production", "-p", project).out
    for verb, said in (("pause", "no rollout is under way"), ("retry", "the last rollout was not taken back")):
        assert said in shoal("rollout", verb, f"env/{name}").err
    assert shoal("why", f"environment/{name}").out == "its gateways are as they should be\n"
    assert f"environment {name} has no rollout" in shoal("rollout", "status", f"gateway/{name}/eu").err
    assert shoal("wait", "environment", name, "--for", "rollout").code == 0
