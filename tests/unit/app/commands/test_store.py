"""`shoal store`: the names of stores, messages, progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.commands.store import progress_lines, store_url
from shoal.app.main import main
from shoal.base.clock import FakeClock
from shoal.errors import ConfigError


def test_a_store_is_named_by_its_url_or_by_the_directory_of_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    assert store_url("one") == store_url(f"{tmp_path}/one") == f"sqlite:///{tmp_path}/one/store.db"
    assert store_url("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"
    assert store_url("sqlite:////var/x.db") == "sqlite:////var/x.db"
    assert store_url("postgresql://u:p@h/d") == "postgresql://u:p@h/d"
    up = tmp_path / "up" / "clusters" / "local"
    up.mkdir(parents=True)
    (up / "store.db").touch()
    assert store_url(f"{tmp_path}/up") == f"sqlite:///{up}/store.db"
    for wrong, said in ("nowhere", "neither a URL nor a directory"), ("redis://x", "use sqlite"):
        with pytest.raises(ConfigError, match=said):
            store_url(wrong)


def test_an_error_of_a_copy_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "copy", f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"]) == 2
    assert capsys.readouterr().err == (
        f"error: store sqlite:///{tmp_path}/a.db does not exist; give the file, or the directory of a cluster\n"
    )
    assert main(["store", "thaw", f"sqlite:///{tmp_path}/a.db"]) == 2


async def test_progress_is_shown_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    show = progress_lines(clock)
    for number in range(31):
        show("copied", number, 30)
        await clock.advance(0.1)
    said = capsys.readouterr().err.splitlines()
    assert len(said) in (2, 3) and all(line.endswith("of 30 objects") for line in said)
