"""One trace from a request to what an agent reports, exported by every process to a collector."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from shoal.testing.fleets import LocalFleet, app, app_path
from shoal.testing.traces import collector
from shoal.testing.waiting import eventually_blocking

pytestmark = [pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
EXPECTED = {
    ("shoal-control", "api.request"), ("shoal-control", "stream.send"), ("shoal-control", "control.report"),
    ("shoal-krane", "krane.apply"), ("shoal-krane", "krane.report"), ("shoal-cluster", "apiserver.request"),
    ("shoal-relay", "relay.forward"),
}  # fmt: skip

OF_UP = {
    ("shoal-control", "api.request"), ("shoal-control", "stream.send"), ("shoal-navigator", "navigator.store"),
    ("shoal-cluster", "apiserver.request"), ("shoal-cluster", "krane.apply"), ("shoal-cluster", "krane.report"),
    ("shoal-cluster", "edge.state"), ("shoal-cluster", "reconcile"), ("shoal-shard-worker", "shard.handle"),
    ("shoal-sentinel", "ingress"),
}  # fmt: skip
UP_S = 180.0


def test_a_request_s_trace_reaches_the_collector_from_the_control_plane_the_agent_and_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as found:
        # of what has no trace of its own hardly anything is recorded; what comes with a sampled one is
        for name, value in found.environment(SHOAL_TRACES_RATIO="0.000001").items():
            monkeypatch.setenv(name, value)
        with LocalFleet(tmp_path) as fleet:
            fleet.start({"eu-1": "eu"})
            fleet.start_relay("eu-1")
            fleet.start_agents([("eu-1", "default")])
            fleet.watched_by("eu-1")
            document = app("web", {"eu": 1})
            fleet.api.request("PUT", app_path("web"), document, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
            eventually_blocking(lambda: found.names(TRACE), until=EXPECTED.issubset, timeout_s=60, explain=fleet.logs)
        parents = {span.id: span.name for span in found.spans}
        assert "krane.apply" in {parents.get(span.parent) for span in found.spans if span.name == "apiserver.request"}
        assert {span.trace for span in found.spans} == {TRACE}, "the ratio holds for all other requests"


def test_everything_that_up_starts_sends_its_spans(tmp_path: Path) -> None:
    """Control plane, navigator with its edge, the cluster with agent and shard manager, shard workers, and Envoy."""
    log = tmp_path / "up.log"
    with collector() as found:
        environ = {
            **os.environ, **found.environment(), "SHOAL_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1",
            "SHOAL_KRANE_GATEWAY_TRACES_PERCENT": "100",
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "shoal",
            "up",
            "--dir",
            environ["SHOAL_HOME"],
            "--port",
            "0",
            "--regions",
            "eu",
        ]
        with log.open("wb") as out:
            up = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environ)
        try:
            eventually_blocking(lambda: "\nready\n" in log.read_text() or up.poll() is not None, timeout_s=UP_S)
            gateway = re.search(r"Host: (\S+)' http://([\d.]+):(\d+)/", log.read_text())
            assert gateway is not None, log.read_text()
            eventually_blocking(lambda: ask(*gateway.groups()), until=(200).__eq__, timeout_s=60)
            eventually_blocking(
                found.names, until=OF_UP.issubset, timeout_s=120, explain=lambda: f"missing: {OF_UP - found.names()}"
            )
        finally:
            up.terminate()
            up.wait(60)


def ask(host: str, address: str, port: str) -> int:
    with closing(HTTPConnection(address, int(port), timeout=10)) as connection:
        connection.request("GET", "/", headers={"Host": host})
        return connection.getresponse().status
