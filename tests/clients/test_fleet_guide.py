"""The guide to the fleet does what it says: its ``shoal`` lines, and those of kubectl that name a cluster, are run in order against ``shoal up``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.conftest import find_kubectl

from shoal.testing.waiting import eventually_blocking

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "fleet.md"
STEP_S = 150.0
OF_A_CLUSTER = "--kubeconfig ~/.shoal/"


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output that is shown for it."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE):
            line, _, output = command.partition("\n")
            if "shoal " in line or line.startswith(("sed ", f"kubectl {OF_A_CLUSTER}")):
                yield line, output


def lasting_words(output: str) -> set[str]:
    """What is the same in every run: words without numbers and made-up names."""
    words = re.split(r"\s+", re.sub(r"\S*\d\S*", " ", output))
    return {word for word in words if re.fullmatch(r"[A-Za-z/]{2,}[:,]?", word)}


def watched(line: str, environment: dict[str, str]) -> str:
    """The lines of a watch until both regions are ready."""
    ready: set[str] = set()
    lines: list[str] = []
    with subprocess.Popen(line.split(), stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        for shown in process.stdout:
            lines.append(shown)
            place = shown.partition(":")[0]
            (ready.add if ": Ready" in shown else ready.discard)(place)
            if len(ready) == 2:
                break
        process.kill()
    return "".join(lines)


@pytest.mark.xdist_group("shoal up")
def test_every_shoal_line_works_and_shows_what_the_guide_shows(environment: dict[str, str]) -> None:
    found = list(steps(GUIDE.read_text()))
    assert len(found) > 10
    for line, output in found:
        line = line.replace("/tmp/", f"{environment['TMP_FOLDER']}/").replace(
            "~/.shoal/", f"{environment['SHOAL_HOME']}/"
        )
        line = line.replace("kubectl ", f"{find_kubectl()} ") if line.startswith("kubectl ") else line
        if line.endswith(" -w"):
            assert ": Ready, ready 2/2" in watched(line, environment)
            continue
        if line == "shoal agents":
            wait_for_agents(environment)
        ran = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=STEP_S, check=False
        )  # fmt: skip
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
        shown = ran.stdout + ran.stderr
        missing = {word for word in lasting_words(output) if word not in shown}
        assert not missing, f"{line} does not show {missing}:\n{ran.stdout}{ran.stderr}"


def wait_for_agents(environment: dict[str, str]) -> None:
    """`up` is ready when the clusters are; their agents join a moment later."""

    def shown() -> str:
        return subprocess.run(["shoal", "agents"], capture_output=True, text=True, env=environment, check=True).stdout

    eventually_blocking(shown, until=lambda text: text.count("Joined") == 2, timeout_s=STEP_S)
