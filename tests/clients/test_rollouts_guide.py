"""The guide to rollouts does what it says, against ``shoal up``: real gateways in two regions, real requests.

Its lines are run in order, in one shell each; what one exports, the others know. A watch ends by itself, with exit code 1
if the rollout went back.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "rollouts.md"
STEP_S = 150.0
_RUN = ("shoal ", "export ", "sed ", "python ")
_WORD = re.compile(r"[A-Za-z]{2,}")
_MADE_UP = re.compile(r"\S*[\d:.]\S*")
_LOAD = "shoal.app.demo.load"


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output that is shown for it."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE):
            line, _, output = command.partition("\n")
            if line.startswith(_RUN):
                yield line, output


def lasting_words(output: str) -> set[str]:
    """What is the same in every run: words without numbers."""
    return set(_WORD.findall(_MADE_UP.sub(" ", output)))


def shell(line: str, environment: dict[str, str]) -> str:
    """A line for a shell that knows what was exported before."""
    exports = f"{environment['TMP_FOLDER']}/rollouts-exports"
    Path(exports).touch()
    whole = f"set -o pipefail; . {exports}; {line}"
    if line.startswith("export "):
        names = " ".join(re.findall(r"(?:^export |\s)([A-Z_]+)=", line))
        whole += f"; declare -px {names} >> {exports}"
    return whole


def ran(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", shell(line, environment)], capture_output=True, text=True, env=environment, cwd=ROOT,
        timeout=STEP_S, check=False,
    )  # fmt: skip


@pytest.mark.timeout(300)  # two canaries with analysis, on a busy machine
@pytest.mark.xdist_group("shoal up")
def test_every_line_of_the_guide_works_and_shows_what_the_guide_shows(environment: dict[str, str]) -> None:
    found = list(steps(GUIDE.read_text()))
    assert len(found) > 10
    load: subprocess.Popen[str] | None = None
    try:
        for line, output in found:
            line = line.replace("/tmp/", f"{environment['TMP_FOLDER']}/")
            if _LOAD in line:
                command = line.replace("python", sys.executable, 1).removesuffix("&")
                load = subprocess.Popen(
                    ["bash", "-c", shell(f"exec {command}", environment)], stdout=subprocess.PIPE, text=True,
                    env=environment, cwd=ROOT,
                )  # fmt: skip
                continue
            print(line, flush=True)
            done = ran(line, environment)
            expected = 1 if line.endswith(" -w") and "went back" in output else 0
            shown = f"{line}\n{done.stdout}{done.stderr}"
            assert done.returncode == expected, shown
            missing = lasting_words(output) - set(_WORD.findall(done.stdout))
            assert not missing, f"{missing} is not in {shown}"
    finally:
        if load is not None:
            load.terminate()
            out, _ = load.communicate(timeout=60)
            print(out)
    assert load is not None
