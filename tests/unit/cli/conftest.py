"""A real control plane that the tests of the commands share, and fixtures that run commands against it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.app.main import main
from shoal.cli.contexts import Context, current_context, save_context
from shoal.cli.rest import Rest

_numbers = count(1)
_LINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ran:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    def rows(self) -> list[list[str]]:
        """The lines of a table, as words."""
        return [line.split() for line in self.out.splitlines()]


Shoal = Callable[..., Ran]


@pytest.fixture(scope="session")
def control_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of a control plane with the regions eu, us and ap (two clusters), and a context for it."""
    home = tmp_path_factory.mktemp("fleet")
    folder = home / "control"
    command = [sys.executable, "-m", "shoal", "control", "start", "--dir", str(folder), "--port", "0", "--stop-on-eof"]
    log = (home / "control.log").open("wb")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), (home / "control.log").read_text()
        token = (folder / "admin.token").read_text().strip()
        ca = (folder / "pki" / "ca.crt").read_text()
        save_context(home, Context("local", line.removeprefix("ready ").strip(), token, ca))
        rest = Rest(current_context(home, environ={}))
        places: list[dict[str, Any]] = [a_document("Region", name) for name in ("eu", "us", "ap")]
        for name, region in (("eu-1", "eu"), ("us-1", "us"), ("ap-1", "ap"), ("ap-2", "ap")):
            places.append(a_document("Cluster", name, spec={"region": region}))
        rest.request("POST", "/api/v1/apply", places)
        rest.close()
        yield home
    finally:
        process.terminate()
        process.communicate(timeout=20)
        log.close()


@pytest.fixture
def shoal(
    control_home: Path, private_state: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shoal:
    """Runs a command against the control plane."""
    monkeypatch.setenv("SHOAL_HOME", str(control_home))

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
def project(shoal: Shoal) -> str:
    """A new project with the environment production."""
    name = f"p{next(_numbers)}"
    assert shoal("create", "project", name).code == 0
    assert shoal("create", "environment", "production", "-p", name).code == 0
    return name


@pytest.fixture
def spawned(control_home: Path, private_state: None) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that runs until it is stopped, as a process; it is killed after ``_LINE_S``."""
    started: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []
    environment = {**os.environ, "SHOAL_HOME": str(control_home), "PYTHONUNBUFFERED": "1"}

    def spawn(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "shoal", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        timers.append(threading.Timer(_LINE_S, process.kill))
        timers[-1].start()
        return process

    yield spawn
    for timer in timers:
        timer.cancel()
        timer.join()
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def a_document(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec or {}}


def an_app(project: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    made = {"image": "shoal/echo", "topology": [{"region": "eu", "replicas": 2}, {"region": "us"}], **spec}
    return a_document("App", name, made, project=project, environment="production")


def a_file(folder: Path, *documents: dict[str, Any], name: str = "file.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)
