"""A control plane, a navigator and clusters of processes that are about to join."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from shoal.cli.contexts import Context, save_context
from shoal.testing.fleets import FleetCluster, LocalFleet
from shoal.testing.managers import ManagerProcess

REPOSITORY = "registry.example/team/shoal"
IMAGE = f"{REPOSITORY}:1"


@dataclass(frozen=True, slots=True)
class JoiningFleet:
    """``home`` has the context of an administrator."""

    fleet: LocalFleet
    manager: ManagerProcess
    cluster: FleetCluster
    home: Path

    def shoal(self, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command as a user would."""
        environ = {**os.environ, "SHOAL_HOME": str(self.home)}
        return subprocess.run(
            [sys.executable, "-m", "shoal", *arguments], env=environ, capture_output=True, text=True, timeout=timeout_s
        )


@contextmanager
def joining_fleet(folder: Path, runtime: str) -> Iterator[JoiningFleet]:
    """With a cluster `eu-1` of one node, where the image of ``IMAGE`` is this checkout."""
    with LocalFleet(folder) as fleet:
        own = folder / "clusters" / "eu-1"
        cluster = FleetCluster("eu-1", "eu", own, "--nodes", "1", "--runtime", runtime)
        paths = [_shim(folder), *(each for each in sys.path if each)]
        program = {"argv": [_python(), "-m", "shoal"], "env": {"PYTHONPATH": os.pathsep.join(paths)}}
        (own / "images.yaml").write_bytes(orjson.dumps({"images": {REPOSITORY: program}}))
        (folder / "navigator").mkdir()
        manager = ManagerProcess(folder / "navigator", "--port", "0")
        fleet.clusters["eu-1"] = cluster
        try:
            with ThreadPoolExecutor() as pool:
                started = pool.submit(manager.start)
                fleet.start({})  # with the cluster above, which it does not know yet
                started.result()
            yield JoiningFleet(fleet, manager, cluster, _home(folder, fleet, manager))
        finally:
            manager.kill()


def _python() -> str:
    """An interpreter that the agents' user may run too: root's own may be in a folder of root."""
    for path in (Path(sys.executable).resolve(), Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")):
        if path.exists() and all(folder.stat().st_mode & 0o001 for folder in path.parents):
            return str(path)
    pytest.skip("no Python of this version that another user may run")


def _shim(folder: Path) -> str:
    """A folder with what redis-py needs beside a Python before 3.11.3, which the other interpreter may be."""
    shim = folder / "shim"
    shim.mkdir(mode=0o755)
    folder.chmod(0o755)
    (shim / "async_timeout.py").write_text("from asyncio import timeout as timeout\n")
    return str(shim)


def _home(folder: Path, fleet: LocalFleet, manager: ManagerProcess) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700)
    known = fleet.api.context
    save_context(
        home,
        Context(
            "test", known.url, known.token, known.ca, navigator=manager.url, navigator_token=manager.admin_token,
            navigator_ca=manager.ca.decode(),
        ),
    )  # fmt: skip
    return home
