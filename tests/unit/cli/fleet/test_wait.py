"""``shoal wait``, against a real control plane without agents."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Shoal, a_file, an_app


@pytest.fixture
def web(shoal: Shoal, project: str, tmp_path: Path) -> str:
    """An app of its own, which no agent makes ready."""
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project))).code == 0
    return f"{project}/production/web"


def test_an_app_that_is_not_ready_in_time_is_an_error_that_says_why(shoal: Shoal, web: str) -> None:
    ran = shoal("wait", "app", web, "--timeout", "1s")
    assert ran.code == 1
    assert ran.err.startswith(f"error: not in time: app {web} is ")


def test_a_field_and_the_end_of_an_object_are_waited_for(
    shoal: Shoal, web: str, spawned: Callable[..., subprocess.Popen[str]]
) -> None:
    assert shoal("wait", f"app/{web}", "--for", "jsonpath={.spec.image}=shoal/echo").out.endswith("=shoal/echo\n")
    waiting = spawned("wait", "app", web, "--for", "deleted")
    assert shoal("delete", "app", web, "--yes").code == 0
    assert waiting.communicate(timeout=30)[0] == f"app {web} is deleted\n"


def test_an_app_without_a_rollout_has_nothing_to_wait_for(shoal: Shoal, web: str) -> None:
    assert shoal("wait", "app", web, "--for", "rollout").out == f"app {web} has no rollout\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("app", "{web}", "--for", "happy"), "use ready, deleted, rollout or jsonpath=PATH=VALUE"),
        (("app", "{web}", "--for", "jsonpath={.a}"), "use jsonpath=PATH=VALUE"),
        (("region", "eu"), "only apps have that"),
        (("app", "nix"), "app 'nix' not found"),
    ],
)
def test_what_cannot_be_waited_for_is_refused_at_once(
    shoal: Shoal, web: str, words: tuple[str, ...], said: str
) -> None:
    ran = shoal("wait", *(word.replace("{web}", web) for word in words))
    assert ran.code in (1, 2) and said in ran.err
