"""The demo application behind a gateway of a fleet whose pods are processes: what tests of traffic ask of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from shoal.testing.fleets import ENVIRONMENT, PROJECT, Api, LocalFleet, app
from shoal.testing.waiting import eventually_blocking

APP, HOST = "web", "shop.example"
_PROGRAM = "shoal.app.demo"

eventually_in_traffic = partial(eventually_blocking, timeout_s=120.0, every_s=0.05)
"""Waits for rolls and restarts, which take long on a busy machine. It polls less often, since each
``RequestLoad.outcomes()`` reads a whole file."""


@contextmanager
def demo_fleet(folder: Path) -> Iterator[LocalFleet]:
    """A fleet of one region that has been told of the demo and its route."""
    with LocalFleet(folder) as fleet:
        fleet.start({"eu-1": "eu"}, flags=("--runtime", "process"))
        try:
            fleet.start_agents([("eu-1", "default")])
            fleet.api.apply(demo_app("v1"), _route())
            yield fleet
        finally:
            for cluster in fleet.clusters.values():
                cluster.process.stop()  # one that is killed would leave its pods running


def demo_app(tag: str, replicas: int = 2) -> dict[str, Any]:
    return app(
        APP, {"eu": replicas}, image=f"shoal/demo-app:{tag}", resources={"cpu": "50m", "memory": "64Mi"},
        healthcheck={"http": {"path": "/health"}, "period": 1},
    )  # fmt: skip


def _route() -> dict[str, Any]:
    about = {"name": APP, "project": PROJECT, "environment": ENVIRONMENT}
    return {"apiVersion": "shoal.dev/v1", "kind": "Route", "metadata": about, "spec": {"host": HOST, "app": APP}}


def gateway_address(api: Api) -> str:
    """Where the environment's gateway takes requests, once it is healthy."""

    def look() -> str:
        items = api.get(f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels")["items"]
        found = [one["status"] for one in items if one["status"].get("health") == "healthy"]
        return found[0].get("address") or "" if found else ""

    return str(eventually_in_traffic(look, what="a healthy gateway"))


def process_of(instance: str) -> int:
    """The process that an instance of the demo is; 0 when it is not running."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_instance(entry, instance):
            return int(entry.name)
    return 0


def _is_instance(entry: Path, instance: str) -> bool:
    try:
        program = (entry / "cmdline").read_text().split("\0")
        return _PROGRAM in program and f"SHOAL_INSTANCE_ID={instance}" in (entry / "environ").read_text().split("\0")
    except OSError:
        return False  # it ended meanwhile


def kill(pid: int) -> float:
    """The moment by which the process is dead and its connections are closed."""
    os.kill(pid, signal.SIGKILL)
    eventually_blocking(lambda: _is_dead(pid), every_s=0.001, what="the end of a killed process")
    return time.monotonic()


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
