"""The guide to gateways does what it says, against ``shoal up``: real gateways in two regions, real instances.

Its lines are run in order, in one shell. What takes a moment to be so is asked again until it is.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "gateways.md"
STEP_S = 60.0
_RUN = ("shoal ", "curl ", "export ", "openssl ", "for ")
_ASKS = ("shoal get", "shoal describe", "shoal status", "curl", "for")  # change nothing, so they may be asked again


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output that is shown for it."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE):
            line, _, output = command.partition("\n")
            if line.startswith(_RUN):
                yield line, output


_WORD = re.compile(r"[A-Za-z_]{2,}|\b\d/\d\b|\b[245]\d\d\b")
_MADE_UP = re.compile(r"\S*-\S*\d\S*|\S*\.\S*\d\S*")


def lasting_words(output: str) -> set[str]:
    """What is the same in every run: words without those that have numbers, but for states and shares."""
    return set(_WORD.findall(_MADE_UP.sub(" ", output)))


def ran(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a shell that knows what was exported before."""
    exports = f"{environment['TMP_FOLDER']}/exports"
    Path(exports).touch()
    whole = f"set -o pipefail; . {exports}; {line}"
    if line.startswith("export "):
        names = " ".join(re.findall(r"(?:^export |\s)([A-Z_]+)=", line))
        whole += f"; declare -px {names} >> {exports}"
    return subprocess.run(
        ["bash", "-c", whole], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=STEP_S, check=False
    )  # fmt: skip


@pytest.mark.xdist_group("shoal up")
def test_every_line_of_the_guide_works_and_shows_what_the_guide_shows(environment: dict[str, str]) -> None:
    found = list(steps(GUIDE.read_text()))
    assert len(found) > 20
    for line, output in found:
        line = line.replace("/tmp/", f"{environment['TMP_FOLDER']}/")
        wanted, deadline = lasting_words(output), time.monotonic() + STEP_S
        while True:
            done = ran(line, environment)
            missing = wanted - set(_WORD.findall(done.stdout))
            if done.returncode == 0 and not missing:
                break
            again = line.startswith(_ASKS) and time.monotonic() < deadline
            assert again, f"{line} does not show {missing}:\n{done.stdout}{done.stderr}"
            time.sleep(0.3)
