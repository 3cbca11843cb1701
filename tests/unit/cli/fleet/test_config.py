"""`shoal config`: contexts are chosen, changed and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.main import main


def test_contexts_are_chosen_changed_and_shown_without_their_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "new"))
    assert main(["config", "set-context", "a"]) == 2
    assert main(["config", "set-context", "a", "--url", "https://a/", "--token", "secret-a"]) == 0
    assert main(["config", "set-context", "b", "--url", "https://b", "--token", "secret-b"]) == 0
    assert main(["config", "set-context", "--project", "p", "--environment", "e"]) == 0
    assert main(["config", "use-context", "c"]) == 2
    assert main(["config", "use-context", "b"]) == 0
    capsys.readouterr()
    assert main(["config", "get-contexts"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["-", "a", "https://a", "p", "e"], ["*", "b", "https://b", "-", "-"]]
    assert main(["config", "view"]) == 0
    assert "secret" not in capsys.readouterr().out
    assert main(["config", "view", "--raw", "-o", "json"]) == 0
    assert "secret-a" in capsys.readouterr().out
