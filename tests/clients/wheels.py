"""Builds wheels of this tree without a package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index")


def build_wheel(folder: Path, project: Path = ROOT) -> Path:
    """The wheel of a project, in a folder that has no other one of it."""
    before = set(folder.glob("*.whl"))
    subprocess.run([*_BUILD, "-w", str(folder), str(project)], check=True)
    (made,) = set(folder.glob("*.whl")) - before
    return made
