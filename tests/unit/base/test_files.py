"""Private files: nobody else reads them, prepares their names or gets them back after a power failure."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shoal.base.files import close_to_others, create_private, link_to, own_private_dir, write_private
from shoal.errors import ConfigError


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.fixture
def of_another_user(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        return Path("/usr")
    path = tmp_path / "theirs"
    path.mkdir(mode=0o777)
    os.chown(path, 12345, 12345)
    return path


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is synced to disk, in order."""
    found: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_a_private_file_is_readable_by_its_owner_only_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old and longer")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_name_of_a_temporary_file_cannot_be_prepared(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in (f".f.{os.getpid()}-{threading.get_ident()}", "f.new", ".f.new", "f.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_private(tmp_path / "f", b"secret")
    assert victim.read_text() == "kept"


def test_the_folder_is_synced_after_the_file(tmp_path: Path, synced: list[str]) -> None:
    write_private(tmp_path / "f", b"new")
    assert [Path(path).parent if path != str(tmp_path) else path for path in synced] == [tmp_path, str(tmp_path)]
    synced.clear()
    write_private(tmp_path / "g", b"new", durable=False)
    assert synced == []


def test_of_two_who_create_a_file_one_wins_and_nothing_is_left_behind(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "f"
    assert create_private(path, b"first")
    assert synced[-1] == str(tmp_path)
    assert not create_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_write_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "f" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_private(tmp_path / "f", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    link_to(tmp_path / "l", "one")
    link_to(tmp_path / "l", "two")
    assert os.readlink(tmp_path / "l") == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["l"]


def test_a_state_directory_of_another_user_is_refused_with_the_fix(of_another_user: Path) -> None:
    with pytest.raises(ConfigError, match=rf"belongs to user \d+.*`chown {os.geteuid()} {of_another_user}`"):
        own_private_dir(of_another_user)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of other users")
def test_a_link_that_another_user_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    own_private_dir(tmp_path / "link")
    os.lchown(tmp_path / "link", 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        own_private_dir(tmp_path / "link")


def test_a_shared_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigError, match=r"all users share it \(mode 1777\); choose one below it"):
        own_private_dir(shared)
    assert mode(shared) == 0o1777


def test_an_existing_state_directory_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(0o777)
    own_private_dir(path)
    assert mode(path) == 0o700


def test_a_database_file_and_its_companions_are_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    close_to_others(path)
    assert mode(path) == 0o600
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").touch()
        Path(f"{path}{suffix}").chmod(0o644)
    close_to_others(path)
    assert {found.name: mode(found) for found in tmp_path.iterdir()} == {
        "store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600,
    }  # fmt: skip
