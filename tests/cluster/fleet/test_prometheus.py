"""The alert rules in Debian's Prometheus: their waiting times, and an alert that fires when an agent is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import yaml

from shoal.app.ports import any_free
from shoal.cli.contexts import Context
from shoal.cli.rest import Rest
from shoal.testing.waiting import eventually_blocking

ROOT = Path(__file__).parents[3]
SHOAL = (sys.executable, "-m", "shoal")
RULES = ROOT / "deploy" / "monitoring" / "rules.yaml"
FAST = {
    "SHOAL_CONTROL_SERVICE__HEARTBEAT_S": "0.5",
    "SHOAL_CONTROL_SERVICE__MISSED_HEARTBEATS": "2",
    "SHOAL_CONTROL_SERVICE__HEARTBEAT_FLUSH_S": "0.5",
}
TIMEOUT_S = 60.0

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed: apt-get install prometheus (scripts/prometheus.sh)",
)


def test_a_lost_agent_must_stay_lost_for_a_minute(tmp_path: Path) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    (lost,) = (rule for rule in rules if rule["alert"] == "ShoalAgentLost")
    fires = {
        "exp_labels": {**lost["labels"], "state": "lost", "instance": "c"},
        "exp_annotations": {name: text.replace("{{ $value }}", "1") for name, text in lost["annotations"].items()},
    }
    case = {
        "interval": "15s",
        "input_series": [{"series": 'shoal_control_agents{state="lost",instance="c"}', "values": "0 0 1x3 0 0 1x20"}],
        "alert_rule_test": [
            {"eval_time": "75s", "alertname": "ShoalAgentLost", "exp_alerts": []},
            {"eval_time": "3m45s", "alertname": "ShoalAgentLost", "exp_alerts": [fires]},
        ],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def started(command: list[str], folder: Path, name: str, until: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; entered when it has printed a line that begins with ``until``."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE if until else log, stderr=log, env={**os.environ, **FAST}
        )
        try:
            if process.stdout is not None:
                for line in process.stdout:
                    if line.startswith(until.encode()):
                        break
                else:
                    raise AssertionError((folder / f"{name}.log").read_text())
            yield process
        finally:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


class Prometheus:
    """A server at a port, and what it is asked."""

    def __init__(self, port: int) -> None:
        self._port = port

    def command(self, config: Path, data: Path, *flags: str) -> list[str]:
        where = f"--web.listen-address=127.0.0.1:{self._port}"
        return ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", where, *flags]

    def get(self, path: str) -> Any:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=10)) as connection:
            connection.request("GET", path)
            with connection.getresponse() as answer:
                assert answer.status == 200, path
                return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        found = self.get(f"/api/v1/query?query={quote(expression)}")["result"]
        return float(found[0]["value"][1]) if found else -1.0

    def firing(self) -> set[str]:
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def configuration(folder: Path, endpoints: dict[str, Any], rules: Path) -> dict[str, Any]:
    """As in docs/guides/monitoring.md."""
    (cluster,) = endpoints["clusters"]
    state, token = Path(cluster["kubeconfig"]).parent, folder / "cluster.token"
    create = [*SHOAL, "token", "create", "--dir", str(state), "--user", "prometheus", "--group", "system:monitoring"]
    subprocess.run([*create, "--to", str(token)], check=True)
    whole, ca = {"authorization": {"credentials_file": str(token)}}, state / "pki" / "ca.crt"

    def job(name: str, url: str, ca: object, **more: Any) -> dict[str, Any]:
        target = {"targets": [urlsplit(url).netloc]}
        return {
            "job_name": name, "scheme": "https", "tls_config": {"ca_file": str(ca)}, "static_configs": [target], **more,
        }  # fmt: skip

    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            job("shoal-control", endpoints["control"]["url"], endpoints["control"]["ca"]),
            job("shoal-navigator", endpoints["navigator"]["url"], endpoints["navigator"]["ca"]),
            job("shoal-cluster", cluster["url"], ca, **whole),
            job("shoal-cluster-slis", cluster["url"], ca, metrics_path="/metrics/slis", **whole),
        ],
    }


def impatient(folder: Path) -> Path:
    """The rules without their waiting times, which ``promtool`` tests."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


