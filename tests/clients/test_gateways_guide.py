"""The guide to gateways does what it says, against ``shoal up``: real gateways in two regions, real instances.

Its lines are run in order, in one shell. A line that only reads is run again until it shows what the guide shows.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shoal.testing.waiting import eventually_blocking

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "gateways.md"
STEP_S = 60.0
_RUN = ("shoal ", "curl ", "export ", "openssl ", "for ")
_READS = ("shoal get", "shoal describe", "shoal status", "curl", "for")  # change nothing, so they may be run again


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
        timeout_s = STEP_S if line.startswith(_READS) else 0.0
        eventually_blocking(partial(shows, line, lasting_words(output), environment), timeout_s=timeout_s, every_s=0.3)


def shows(line: str, wanted: set[str], environment: dict[str, str]) -> bool:
    done = ran(line, environment)
    missing = wanted - set(_WORD.findall(done.stdout))
    assert done.returncode == 0 and not missing, f"{line} does not show {missing}:\n{done.stdout}{done.stderr}"
    return True
