"""The page's own tests, of what needs no browser, and its types."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from browser_up import ROOT

WEB = ROOT / "web"
OWN_NODE = ROOT / ".venv/page/bin"


@pytest.mark.parametrize("what", ["check", "test"])
def test_the_page_passes_its_own(what: str) -> None:
    path = f"{os.environ['PATH']}:{OWN_NODE}"
    npm = shutil.which("npm", path=path)
    if npm is None or not (WEB / "node_modules").exists():
        pytest.skip("the page's libraries are not installed: make setup does where npm's registry can be reached")
    done = subprocess.run(
        [npm, "run", "--silent", what], cwd=WEB, env={**os.environ, "PATH": path, "NO_COLOR": "1"}, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
