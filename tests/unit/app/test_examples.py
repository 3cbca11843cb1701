"""Examples that come with Shoal: where they lie, and writing them to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shoal.app.examples import source, summaries, write
from shoal.app.main import main
from shoal.app.up import UpOptions, guide


def test_every_example_says_what_it_is_and_is_yaml() -> None:
    assert "hello.yaml" in summaries()
    assert all(len(summary) > 20 and ". " not in summary for summary in summaries().values())
    for path in source().glob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text()))


def test_the_command_writes_and_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples"]) == 0
    shown = capsys.readouterr().out
    assert "examples/hello.yaml " in shown and "An app in two regions" in shown
    assert (tmp_path / "examples" / "hello.yaml").read_bytes() == (source() / "hello.yaml").read_bytes()
    assert main(["examples"]) == 0  # nothing to do


def test_a_changed_file_stays_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    (tmp_path / "hello.yaml").write_text("mine")
    (tmp_path / "shop.yaml").unlink()
    assert main(["examples", "--to", str(tmp_path)]) == 2
    assert f"{tmp_path}/hello.yaml would be overwritten: name another folder with --to" in capsys.readouterr().err
    assert (tmp_path / "hello.yaml").read_text() == "mine" and not (tmp_path / "shop.yaml").exists()
    assert {path.name for path in write(tmp_path, force=True)} == {"hello.yaml", "shop.yaml"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["examples", "--to", str(tmp_path / "file" / "x")]) == 2
    assert capsys.readouterr().err.startswith(f"error: to is '{tmp_path}/file/x': Not a directory")


def test_up_names_the_command_where_there_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> list[str]:
        return [line.strip() for line in guide(UpOptions(dir=tmp_path), "https://h")]

    monkeypatch.chdir(tmp_path)
    at = next(at for at, line in enumerate(lines()) if line.endswith("shoal examples"))
    assert lines()[at + 1].endswith("apply -f examples/hello.yaml")
    write(tmp_path / "examples")
    assert not any(line.endswith("shoal examples") for line in lines())
