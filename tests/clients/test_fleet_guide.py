"""The guide to the fleet does what it says: its ``shoal`` lines are run, in order, against ``shoal up``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "fleet.md"
START_S = 120.0
STEP_S = 120.0


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a shell beside a running ``shoal up`` has."""
    home = tmp_path / "home"
    words = tmp_path / "bin"
    words.mkdir()
    (words / "shoal").write_text(f'#!/bin/sh\nexec {sys.executable} -m shoal "$@"\n')
    (words / "shoal").chmod(0o755)
    found = {
        **os.environ, "SHOAL_HOME": str(home), "PATH": f"{words}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT / "src"), "TMP_FOLDER": str(tmp_path),
    }  # fmt: skip
    command = [sys.executable, "-m", "shoal", "up", "--dir", str(home), "--port", "0", "--empty"]
    log = tmp_path / "up.log"
    with log.open("wb") as out:
        up = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=found)
    try:
        deadline = time.monotonic() + START_S
        while "\nready\n" not in log.read_text():
            assert up.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found
    finally:
        up.terminate()
        up.wait(60)


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output that is shown for it."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE):
            line, _, output = command.partition("\n")
            if "shoal " in line or line.startswith("sed "):
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


def test_every_shoal_line_works_and_shows_what_the_guide_shows(environment: dict[str, str]) -> None:
    found = list(steps(GUIDE.read_text()))
    assert len(found) > 10
    for line, output in found:
        line = line.replace("/tmp/", f"{environment['TMP_FOLDER']}/")
        if line.endswith(" -w"):
            assert ": Ready, ready 2/2" in watched(line, environment)
            continue
        if line == "shoal agents":
            wait_for_agents(environment)
        ran = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=STEP_S, check=False
        )  # fmt: skip
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
        missing = {word for word in lasting_words(output) if word not in ran.stdout}
        assert not missing, f"{line} does not show {missing}:\n{ran.stdout}{ran.stderr}"


def wait_for_agents(environment: dict[str, str]) -> None:
    """`up` is ready when the clusters are; their agents join a moment later."""
    deadline = time.monotonic() + STEP_S
    while True:
        shown = subprocess.run(["shoal", "agents"], capture_output=True, text=True, env=environment, check=True).stdout
        if shown.count("Joined") == 2:
            return
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)
