"""``shoal import`` against a cluster: it writes what `shoal apply` takes, or says why it does not."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import yaml

from shoal.base.clock import RealClock
from shoal.client import builtin, connect, load
from shoal.testing.servers import server_process


async def test_a_deployment_of_a_cluster_is_written_as_an_app() -> None:
    labels = {"app": "web"}
    container = {"name": "web", "image": "shop/web:v1", "ports": [{"name": "http", "containerPort": 3000}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    with server_process(None, "--port", "0", "--components", "apiserver") as server:
        async with connect(load(server.kubeconfig), clock=RealClock()) as client:
            await client.of(builtin("deployments", "apps")).create(
                {"metadata": {"name": "web", "namespace": "default"},
                 "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}}
            )  # fmt: skip
            await client.of(builtin("services")).create(
                {"metadata": {"name": "web", "namespace": "default"},
                 "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]}}
            )  # fmt: skip
        code, text, said = await run_import(server.kubeconfig, "deployment/web")
        assert code == 0, said
        found = yaml.safe_load(text)
        assert found["spec"] == {"image": "shop/web:v1", "port": 3000, "topology": [{"region": "eu", "replicas": 2}]}
        code, text, said = await run_import(server.kubeconfig, "deployment/gone")
        assert code == 1 and not text and "gone" in said
        code, _, said = await run_import(server.kubeconfig, "statefulset/web")
        assert code == 2 and "use deployment/NAME" in said


async def run_import(kubeconfig: str, workload: str) -> tuple[int, str, str]:
    command = ["-m", "shoal", "import", "--kubeconfig", kubeconfig, "-n", "default", workload, "--region", "eu"]
    command += ["-p", "demo", "-e", "production"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=PIPE)
    text, said = await process.communicate()
    return process.returncode or 0, text.decode(), said.decode()
