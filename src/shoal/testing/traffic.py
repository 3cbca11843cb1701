"""A fleet with the demo application behind a gateway, whose pods are processes, for tests of traffic.

with demo_fleet(folder) as fleet, RequestLoad(file, gateway_address(fleet.api), HOST, rate=150, mix=("GET /",)):
    fleet.api.put(demo_app("v2"))
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
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
def demo_fleet(folder: Path, clusters: Mapping[str, str] = {"eu-1": "eu"}) -> Iterator[LocalFleet]:
    """Start a fleet (by default of one region) and apply the demo app and its route."""
    with LocalFleet(folder) as fleet:
        fleet.start(dict(clusters), flags=("--runtime", "process"))
        try:
            fleet.start_agents([(cluster, "default") for cluster in clusters])
            fleet.api.apply(demo_app("v1", regions=tuple(clusters.values())), demo_route())
            yield fleet
        finally:
            for cluster in fleet.clusters.values():
                cluster.process.stop()  # if killed, it would leave its pods running


def demo_app(tag: str, replicas: int = 2, *, regions: Sequence[str] = ("eu",), **spec: Any) -> dict[str, Any]:
    return app(
        APP, dict.fromkeys(regions, replicas), image=f"shoal/demo-app:{tag}",
        **{"resources": {"cpu": "50m", "memory": "64Mi"}, "healthcheck": {"http": {"path": "/health"}, "period": 1},
           **spec},
    )  # fmt: skip


def demo_route() -> dict[str, Any]:
    about = {"name": APP, "project": PROJECT, "environment": ENVIRONMENT}
    return {"apiVersion": "shoal.dev/v1", "kind": "Route", "metadata": about, "spec": {"host": HOST, "app": APP}}


def gateway_address(api: Api, region: str = "eu") -> str:
    """Wait for a healthy gateway of the environment in a region; returns its address."""

    def look() -> str:
        items = api.get(f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels")["items"]
        here = [one["status"] for one in items if one["spec"]["region"] == region]
        found = [status for status in here if status.get("health") == "healthy"]
        return found[0].get("address") or "" if found else ""

    return str(eventually_in_traffic(look, what="a healthy gateway"))


def supervisor_of(pod: str) -> int:
    """The pid of a gateway's supervisor; waits until it runs."""

    def look() -> int:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _is_supervisor(entry, pod):
                return int(entry.name)
        return 0

    return int(eventually_blocking(look, timeout_s=60.0, what=f"the supervisor of {pod}"))


def _is_supervisor(entry: Path, pod: str) -> bool:
    try:
        words = (entry / "cmdline").read_text().split("\0")
        return "sentinel" in words and "start" in words and f"POD_NAME={pod}" in (entry / "environ").read_text()
    except OSError:
        return False


def process_of(instance: str) -> int:
    """The pid of an instance of the demo app; 0 if it does not run."""
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
    """Kill a process; returns a moment by which it is dead and its connections are closed."""
    os.kill(pid, signal.SIGKILL)
    eventually_blocking(lambda: _is_dead(pid), every_s=0.001, what="the end of a killed process")
    return time.monotonic()


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
