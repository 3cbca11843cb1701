"""Finding a kubectl to recommend or to test with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_KUBECTL = (1, 31)


def find_kubectl() -> str | None:
    """The kubectl beside our interpreter (put there by set-up when the machine had none), else the one on PATH."""
    beside = Path(sys.prefix) / "bin" / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl")


def kubectl_word() -> str:
    """The command for users: ``kubectl`` if it is on the path, else its full path."""
    found = find_kubectl()
    return "kubectl" if found is None or shutil.which("kubectl") == found else found


def kubectl_version(path: str) -> tuple[int, int] | None:
    """(major, minor), or None if it cannot be run or prints no version."""
    try:
        shown = subprocess.run(
            [path, "version", "--client", "-o", "json"], capture_output=True, timeout=20, check=True
        ).stdout
        version = json.loads(shown)["clientVersion"]
        return int(version["major"]), int(version["minor"].rstrip("+"))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None
