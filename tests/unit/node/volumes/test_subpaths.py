"""SubPaths stay inside their volume, whatever a pod does to it meanwhile."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.node.errors import ConfigFault
from shoal.node.volumes.subpaths import make_subpath


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def test_missing_folders_are_made_and_existing_ones_and_files_stay(volume: Path) -> None:
    make_subpath(volume, "a/b//./c")
    assert (volume / "a" / "b" / "c").is_dir()
    (volume / "a" / "file").write_text("x")
    make_subpath(volume, "a/file")
    assert (volume / "a" / "file").read_text() == "x"


def test_links_inside_the_volume_are_followed(volume: Path) -> None:
    (volume / "..data").mkdir()
    (volume / "..data" / "key").write_text("x")
    (volume / "key").symlink_to("..data/key")
    (volume / "link").symlink_to("..data")
    make_subpath(volume, "key")
    make_subpath(volume, "link/new")
    assert (volume / "..data" / "new").is_dir()


@pytest.mark.parametrize("target", ["../outside", "/", "a/../../outside", "/proc/self/root"])
def test_nothing_is_made_outside_through_a_link(volume: Path, target: str) -> None:
    (volume / "a").mkdir()
    (volume / "link").symlink_to(target)
    for part in ("link/new/deep", "link"):
        with pytest.raises(ConfigFault, match="points outside its volume"):
            make_subpath(volume, part)
    assert not list((volume.parent / "outside").iterdir())


def test_paths_that_cannot_be_are_refused_with_the_reason(volume: Path) -> None:
    (volume / "file").touch()
    (volume / "dangling").symlink_to("nothing")
    for part, why in (
        ("../x", "without"), ("/x", "relative"), ("file/x", "cannot be made: Not a directory"),
        ("dangling", "a symbolic link to nothing"),
    ):  # fmt: skip
        with pytest.raises(ConfigFault, match=why):
            make_subpath(volume, part)


@contextmanager
def swapped(swap: Callable[[], None]) -> Iterator[None]:
    """Run ``swap`` again and again meanwhile."""
    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            swap()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(volume: Path) -> None:
    folder, link = volume / "a", volume / "link"
    folder.mkdir()
    link.symlink_to(volume.parent / "outside")
    libc = ctypes.CDLL(None)

    def swap() -> None:
        libc.renameat2(-100, bytes(folder), -100, bytes(link), 2)  # exchanges them in one step

    with swapped(swap):
        for number in range(1000):
            try:
                make_subpath(volume, f"a/{number}/deep")
            except ConfigFault:
                pass
    assert not list((volume.parent / "outside").iterdir())
