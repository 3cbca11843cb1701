"""Fixtures of all tests. They keep the state of the user who runs the tests out, and make hypothesis repeatable."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from shoal.base import logs
from shoal.base.clock import FakeClock

settings.register_profile(
    "shoal", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
QUICK_EXAMPLES = 10
settings.register_profile("quick", settings.get_profile("shoal"), max_examples=QUICK_EXAMPLES)  # for `make check`
settings.register_profile("explore", deadline=None, max_examples=2000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "shoal")
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quick profile also limits properties that state their own number of examples."""
    for item in items if PROFILE == "quick" else ():
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples > QUICK_EXAMPLES:
            test._hypothesis_internal_use_settings = settings(own, max_examples=QUICK_EXAMPLES)


def pytest_collection_finish() -> None:
    """What collecting left stays for the whole run: the collector need not walk it again for each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def private_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run by a test use a home of its own and none of the caller's SHOAL_* settings."""
    for name in [name for name in os.environ if name.startswith("SHOAL_") or name == "KUBECONFIG"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path_factory.getbasetemp() / "home"))
    yield
    logs.configure()


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of async tests and fixtures: a new one for each test. A test that needs uvloop parametrizes this."""
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds the README."""
    return Path(__file__).resolve().parents[1]
