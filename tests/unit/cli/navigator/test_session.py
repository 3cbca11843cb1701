"""How commands find the navigator: by context or by environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from answers_world import TOKEN

from shoal.app.main import main
from shoal.cli.contexts import Context, navigator_context, read_contexts, save_context
from shoal.errors import ConfigError


def test_a_context_names_the_navigator_and_shares_its_token_and_ca(tmp_path: Path) -> None:
    save_context(tmp_path, Context("local", "https://c", "t", "CA", navigator="https://n/"))
    found = navigator_context(tmp_path, environ={})
    assert (found.url, found.token, found.ca) == ("https://n", "t", "CA")
    save_context(tmp_path, Context("local", "https://c", "t", "CA", navigator_token="own", navigator_ca="OWN"))
    found = navigator_context(tmp_path, environ={})
    assert (found.url, found.token, found.ca) == ("https://n", "own", "OWN")
    assert read_contexts(tmp_path).known["local"].url == "https://c"


def test_without_a_navigator_commands_explain_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_context(tmp_path, Context("local", "https://c", "t"))
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    assert main(["query", "pods"]) == 2
    assert "context 'local' has no navigator: `shoal up` starts one" in capsys.readouterr().err
    assert main(["config", "set-context", "local", "--navigator", "https://n/", "--navigator-token", "secret"]) == 0
    assert navigator_context(tmp_path, environ={}).url == "https://n"
    capsys.readouterr()
    assert main(["config", "view"]) == 0
    assert "secret" not in capsys.readouterr().out


def test_the_environment_can_name_the_navigator(tmp_path: Path) -> None:
    environ = {"SHOAL_NAVIGATOR_URL": "https://n", "SHOAL_NAVIGATOR_TOKEN": TOKEN}
    assert navigator_context(tmp_path, environ=environ).token == TOKEN
    with pytest.raises(ConfigError, match="SHOAL_NAVIGATOR_TOKEN is not set"):
        navigator_context(tmp_path, environ={"SHOAL_NAVIGATOR_URL": "https://n"})
    shared = {"SHOAL_NAVIGATOR_URL": "https://n", "SHOAL_URL": "https://c", "SHOAL_TOKEN": "t"}
    assert navigator_context(tmp_path, environ=shared).token == "t"
