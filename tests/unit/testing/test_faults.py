"""The fixtures of faults: choices repeat with the seed and the test's name, and what was done is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.testing.faults import Faults
from shoal.testing.tally import TALLY


def choices(seed: str, test: str) -> list[object]:
    faults = Faults(seed, test)
    return [faults.choose("abcdef"), faults.between(0, 1), faults.order(range(10))]


def test_the_same_seed_and_test_make_the_same_choices_and_another_seed_or_test_others() -> None:
    assert choices("1", "a") == choices("1", "a")
    assert choices("1", "a") != choices("2", "a")
    assert choices("1", "a") != choices("1", "b")


def test_the_seed_comes_from_the_environment_and_a_failure_tells_it_with_the_faults(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["shoal.testing.faults"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(faults):\n    faults.note(f'the {faults.choose([1, 2, 3])}th disk')\n    assert not faults.story\n"
    )

    def run(seed: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]
        tally = tmp_path / f"tally-{seed}"
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False,
            env={"PATH": "", "SHOAL_FAULT_SEED": seed, "SHOAL_TALLY_FILE": str(tally)},
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"1 faults injected, 0 operations checked, 0 violations; seeds: {seed}" in done.stdout
        assert '"faults": 1' in tally.read_text()
        return next(line for line in done.stdout.splitlines() if "th disk" in line and "faults" not in line)

    first = run("11")
    assert run("11") == first
    assert any(run(str(seed)) != first for seed in range(12, 16))


async def test_a_slow_process_goes_on_at_the_end_and_a_killed_one_is_dead() -> None:
    faults, before = Faults("1", "slow"), TALLY.faults
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            await faults.slow(process.pid, for_s=0.1)
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state in "RS"
            with faults.stopped(process.pid):
                assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "RST"
        finally:
            faults.kill(process.pid)
        assert process.wait() == -9
    assert TALLY.faults == before + 3 and len(faults.story) == 3


@pytest.mark.parametrize("fixture", ["fault_seed", "faulty_process", "skewed_clock", "lossy"])
def test_every_fixture_can_be_asked_for(fixture: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(fixture) is not None
