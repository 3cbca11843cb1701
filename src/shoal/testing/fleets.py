"""Fleets of real processes that a test can kill, pause and start again.

    with LocalFleet(folder) as fleet:
        fleet.start({"eu-1": "eu", "us-1": "us"})                            # control plane and clusters
        fleet.start_agents([("eu-1", "default"), ("us-1", "default")])
        fleet.api.apply(app("web", {"eu": 2, "us": 1}))
        fleet.control.kill(); fleet.control.start()
        fleet.agents["eu-1", "default"].pause()

A cluster is ``shoal cluster start`` with simulated nodes; an agent is ``shoal krane start`` with its own account and
rights in the cluster, not the administrator's. All methods block: use ``asyncio.to_thread`` in an event loop. To put a
proxy of ``shoal.testing.proxy`` in between, pass its port: ``new_agent(…, port=, api_port=)``.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from shoal.app.fleet.credentials import export_credentials
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.files import holder_of, write_private
from shoal.cli.contexts import Context
from shoal.cli.rest import CannotReach, RequestRefused, Rest, RestReply
from shoal.client import Client, builtin, connect, load
from shoal.errors import AlreadyExists
from shoal.krane import rbac
from shoal.testing.proxy import TcpProxy
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually_blocking

HOST = "127.0.0.1"
PROJECT, ENVIRONMENT = "shop", "live"
READY_S = 60.0
_STOP_S = 15.0
_AGAIN_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A ``shoal`` process. It ends when this process ends, even by SIGKILL. ``python`` decides which Shoal it is, and
    may be changed while it does not run."""

    def __init__(self, name: str, *arguments: str, log: Path, python: str = sys.executable) -> None:
        self.name = name
        self.log = log
        self.python = python
        self._arguments = arguments
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._running is not None, f"{self.name} does not run"
        return self._running.pid

    def start(self) -> str:
        """Start it and wait until it is ready; returns the rest of its ready line."""
        with self.log.open("ab") as errors:
            self._running = subprocess.Popen(
                [self.python, "-m", "shoal", *self._arguments, "--stop-on-eof"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        assert self._running.stdout is not None
        readable, _, _ = select.select([self._running.stdout], [], [], READY_S)
        line = self._running.stdout.readline().decode() if readable else ""
        if not line.startswith("ready"):
            self.kill()
            raise RuntimeError(f"{self.name} did not start; it said {line!r}\n{self.tail()}")
        return line.removeprefix("ready").strip()

    def kill(self) -> None:
        """End it with SIGKILL."""
        TALLY.faults += 1
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stop it with SIGSTOP; its connections stay open."""
        TALLY.faults += 1
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def tail(self, characters: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-characters:]

    @property
    def memory_mib(self) -> float:
        """Its resident set."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _end(self, how: signal.Signals) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        with suppress(ProcessLookupError):
            os.kill(running.pid, how)
            os.kill(running.pid, signal.SIGCONT)
        try:
            running.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        for pipe in (running.stdin, running.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Api:
    """The control plane's REST API, usable from any thread. Apps are in ``ENVIRONMENT`` of ``PROJECT``."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._rest = Rest(context)
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> RestReply:
        with self._lock:
            return self._rest.request(method, f"/api/v1{path}", body, headers=headers)

    def get(self, path: str) -> Any:
        return self.request("GET", path).body

    def apply(self, *documents: dict[str, Any]) -> list[dict[str, Any]]:
        reply = self.request("POST", "/apply", list(documents))
        assert reply.status == 200, reply.body
        found: list[dict[str, Any]] = reply.body["items"]
        return found

    def put(self, document: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an app; the change is acknowledged when this returns."""
        found: dict[str, Any] = self.request("PUT", app_path(document["metadata"]["name"]), document).body
        return found

    def until_acknowledged(
        self, method: str, path: str, body: Any = None, *, timeout_s: float = 60.0, done: Sequence[int] = ()
    ) -> int:
        """Send a request until it is acknowledged, while the control plane is away; returns the number of attempts.

        ``done`` are status codes that mean that an earlier attempt, whose answer was lost, has succeeded.
        """
        attempts = 0

        def attempt() -> int:
            nonlocal attempts
            attempts += 1
            try:
                self.request(method, path, body)
            except RequestRefused as error:
                if error.status in done and attempts > 1:
                    return attempts
                if error.status < 500 and error.status not in (409, 429):
                    raise
                raise AssertionError(f"{method} {path}: {error.status} {error}") from error
            return attempts

        return int(eventually_blocking(attempt, timeout_s=timeout_s, every_s=_AGAIN_S, retry_on=(CannotReach,)))

    def app_status(self, name: str) -> dict[str, Any]:
        """The app's desired and reported state in each region."""
        found: dict[str, Any] = self.get(f"{app_path(name)}/status")
        return found

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the control plane, summed over all series with these labels."""
        with self._lock:
            text = str(self._rest.request("GET", "/metrics").body)
        return metric_sum(text, name, **labels)

    def close(self) -> None:
        self._rest.close()


def app_path(name: str) -> str:
    return f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps/{name}"


def app(name: str, replicas: Mapping[str, int], *, marker: str = "", **spec: Any) -> dict[str, Any]:
    """The document of an app. ``marker`` sets a variable in every region, which makes a revision."""
    overrides = {"overrides": {"env": {"MARKER": marker}}} if marker else {}
    topology = [{"region": region, "replicas": count, **overrides} for region, count in replicas.items()]
    return _document("App", name, {"image": "shoal/echo:1", "port": 8080, "topology": topology, **spec}, inside=True)


def metric_sum(text: str, name: str, **labels: str) -> float:
    """Sum a metric of the text format over all series with these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    total = 0.0
    for line in text.splitlines():
        head, _, value = line.rpartition(" ")
        if head.partition("{")[0] == name and all(each in head for each in wanted):
            total += float(value)
    return total


class FleetCluster:
    """One cluster process and its administrator's access."""

    def __init__(self, name: str, region: str, folder: Path, *flags: str, python: str = sys.executable) -> None:
        self.name = name
        self.region = region
        self.folder = folder
        self.port = any_free(HOST)
        folder.mkdir(parents=True, exist_ok=True)
        self.process = Process(
            f"cluster {name}", "cluster", "start", "--dir", str(folder), "--port", str(self.port), "--runtime",
            "simulated", "--log-level", "warning", *flags, log=folder / "log", python=python,
        )  # fmt: skip

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def client(self) -> Any:
        """A context manager that gives a client with the administrator's rights."""
        return connect(load(self.kubeconfig), clock=RealClock(), field_manager="administrator")

    def agent_kubeconfig(self, path: Path, *, port: int = 0) -> Path:
        """Install an agent's account and rights, as ``shoal krane manifests`` prints them; returns its kubeconfig."""
        token = asyncio.run(self._account())
        content = orjson.loads(self.kubeconfig.read_bytes())
        content["clusters"][0]["cluster"]["server"] = f"https://{HOST}:{port or self.port}"
        content["users"][0]["user"] = {"token": token}
        write_private(path, orjson.dumps(content))
        return path

    async def _account(self) -> str:
        async with self.client() as client:
            await install_agent(client)
            account = client.of(builtin("serviceaccounts"))
            path = account.type.path(rbac.NAMESPACE, rbac.SERVICE_ACCOUNT, "token")
            made = await client.request("POST", path, body={"spec": {"expirationSeconds": 86400}})
            return str(made["status"]["token"])


async def install_agent(admin: Client) -> None:
    """Install the account and rights of an agent."""
    for manifest in rbac.manifests():
        with suppress(AlreadyExists):
            await (await admin.by_kind(manifest["kind"], manifest["apiVersion"])).create(manifest)


class LocalFleet:
    """A control plane (or several on one PostgreSQL), clusters and agents, in a folder."""

    def __init__(
        self, folder: Path, *, database: str = "", log_level: str = "warning", python: str = sys.executable
    ) -> None:
        """``log_level`` is that of control planes. ``python`` runs all processes: another release has its own."""
        self.folder = folder
        self.python = python
        self._log_level = log_level
        self.database = database or f"sqlite:///{folder / 'control' / 'fleet.db'}"
        self.control_port = any_free(HOST)
        self.control = self.new_control("control", self.control_port)
        self.controls = [self.control]
        self.clusters: dict[str, FleetCluster] = {}
        self.agents: dict[tuple[str, str], Process] = {}
        self.standbys: list[Process] = []
        self.health_ports: dict[str, int] = {}
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        assert self._api is not None, "not started"
        return self._api

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._api is not None:
            self._api.close()
        clusters = [cluster.process for cluster in self.clusters.values()]
        with ThreadPoolExecutor() as pool:  # in any order
            for process in (*self.agents.values(), *self.standbys, *clusters, *self.controls):
                pool.submit(process.kill)
        for cluster in self.clusters.values():  # a service proxy outlives a cluster that is killed
            if (proxy := holder_of(cluster.folder / "proxy" / "proxy.lock")) is not None:
                os.kill(proxy, signal.SIGKILL)

    # parts

    def new_control(self, name: str, port: int) -> Process:
        """A control plane, not started. A further one on the same database gets the keys and tokens of the first."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        shared: tuple[str, ...] = ()
        if name != "control":
            shared = ("--credentials", str(self.folder / "credentials.json"))
            export_credentials(self.folder / "control", self.folder / "credentials.json")
        return Process(
            name, "control", "start", "--dir", str(folder), "--database", self.database, "--port",
            str(port), "--log-level", self._log_level, *shared, log=folder / "log", python=self.python,
        )  # fmt: skip

    def new_relay(self, region: str, port: int, *flags: str) -> Process:
        """A relay, not started. Its agents join at ``port`` and trust ``relay_ca``."""
        folder = self.folder / "relay"
        folder.mkdir(parents=True, exist_ok=True)
        join = self.api.request("POST", "/tokens", {"kind": "relay", "name": f"relay-{region}", "region": region})
        write_private(folder / "join.json", orjson.dumps(join.body["join"]))
        process = Process(
            f"relay {region}", "control", "start", "--relay", f"https://{HOST}:{self.control_port}", "--token-file",
            str(folder / "join.json"), "--dir", str(folder), "--port", str(port), *flags, log=folder / "log",
            python=self.python,
        )  # fmt: skip
        self.standbys.append(process)
        return process

    def start_relay(self, cluster: str) -> Process:
        """Start the relay of a cluster's region; the cluster's agent will join there."""
        port, path = any_free(HOST), self.join_file(cluster)
        process = self.new_relay(self.clusters[cluster].region, port)
        process.start()
        join = orjson.loads(path.read_bytes())
        write_private(path, orjson.dumps({**join, "url": f"https://{HOST}:{port}", "ca": self.relay_ca()}))
        return process

    def relay_ca(self) -> str:
        return (self.folder / "relay" / "pki" / "ca.crt").read_text()

    def add_control(self, name: str) -> int:
        """Start a further control plane; returns its port."""
        port = any_free(HOST)
        process = self.new_control(name, port)
        self.controls.append(process)
        process.start()
        return port

    def start(
        self, clusters: Mapping[str, str], *, shards: Sequence[str] = ("default",), flags: Sequence[str] = ()
    ) -> None:
        """Start the control plane and the clusters (name → region), and register them; agents are not started."""
        for name, region in clusters.items():
            folder = self.folder / "clusters" / name
            self.clusters[name] = FleetCluster(name, region, folder, "--nodes", "2", *flags, python=self.python)
        with ThreadPoolExecutor() as pool:
            processes = [self.control, *(cluster.process for cluster in self.clusters.values())]
            for each in [pool.submit(process.start) for process in processes]:
                each.result()
        self._api = self.connect(self.control_port)
        self.api.apply(
            *(_document("Region", region, {}) for region in sorted(set(clusters.values()))),
            *(_document("Cluster", name, {"region": region, "shards": list(shards)})
              for name, region in clusters.items()),
            _document("Project", PROJECT, {}),
            {**_document("Environment", ENVIRONMENT, {}),
             "metadata": {"name": ENVIRONMENT, "project": PROJECT}},
        )  # fmt: skip

    def use_control(self, port: int) -> None:
        """Send requests of ``api``, and those of relays that are made later, to this port."""
        self.control_port, before = port, self._api
        self._api = self.connect(port)
        if before is not None:
            before.close()

    def connect(self, port: int) -> Api:
        """A client of the control plane, or of a proxy in front of it."""
        folder = self.folder / "control"
        token = (folder / "admin.token").read_text().strip()
        return Api(Context("test", f"https://{HOST}:{port}", token, (folder / "pki" / "ca.crt").read_text()))

    def join_file(self, cluster: str, shard: str = "default", *, port: int = 0) -> Path:
        """Create a join file; ``port`` is that of a proxy in front of the control plane."""
        path = self.folder / f"join-{cluster}-{shard}.json"
        if not path.exists():
            region = self.clusters[cluster].region
            body = {"kind": "agent", "name": f"{cluster}-{shard}", "cluster": cluster, "region": region, "shard": shard}
            join = self.api.request("POST", "/tokens", body).body["join"]
            if port:
                join["url"] = f"https://{HOST}:{port}"
            write_private(path, orjson.dumps(join))
        return path

    def new_agent(
        self, cluster: str, shard: str = "default", *, name: str = "", port: int = 0, api_port: int = 0,
        elect: bool = False,
    ) -> Process:  # fmt: skip
        """An agent, not started. ``port`` and ``api_port`` are those of proxies in front of the control plane and
        of the cluster."""
        name = name or f"{cluster}-{shard}"
        folder = self.folder / "agents" / name
        folder.mkdir(parents=True, exist_ok=True)
        self.health_ports[name] = any_free(HOST)
        kubeconfig = self.clusters[cluster].agent_kubeconfig(folder / "kubeconfig", port=api_port)
        return Process(
            f"agent {name}", "krane", "start", "--join", str(self.join_file(cluster, shard, port=port)),
            "--kubeconfig", str(kubeconfig), "--dir", str(folder / "state"), "--port", str(self.health_ports[name]),
            "--name", name, "--elect" if elect else "--no-elect", "--log-level", "info", log=folder / "log",
            python=self.python,
        )  # fmt: skip

    def start_agents(self, places: Sequence[tuple[str, str]], **how: Any) -> None:
        for place in places:
            self.agents[place] = self.new_agent(*place, **how)
        with ThreadPoolExecutor() as pool:
            for each in [pool.submit(self.agents[place].start) for place in places]:
                each.result()

    def watched_by(self, cluster: str, shard: str = "default") -> None:
        """Wait until an agent has synced: what changes afterwards reaches it as a change of its own."""

        def connection() -> str:
            known = self.agent_status(f"{cluster}-{shard}")["controllers"].get("deployments") or {}
            return str(known.get("connection"))

        eventually_blocking(connection, until="watching".__eq__, timeout_s=60, explain=self.logs)

    def agent_metric(self, name: str, metric: str, **labels: str) -> float:
        """A metric of an agent, summed over the series that have these labels."""
        return metric_sum(str(self._ask_agent(name, "/metrics")), metric, **labels)

    def agent_status(self, name: str) -> Any:
        return self._ask_agent(name, "/status")

    def agent_health(self, name: str) -> Any:
        return self._ask_agent(name, "/readyz")

    def _ask_agent(self, name: str, path: str) -> Any:
        plain = Rest(Context("agent", f"http://{HOST}:{self.health_ports[name]}", "", ""))
        try:
            return plain.request("GET", path).body
        finally:
            plain.close()

    def logs(self) -> str:
        """The last log lines of all processes, for the message of a failed test."""
        clusters = [cluster.process for cluster in self.clusters.values()]
        processes = (*self.controls, *clusters, *self.agents.values(), *self.standbys)
        return "\n".join(f"--- {each.name}\n{each.tail()}" for each in processes if each.log.exists())


class Balancer(TcpProxy):
    """A proxy in front of several ports: each connection goes to the next port that accepts it."""

    def __init__(self, *targets: int) -> None:
        super().__init__(targets[0])
        self.targets = list(targets)
        self._turn = 0

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.targets:
            self._turn += 1
            with suppress(OSError):
                return await asyncio.open_connection(HOST, self.targets[self._turn % len(self.targets)])
        raise ConnectionRefusedError


def _document(kind: str, name: str, spec: dict[str, Any], *, inside: bool = False) -> dict[str, Any]:
    where = {"project": PROJECT, "environment": ENVIRONMENT} if inside else {}
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **where}, "spec": spec}
