"""Runs a program as a user of this machine without rights, for tests that run as root.

The program starts in a mount namespace of its own, in which that user can reach this interpreter and this project, also
where they are in a home folder that is closed to others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import shoal

USER = 54321
_RUN = """
import os, sys
source, user, closed, needed = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(":"), sys.argv[4].split(":")
sys.path.insert(0, source)
from shoal.node.runtime.process.shim import mounts, system
system.unshare(system.NEWNS)
system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
for folder in filter(None, closed):
    inside = [path for path in needed if mounts.is_inside(path, folder)]
    opened = [(path, mounts.taken(mounts.open_source(path))) for path in inside]
    system.mount("shoal", folder, "tmpfs", options="mode=755")
    for path, number in opened:
        os.makedirs(path, exist_ok=True)
        system.place_mount(number, path)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execvp(sys.argv[5], sys.argv[5:])
"""


def as_ordinary_user(*argv: str, needed: Iterable[Path] = ()) -> list[str]:
    """The command that runs a program as ``USER``; ``needed`` are more folders that it can reach."""
    source = Path(shoal.__file__).parents[1]
    places = {path.resolve() for path in (Path(sys.prefix), Path(sys.base_prefix), source, *needed)}
    closed = {found for path in places if (found := _closed(path)) is not None}
    words = ":".join(map(str, sorted(closed))), ":".join(map(str, sorted(places)))
    return [sys.executable, "-I", "-c", _RUN, str(source), str(USER), *words, *argv]


def _closed(path: Path) -> Path | None:
    """The uppermost folder on the way to a path that others may not enter."""
    return next((each for each in (*reversed(path.parents), path) if not each.stat().st_mode & 0o001), None)


def run_tests(root: Path, *words: str, timeout_s: float) -> str:
    """Run pytest in the project ``root`` as that user; its output. Raises AssertionError if a test fails."""
    with tempfile.TemporaryDirectory(prefix="shoal-user-", ignore_cleanup_errors=True) as folder:
        os.chown(folder, USER, USER)
        command = as_ordinary_user(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", *words,
            needed=(root, Path(folder)),
        )  # fmt: skip
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=timeout_s)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout
