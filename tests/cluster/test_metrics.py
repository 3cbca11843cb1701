"""Every part of a cluster's process counts into the /metrics of that process."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal.app.ports import any_free
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
        expected = {
            "workqueue_adds_total", "scheduler_pending_pods", "shard_controller_shards_total",
            "shoal_service_proxy_listeners",
        }  # fmt: skip
        return {"service-proxy", "endpointslice"} - reconciled | expected - set(found)

    eventually_blocking(missing, until=lambda names: not names, every_s=0.2, what="metrics of every part")
    found = series(cluster)
    assert {labels["queue"] for labels, _ in found["scheduler_pending_pods"]} >= {"active", "backoff", "unschedulable"}
    assert any(value for _, value in found["workqueue_adds_total"])
    assert found["shoal_service_proxy_starts_total"][0][1] == 1
    assert {labels["phase"] for labels, _ in found["shard_controller_shards_total"]} >= {"Pending", "Running"}


def test_every_part_of_a_process_has_a_check_under_its_name(cluster: ServerProcess) -> None:
    def ready() -> bool:
        parts = ("kube-scheduler", "kube-controller-manager", "kubelet", "kube-proxy", "sharding")
        return {page(cluster, f"/readyz/{name}") for name in parts} == {"ok"}

    eventually_blocking(ready, every_s=0.2, what="readiness of every part")
    results = {labels["name"]: value for labels, value in series(cluster, "/metrics/slis")["kubernetes_healthcheck"]}
    assert results["kube-scheduler"] == results["sharding"] == results["store"] == 1


def test_a_process_without_an_api_server_has_a_port_of_its_own_for_health_and_metrics(
    cluster: ServerProcess, tmp_path: Path
) -> None:
    port = any_free("127.0.0.1")
    flags = ("--kubeconfig", cluster.kubeconfig, "--health-port", str(port))
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(tmp_path), *flags]
    process = subprocess.Popen([*command, "--components", "scheduler,controllers"])

    def answer(path: str) -> tuple[int, str]:
        with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path)
            with connection.getresponse() as found:
                return found.status, found.read().decode()

    try:
        status, body = eventually_blocking(
            lambda: answer("/readyz"), until=lambda found: found[0] == 200, every_s=0.2, retry_on=(OSError,)
        )
        assert '"kube-scheduler":"ok"' in body and '"kube-controller-manager":"ok"' in body
        assert answer("/livez")[0] == answer("/healthz")[0] == 200
        status, body = answer("/metrics")
        assert status == 200 and "process_resident_memory_bytes" in body
    finally:
        process.terminate()
        process.wait()