def documented() -> set[str]:
    """The names in docs/metrics.md as Prometheus stores them."""
    spec = importlib.util.spec_from_file_location("metrics_table", ROOT / "scripts" / "metrics_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found: set[str] = set()
    for descriptions in script.tables().values():
        for one in descriptions:
            ends = ("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",)
            found |= {f"{one.name}{end}" for end in ends}
    return found


def join_file(folder: Path, endpoints: dict[str, Any]) -> Path:
    """For an agent of another cluster of the fleet."""
    control = endpoints["control"]
    context = Context("t", control["url"], Path(control["token"]).read_text().strip(), Path(control["ca"]).read_text())
    with closing(Rest(context)) as rest:
        cluster = {"apiVersion": "shoal.dev/v1", "kind": "Cluster", "metadata": {"name": "eu-2"}}
        rest.request("PUT", "/api/v1/clusters/eu-2", {**cluster, "spec": {"region": "eu"}})
        body = {"kind": "agent", "name": "agent-eu-2", "cluster": "eu-2", "region": "eu", "shard": "default"}
        made = rest.request("POST", "/api/v1/tokens", body).body
    path = folder / "join.json"
    path.write_text(json.dumps(made["join"]))
    path.chmod(0o600)
    return path


def test_an_alert_fires_when_an_agent_is_killed_and_every_scraped_metric_is_documented(tmp_path: Path) -> None:
    up = [*SHOAL, "up", "--dir", str(tmp_path / "up"), "--regions", "eu", "--empty", "--port", "0"]
    with started(up, tmp_path, "up", "ready"):
        endpoints = json.loads((tmp_path / "up" / "endpoints.json").read_text())
        config = tmp_path / "prometheus.yaml"
        config.write_text(yaml.safe_dump(configuration(tmp_path, endpoints, impatient(tmp_path))))
        prometheus, native = Prometheus(any_free("127.0.0.1")), Prometheus(any_free("127.0.0.1"))
        server = prometheus.command(config, tmp_path / "data")
        fine = native.command(config, tmp_path / "native", "--enable-feature=native-histograms")
        krane = [
            *SHOAL, "krane", "start", "--join", str(join_file(tmp_path, endpoints)), "--dir", str(tmp_path / "krane"),
            "--kubeconfig", endpoints["clusters"][0]["kubeconfig"], "--port", "0",
        ]  # fmt: skip
        with (
            started(server, tmp_path, "prometheus"),
            started(fine, tmp_path, "native"),
            started(krane, tmp_path, "krane") as agent,
        ):
            eventually_blocking(
                lambda: prometheus.value('sum(shoal_control_agents{state="alive"})') == 2
                and prometheus.value("sum(up)") == 4,
                timeout_s=TIMEOUT_S, every_s=0.2, retry_on=(OSError, AssertionError), what="two agents, four targets",
            )  # fmt: skip
            assert "ShoalAgentLost" not in prometheus.firing()
            own = {"up", "ALERTS", "ALERTS_FOR_STATE"}
            scraped = set(prometheus.get("/api/v1/label/__name__/values")) - own
            assert {"apiserver_request_total", "shoal_krane_connected", "shoal_edge_connected"} <= scraped
            assert {"shard_controller_unowned_slots", "shoal_navigator_edges", "kubernetes_healthcheck"} <= scraped
            assert not {name for name in scraped if not name.startswith("scrape_")} - documented()
            finest = "histogram_quantile(0.5, sum(apiserver_request_duration_seconds))"  # it asks for protobuf
            eventually_blocking(
                lambda: native.value(finest), until=lambda found: 0 < found < 1, every_s=0.2, retry_on=(OSError,)
            )
            agent.send_signal(signal.SIGKILL)
            eventually_blocking(
                prometheus.firing, until=lambda names: "ShoalAgentLost" in names, timeout_s=TIMEOUT_S, every_s=0.2,
            )  # fmt: skip
