"""The directory of a process: private, and locked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.app.files import DirectoryLock, make_private_dir
from shoal.base.files import holder_of
from shoal.errors import ConfigError

HOLD = """
import sys; from pathlib import Path; from shoal.app.files import DirectoryLock
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()
"""


def test_another_process_sees_the_holder_of_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "l"
    assert holder_of(lock) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert holder_of(lock) == holder.pid
        with pytest.raises(ConfigError, match=f"already in use by process {holder.pid}"), DirectoryLock(lock):
            pass
        holder.kill()
    assert holder_of(lock) is None
    with DirectoryLock(lock):
        pass


def test_a_directory_that_cannot_be_made_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file/d'.*choose another with --dir"):
        make_private_dir(tmp_path / "file" / "d")


def test_missing_parents_of_a_private_directory_are_private_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_dir(tmp_path / "home" / "clusters" / "eu-1")
    made = [tmp_path / "home", tmp_path / "home" / "clusters", tmp_path / "home" / "clusters" / "eu-1"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = Path("/usr")
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
    with pytest.raises(ConfigError, match=r"dir is '.*': it belongs to user"):
        make_private_dir(theirs)
