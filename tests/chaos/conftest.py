"""Long tests that break things on purpose: only run when this folder is asked for (`make chaos`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.testing.tally import TALLY

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("chaos")
    terminalreporter.write_line(str(TALLY))


@pytest.fixture(autouse=True)
def seeds(request: pytest.FixtureRequest) -> None:
    """Count the seeds of tests that have some."""
    known = getattr(request.node, "callspec", None)
    if known is not None and "seed" in known.params:
        TALLY.seeds.add(str(known.params["seed"]))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked_for = any("chaos" in argument for argument in config.args)
    return None if asked_for else True
