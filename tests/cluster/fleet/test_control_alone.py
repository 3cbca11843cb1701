"""A control plane alone, on a machine of its own: users and clusters get in at its public address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.app.ports import any_free
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.timeout(120)


@contextmanager
def control(home: Path, *flags: str) -> Iterator[Path]:
    """A running control plane with its state in ``home``; gives its log."""
    log = home.parent / "control.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "control", "start", *flags],
            env={**os.environ, "SHOAL_HOME": str(home)}, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline().startswith(b"ready https://127.0.0.1:")
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()  # type: ignore[union-attr]


def shoal(home: Path, *arguments: str) -> str:
    environ = {**os.environ, "SHOAL_HOME": str(home)}
    command = [sys.executable, "-m", "shoal", *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout


def messages(log: Path) -> dict[str, dict[str, object]]:
    return {line["message"]: line for line in map(json.loads, log.read_text().splitlines())}


def test_it_writes_a_context_with_its_public_address_which_join_files_name_too(tmp_path: Path) -> None:
    home, port = tmp_path / "home", any_free("127.0.0.1")
    url = f"https://localhost:{port}"  # stands for a public name: only the certificate's names let it through
    with control(home, "--port", str(port), "--advertise-url", url) as log:
        assert json.loads(shoal(home, "get", "regions", "-o", "json")) is not None
        join = json.loads(shoal(home, "token", "create", "--kind", "agent", "--cluster", "eu-1", "--region", "eu"))
        assert join["url"] == url
        ready = eventually_blocking(lambda: messages(log)["the control plane is ready"], retry_on=(KeyError,))
        assert ready["url"] == url and ready["context"] == str(home / "config.yaml")
        assert "the advertised URL does not lead here" not in messages(log)


def test_an_address_that_does_not_lead_there_and_one_that_is_missing_are_warnings(tmp_path: Path) -> None:
    nobody = any_free("127.0.0.1")
    flags = ("--host", "0.0.0.0", "--port", str(any_free("127.0.0.1")))
    with control(tmp_path / "home", *flags, "--advertise-url", f"https://127.0.0.1:{nobody}") as log:
        wrong = eventually_blocking(
            lambda: messages(log)["the advertised URL does not lead here"], retry_on=(KeyError,), timeout_s=30
        )
        assert "connection refused" in str(wrong["reason"])
        missing = messages(log)["the public address is not known"]
        assert "--advertise-url" in str(missing["fix"])
