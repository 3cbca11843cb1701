"""Temporary folders of gateways."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shoal.sentinel.folders import gateway_folder, remove_left_folders

KILLED = """
import os, signal, sys
from shoal.sentinel.folders import gateway_folder
with gateway_folder(200) as made:
    print(made, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def killed() -> Path:
    """The folder of a gateway that was killed."""
    ran = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60)
    return Path(ran.stdout.strip())


def test_a_folder_is_removed_at_the_end(temporary: Path) -> None:
    with gateway_folder(200) as made:
        assert made.parent == temporary
        (made / "xds.sock").touch()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_killed_gateway_is_removed_and_those_of_others_stay(temporary: Path) -> None:
    left = killed()
    assert left.is_dir()
    with gateway_folder(200) as other:
        assert not left.exists(), "the next gateway removes it"
        left = killed()
        remove_left_folders()
        assert not left.exists(), "and so does a cluster that stops"
        assert other.is_dir()


def test_a_folder_without_a_lock_belongs_to_a_gateway_that_starts(temporary: Path) -> None:
    starting = temporary / "shoal-gw-starting"
    starting.mkdir()
    remove_left_folders()
    assert starting.is_dir()


def test_a_long_temporary_directory_is_not_used(temporary: Path) -> None:
    with gateway_folder(40) as made:
        assert len(str(made)) <= 40 and made.parent != temporary
    assert not made.exists()
