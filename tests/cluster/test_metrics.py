"""Every part of a cluster's process counts into the /metrics of that process."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually_blocking

ALL = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes", "--sharding")


def page(server: ServerProcess, path: str) -> str:
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cafile=server.ca_file)
    with closing(HTTPSConnection(host, int(port), context=context, timeout=30)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
        with connection.getresponse() as answer:
            text = answer.read().decode()
            assert answer.status == 200, text
            return text


def series(server: ServerProcess, path: str = "/metrics") -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page(server, path)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with server_process(folder, *ALL) as server:
        yield server


def test_scheduler_controllers_proxy_and_shard_manager_report_on_the_metrics_of_their_process(
    cluster: ServerProcess,
) -> None:
    def missing() -> set[str]:
        """What does not report yet: the parts start one after the other, once each leads."""
        found = series(cluster)
        reconciled = {labels["controller"] for labels, value in found.get("shoal_reconcile_total", ()) if value}
        expected = {"workqueue_adds_total", "scheduler_pending_pods", "shard_controller_shards_total"}
        return {"service-proxy", "endpointslice"} - reconciled | expected - set(found)

    eventually_blocking(missing, until=lambda names: not names, every_s=0.2, what="metrics of every part")
    found = series(cluster)
    assert {labels["queue"] for labels, _ in found["scheduler_pending_pods"]} >= {"active", "backoff", "unschedulable"}
    assert any(value for _, value in found["workqueue_adds_total"])
    assert {labels["phase"] for labels, _ in found["shard_controller_shards_total"]} >= {"Pending", "Running"}
