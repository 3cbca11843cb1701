"""What the documents that Shoal grew from show, tried on ``shoal up`` as a new user would: their YAML as it stands, and the
names and paths that they give."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shoal.app.kubectl import kubectl_word
from shoal.testing.waiting import eventually_blocking

REGION = "us-1"  # it has no ShardConfig of the demo
SHARD_CONFIG = """\
apiVersion: shard.io/v1
kind: ShardConfig
metadata:
  name: example-config
spec:
  minShards: 2
  maxShards: 10
  scaleUpThreshold: 0.8
  scaleDownThreshold: 0.3
  loadBalanceStrategy: "consistent-hash"
  healthCheckInterval: "30s"
  resources:
    requests:
      cpu: "200m"
      memory: "256Mi"
    limits:
      cpu: "500m"
      memory: "512Mi"
"""
SHARD_INSTANCE = """\
apiVersion: shard.io/v1
kind: ShardInstance
metadata:
  name: shard-001
spec:
  shardId: "shard-001"
  hashRange:
    start: 0
    end: 1073741823
status:
  phase: "Running"
  load: 0.65
  lastHeartbeat: "2024-01-15T10:30:00Z"
  assignedResources: ["resource-001", "resource-002"]
"""
RESOURCES = 40
METRICS = (
    "shard_controller_shards_total", "shard_controller_load_average", "shard_controller_scaling_operations_total",
    "shard_controller_migration_duration_seconds",
)  # fmt: skip
_SOON_S = 90.0


class Kubectl:
    def __init__(self, environment: dict[str, str], cluster: str = REGION) -> None:
        self._kubeconfig = Path(environment["SHOAL_HOME"]) / "clusters" / cluster / "kubeconfig"

    def __call__(self, *arguments: str, text: str = "") -> str:
        command = [*kubectl_word().split(), "--kubeconfig", str(self._kubeconfig), *arguments]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "-o", "json"))


def is_running(shard: Any) -> bool:
    """Whether it shows all that the document's example shows."""
    status = shard.get("status") or {}
    shown = {"load", "lastHeartbeat", "assignedResources"} <= status.keys() and "hashRange" in shard["spec"]
    return bool(status.get("phase") == "Running" and shown)


@pytest.mark.xdist_group("shoal up")
def test_the_shards_of_the_documents_yaml_run_and_share_the_work(environment: dict[str, str]) -> None:
    kubectl = Kubectl(environment)
    kubectl("apply", "-f", "-", text=SHARD_CONFIG)
    documents = [
        {"apiVersion": "shard.io/v1", "kind": "ShardedResource", "metadata": {"name": f"resource-{number:03}"},
         "spec": {"number": number}}
        for number in range(RESOURCES)
    ]  # fmt: skip
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def shards(count: int) -> bool:
        return sum(map(is_running, kubectl.get("shardinstances")["items"])) >= count

    def is_processed() -> bool:
        found = kubectl.get("shardedresources")["items"]
        return all((each.get("status") or {}).get("phase") == "Processed" for each in found) and len(found) == RESOURCES

    eventually_blocking(lambda: shards(2), timeout_s=_SOON_S, every_s=0.5, what="two running shards")
    eventually_blocking(is_processed, timeout_s=_SOON_S, every_s=0.5, what="all resources processed")
    kubectl("apply", "-f", "-", text=SHARD_INSTANCE)
    what = "the user's shard has joined"
    eventually_blocking(
        lambda: is_running(kubectl.get("shardinstance", "shard-001")), timeout_s=_SOON_S, every_s=0.5, what=what
    )
    metrics = kubectl("get", "--raw", "/metrics")
    assert [name for name in METRICS if f"\n{name}" not in metrics] == []
    kubectl("delete", "shardconfig", "example-config")
    kubectl("delete", "shardinstances,shardedresources", "--all")


@pytest.mark.xdist_group("shoal up")
def test_a_gateway_has_the_names_and_numbers_of_the_document(environment: dict[str, str]) -> None:
    kubectl = Kubectl(environment)
    (gateway,) = kubectl.get("deployments", "-n", "sentinel")["items"]
    pod = gateway["spec"]["template"]["spec"]
    ports = [port["containerPort"] for container in pod["containers"] for port in container.get("ports") or ()]
    assert 8040 in ports
    taint = {"key": "node-class", "operator": "Equal", "value": "sentinel", "effect": "NoSchedule"}
    assert taint in pod["tolerations"]
    assert "topology.kubernetes.io/zone" in [each["topologyKey"] for each in pod["topologySpreadConstraints"]]
    shown = kubectl.get("deployments", "-n", "sentinel", "--show-managed-fields")["items"][0]["metadata"][
        "managedFields"
    ]
    assert ("krane", "Apply") in [(each["manager"], each["operation"]) for each in shown]
    service = next(
        each for each in kubectl.get("services", "-n", "sentinel")["items"]
        if gateway["metadata"]["uid"] in [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
    )  # fmt: skip
    assert service["spec"]["type"] == "ClusterIP" and service["spec"]["ports"][0]["port"] == 8040


@pytest.mark.xdist_group("shoal up")
def test_the_paths_that_the_documents_name_answer(environment: dict[str, str]) -> None:
    kubectl = Kubectl(environment)
    lines = kubectl("get", "--raw", "/api/v1/watch/pods?timeoutSeconds=1").splitlines()
    assert lines and {json.loads(line)["type"] for line in lines} <= {"ADDED", "MODIFIED", "DELETED"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "by-hand"}}
    made = json.loads(kubectl("create", "--raw", "/api/v1/nodes", "-f", "-", text=json.dumps(node)))
    condition = {"type": "Ready", "status": "True", "reason": "Test", "message": "heartbeat"}
    ready = {**node, "status": {"conditions": [condition]}}  # without a resourceVersion: controllers write nodes too
    written = kubectl("replace", "--raw", "/api/v1/nodes/by-hand/status", "-f", "-", text=json.dumps(ready))
    assert json.loads(written)["status"]["conditions"][0]["status"] == "True"
    stale = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
    with pytest.raises(AssertionError, match="the object has been modified"):
        kubectl("replace", "-f", "-", text=json.dumps(stale))
    kubectl("delete", "node", "by-hand")
    leases = {each["metadata"]["name"]: each["spec"] for each in kubectl.get("leases", "-n", "kube-system")["items"]}
    for name in ("kube-scheduler", "kube-controller-manager"):
        assert leases[name]["holderIdentity"] and leases[name]["leaseDurationSeconds"] == 15
    assert kubectl.get("leases", "-n", "kube-node-lease")["items"]
