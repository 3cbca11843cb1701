"""Fixtures of all tests. They keep the state of the user who runs the tests out, and make hypothesis repeatable."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from shoal.base import logs
from shoal.base.clock import FakeClock

pytest_plugins = ["shoal.testing.faults"]

settings.register_profile(
    "shoal", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
QUICK_EXAMPLES = 10
settings.register_profile("quick", settings.get_profile("shoal"), max_examples=QUICK_EXAMPLES)  # for `make check`
settings.register_profile("explore", deadline=None, max_examples=2000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "shoal")
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    golden = parser.getgroup("golden files of the command line")
    golden.addoption("--update-golden", action="store_true", help="write the golden files anew")
    golden.addoption(
        "--record-answers", metavar="DIR", default="", help="record answers of the fleet of `up --dir DIR`"
    )


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


class AsyncioErrors(logging.Handler):
    """What event loops report and nobody handles: errors of tasks and futures that were never looked at, tasks that
    were destroyed while they ran, errors of callbacks. Loops of anyio's tests raise most of them by themselves; the
    rest, and those of all other loops, come here through asyncio's logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self.found.append(f"{record.getMessage()}{cause}")

    def take(self) -> str:
        found, self.found = "\n".join(self.found), []
        return found


ASYNCIO_ERRORS = AsyncioErrors()
logging.getLogger("asyncio").addHandler(ASYNCIO_ERRORS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """A test after which a loop has reported an error fails, also when its own assertions hold."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()  # errors of what is left in cycles are reported when it is collected
    if found := ASYNCIO_ERRORS.take():
        pytest.fail(f"an event loop reported an error, during this test or one before it:\n{found}", pytrace=False)


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
