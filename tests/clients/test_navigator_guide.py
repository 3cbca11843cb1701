"""The guide to the navigator does what it says: its questions are asked of a running ``shoal up``."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "navigator.md"
_ELSEWHERE = ("navigator ", "logs ", "mesh workload", "mesh graph")  # they need what the guide only speaks of
_SEEN_S = 60.0


def asked(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line, comments=True)
    return subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)


@pytest.mark.xdist_group("shoal up")
def test_every_question_of_the_guide_is_answered(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + _SEEN_S
    while "us-1" not in asked("shoal query 'nodes where ready'", environment).stdout:
        assert time.monotonic() < deadline, "the second region did not appear"
        time.sleep(0.2)
    lines = re.findall(r"^\$ (shoal .*)$", GUIDE.read_text(), re.MULTILINE)
    tried = [line for line in lines if not line.removeprefix("shoal ").startswith(_ELSEWHERE)]
    assert len(tried) > 8
    for line in tried:
        ran = asked(line, environment)
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    nodes = asked("shoal query 'nodes where ready'", environment).stdout
    assert "eu-1" in nodes and "us-1" in nodes


@pytest.mark.xdist_group("shoal up")
def test_a_question_that_is_not_understood_is_shown_where(environment: dict[str, str]) -> None:
    ran = asked("shoal query 'pods where imag ~ x'", environment)
    assert ran.returncode != 0
    assert "^" in ran.stderr and "image" in ran.stderr
