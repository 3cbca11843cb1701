"""A whole cluster with `--runtime sandbox`: probes, exec and port-forward reach pods, which outlive a killed cluster, and
`shoal down --purge` leaves nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from shoal.app.commands.down import delete_state, stop_all
from shoal.app.kubectl import find_kubectl
from shoal.base.clock import RealClock
from shoal.base.files import holder_of
from shoal.client import Client, builtin, connect, load
from shoal.node.runtime.process.records import main_of
from shoal.testing.images import BuiltImage, digest, entry, folder, layer_of, link, saved
from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.waiting import eventually

API = "https://kubernetes.default.svc.cluster.local/livez"
POD: dict[str, Any] = {
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "web",
                "image": "shoal/echo",
                "env": [{"name": "PORT", "value": "80"}],
                "ports": [{"containerPort": 80}],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 1},
                "livenessProbe": {"exec": {"command": ["test", "-e", "/memory"]}},
                "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}],
    },
}


def start(folder: Path) -> ServerProcess:
    return start_server_process(folder, "--port", "0", "--runtime", "sandbox", components="")


async def ready(client: Client, name: str = "web") -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        pod = await client.of(builtin("pods")).get(name, "default")
        conditions = (pod.get("status") or {}).get("conditions") or ()
        return pod if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) else None

    found: dict[str, Any] = await eventually(look, timeout_s=60)
    return found


def kubectl(cluster: ServerProcess, *words: str) -> str:
    command = [str(find_kubectl()), "--kubeconfig", str(cluster.kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


async def balancer(client: Client) -> str:
    async def look() -> str:
        service = await client.of(builtin("services")).get("web", "default")
        found = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}]
        return str(found[0].get("ip") or "")

    found: str = await eventually(look, timeout_s=30)
    return found


def fetch(address: str, port: int) -> bytes:
    with closing(HTTPConnection(address, port, timeout=5)) as made:
        made.request("GET", "/healthz")
        return made.getresponse().read()


async def reaches_services(cluster: ServerProcess, client: Client) -> str:
    """The pod by a Service: from itself by its name, from the machine by the address of a balancer."""
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 18080, "targetPort": 80}]}
    await client.of(builtin("services")).create({"metadata": {"name": "web"}, "spec": spec}, "default")
    address = await balancer(client)

    async def served() -> bool:
        with suppress(OSError):
            return await asyncio.to_thread(fetch, address, 18080) == b"ok\n"
        return False

    await eventually(served, timeout_s=30)
    inside = "http://web.default.svc.cluster.local:18080/healthz"
    assert kubectl(cluster, "exec", "web", "--", "curl", "-sS", "-m5", inside) == "ok\n"
    ca = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    assert kubectl(cluster, "exec", "web", "--", "curl", "-sS", "-m5", "--cacert", ca, API) == "ok"
    return address


async def isolate(cluster: ServerProcess, client: Client) -> None:
    """A policy that denies all of the pod's connections is enforced, also those to DNS, until it is deleted."""
    policies = client.of(builtin("networkpolicies", "networking.k8s.io"))
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"]}
    await policies.create({"metadata": {"name": "deny"}, "spec": spec}, "default")
    ask = (
        "exec",
        "web",
        "--",
        "sh",
        "-c",
        "RES_OPTIONS='timeout:1 attempts:1' getent ahostsv4 kubernetes.default.svc.cluster.local >&2 && echo yes || echo no",
    )

    async def answers(expected: str) -> bool:
        return await asyncio.to_thread(kubectl, cluster, *ask) == expected

    await eventually(lambda: answers("no\n"), timeout_s=30)
    await policies.delete("deny", "default")
    await eventually(lambda: answers("yes\n"), timeout_s=30)


async def test_pods_of_a_cluster_with_sandboxes_work_outlive_it_and_leave_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "clusters" / "eu-1"
    folder.mkdir(parents=True)
    lock = folder / "sandbox" / "helper.lock"
    first = start(folder)
    try:
        async with connect(load(first.kubeconfig), clock=RealClock()) as client:
            await eventually(lambda: client.of(builtin("serviceaccounts")).get("default", "default"), timeout_s=60)
            await client.of(builtin("pods")).create(POD, "default")
            pod = await ready(client)
            assert pod["status"]["podIP"].startswith("10.244.")
            assert pod["status"]["containerStatuses"][0]["containerID"].startswith("sandbox://")
            assert kubectl(first, "exec", "web", "--", "sh", "-c", "echo kept > /memory/f; ls /proc | grep -c '^[0-9]'")
            assert "GET /healthz 200" in kubectl(first, "logs", "web")
            outside = await reaches_services(first, client)
            await isolate(first, client)
    finally:
        first.kill()
    assert fetch(outside, 18080) == b"ok\n"  # also without the cluster's process
    (container,) = folder.glob("nodes/*/containers/*")
    main = main_of(container)
    assert main is not None and main.alive
    second = start(folder)
    try:
        async with connect(load(second.kubeconfig), clock=RealClock()) as client:
            assert (await ready(client))["status"]["containerStatuses"][0]["restartCount"] == 0
            assert await balancer(client) == outside
        assert kubectl(second, "exec", "web", "--", "cat", "/memory/f") == "kept\n"
    finally:
        second.kill()
    stopped = await stop_all(tmp_path, clock=RealClock())
    assert any("outlived eu-1" in each for each in stopped)
    assert not main.alive and holder_of(lock) is None
    (tmp_path / "up.lock").touch()
    await delete_state(tmp_path, clock=RealClock())
    assert not tmp_path.exists()
    os.makedirs(tmp_path)  # pytest removes it itself


def pod_of(name: str, image: str) -> dict[str, Any]:
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}


async def test_pods_run_from_real_images_and_a_bad_image_is_an_event(tmp_path: Path) -> None:
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    layer = layer_of(
        folder("bin"), entry("bin/busybox", busybox.read_bytes(), mode=0o755), link("bin/sh", "busybox"),
        entry("etc/release", b"test image\n"),
    )  # fmt: skip
    image = BuiltImage((layer,), {"Env": ["PATH=/bin"], "Cmd": ["busybox", "sleep", "600"]})
    cluster = start(tmp_path)
    load_image = [sys.executable, "-m", "shoal", "image", "load", "--dir", str(tmp_path)]
    try:
        async with connect(load(cluster.kubeconfig), clock=RealClock()) as client:
            await eventually(lambda: client.of(builtin("serviceaccounts")).get("default", "default"), timeout_s=60)
            pods, archive = client.of(builtin("pods")), saved(image, tmp_path / "image.tar", "shop/web:1")
            subprocess.run([*load_image, str(archive)], check=True, timeout=60)
            await pods.create(pod_of("real", "shop/web:1"), "default")
            await pods.create(pod_of("missing", "127.0.0.1:1/shop/web:1"), "default")
            pod = await ready(client, "real")
            assert pod["status"]["containerStatuses"][0]["imageID"].endswith(digest(image.settings)[7:])
            assert kubectl(cluster, "exec", "real", "--", "busybox", "cat", "/etc/release").startswith("test image\n")
            assert "home" not in kubectl(cluster, "exec", "real", "--", "busybox", "ls", "/")

            async def failed() -> bool:
                return "connection refused" in kubectl(cluster, "get", "events")

            await eventually(failed, timeout_s=30)
            assert 'Failed to pull image "127.0.0.1:1/shop/web:1"' in kubectl(cluster, "get", "events")
    finally:
        cluster.kill()
        await stop_all(tmp_path, clock=RealClock())
