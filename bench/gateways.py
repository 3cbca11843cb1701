"""The gateways that the benchmark compares: bare Envoy, nginx, HAProxy and a sentinel; and the instance behind them.

Each has one thread on the first CPU; the load and the instance, which all of them share, run on the last.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.client import Client, ResourceType, TransportError, builtin, connect, load
from shoal.crds.sentinel import definitions
from shoal.errors import ApiError
from shoal.krane.sentinels import install
from shoal.kube.objects import Obj
from shoal.sentinel.inputs import POLICY_TYPE, ROUTE_TYPE
from shoal.sentinel.supervisor import find_envoy
from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually, eventually_blocking

HOST = "127.0.0.1"
ENVIRONMENT = "env_bench"
LABELS = {"shoal.dev/environment": ENVIRONMENT}
SLICES = builtin("endpointslices", "discovery.k8s.io")
_TYPE = "type.googleapis.com/envoy.extensions.filters"
_RETRY = "type.googleapis.com/envoy.extensions.retry"
_CPUS = sorted(os.sched_getaffinity(0))
_START_S = 30.0
_BODY = "x" * 100


@dataclass(frozen=True, slots=True)
class Gateway:
    """``pid`` is the process that passes requests on, ``own`` the one that tells it how."""

    name: str
    port: int
    pid: int
    own: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"


def cpu_s(pid: int) -> float:
    """Of all threads, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def on_first_cpu(command: Sequence[str]) -> list[str]:
    return ["taskset", "-c", str(_CPUS[0]), *command]


def on_last_cpu(command: Sequence[str]) -> list[str]:
    return ["taskset", "-c", str(_CPUS[-1]), *command]


@contextmanager
def running(name: str, command: Sequence[str], port: int) -> Iterator[Gateway]:
    """Entered when the port takes connections."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _same_priority(process.pid)
        _await_port(process, port)
        yield Gateway(name, port, process.pid)
    finally:
        process.kill()
        process.communicate()


def _same_priority(pid: int) -> None:
    """Sessions are scheduled as groups. All gateways have one of their own, and the priority of ours."""
    own = Path("/proc/self/autogroup")
    if own.exists():
        Path(f"/proc/{pid}/autogroup").write_text(own.read_text().split()[-1])


def _await_port(process: subprocess.Popen[str], port: int) -> None:
    def listens() -> bool:
        assert process.poll() is None, "the process has exited"
        socket.create_connection((HOST, port), 1).close()
        return True

    try:
        eventually_blocking(listens, timeout_s=_START_S, every_s=0.02, retry_on=(OSError,))
    except (AssertionError, OSError) as error:
        process.kill()
        raise RuntimeError(f"it did not start: {process.communicate()[1][-2000:]}") from error


# Envoy without us


@contextmanager
def instance() -> Iterator[int]:
    """Answers at once; an Envoy of its own, which is there in any case. Its port."""
    port = any_free(HOST)
    answer = {"status": 200, "body": {"inline_string": _BODY}}
    named = {"header": {"key": "x-instance", "value": str(port)}}
    action = {"direct_response": answer, "response_headers_to_add": [named]}
    with running("instance", on_last_cpu(_envoy(port, action, [])), port):
        yield port


@contextmanager
def bare_envoy(to: int) -> Iterator[Gateway]:
    """One listener, one route, one cluster; everything else as Envoy has it."""
    port = any_free(HOST)
    command = _envoy(port, {"route": {"cluster": "app"}}, [_app(to)])
    with running("bare Envoy", on_first_cpu(command), port) as found:
        yield found


@contextmanager
def dutiful_envoy(to: int) -> Iterator[Gateway]:
    """The same with what every request through a sentinel gets: retries and timeouts, X-Forwarded-For, a request id in
    the answer, plain paths. What is then left to a sentinel is the price of routes and policies that come and go."""
    port = any_free(HOST)
    retries = {
        "retry_on": "5xx",
        "num_retries": 2,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": f"{_RETRY}.host.previous_hosts.v3.PreviousHostsPredicate"},
            }
        ],
    }
    action = {"cluster": "app", "timeout": "60s", "idle_timeout": "300s", "retry_policy": retries}
    duties = {
        "use_remote_address": True,
        "always_set_request_id_in_response": True,
        "stream_idle_timeout": "10s",
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    }
    app = {**_app(to), "outlier_detection": {}, "lb_policy": "LEAST_REQUEST"}
    command = _envoy(port, {"route": action}, [app], **duties)
    with running("Envoy with the same duties", on_first_cpu(command), port) as found:
        yield found


def _app(to: int) -> Obj:
    at = {"endpoint": {"address": _address(to)}}
    assignment = {"cluster_name": "app", "endpoints": [{"lb_endpoints": [at]}]}
    return {"name": "app", "type": "STATIC", "load_assignment": assignment}


def _envoy(port: int, action: Obj, clusters: list[Obj], **duties: Any) -> list[str]:
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}.http.router.v3.Router"}}
    manager = {
        "@type": f"{_TYPE}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **action}]}]
        },
        "http_filters": [router],
        **duties,
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "in", "address": _address(port), "filter_chains": [{"filters": filters}]}
    config = {"static_resources": {"listeners": [listener], "clusters": clusters}}
    flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [str(find_envoy()), "--config-yaml", json.dumps(config), *flags]


def _address(port: int) -> Obj:
    return {"socket_address": {"address": HOST, "port_value": port}}


# others


@contextmanager
def nginx(to: int, folder: Path) -> Iterator[Gateway]:
    port, config = any_free(HOST), folder / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; upstream app {{ server {HOST}:{to}; keepalive 64; }}\n"
        f"server {{ listen {HOST}:{port}; keepalive_requests 100000000; location / {{ proxy_pass http://app; "
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; '
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } } }\n"
    )
    command = on_first_cpu([_program("nginx"), "-p", str(folder), "-c", str(config)])
    with running("nginx", command, port) as found:
        yield found


@contextmanager
def haproxy(to: int, folder: Path) -> Iterator[Gateway]:
    port, config = any_free(HOST), folder / "haproxy.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n"
        "  timeout server 60s\n  http-reuse always\n  option forwardfor\n"
        f"frontend in\n  bind {HOST}:{port}\n  default_backend app\nbackend app\n  server a {HOST}:{to}\n"
    )
    with running("HAProxy", on_first_cpu([_program("haproxy"), "-db", "-f", str(config)]), port) as found:
        yield found


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def missing(name: str, package: str) -> str:
    """Why it cannot be used; empty when it can."""
    return "" if _program(name) else f"{name} is not there: apt-get install {package}"


# a sentinel


@dataclass(frozen=True, slots=True)
class Sentinel:
    """A gateway as a process beside the API server that it reads from."""

    gateway: Gateway
    server: ServerProcess

    def client(self) -> Any:
        """A context manager."""
        return connect(load(Path(self.server.kubeconfig)), clock=RealClock(), field_manager="bench")


@contextmanager
def sentinel(
    objects: Sequence[tuple[ResourceType, Obj]], *, redis_url: str = "", traces_url: str = ""
) -> Iterator[Sentinel]:
    """Entered when it has all of the objects. With a ``traces_url`` it traces 1 % of the requests."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gb")))
        flags = ("--port", "0", "--components", "apiserver,nodes", "--nodes", "1", "--runtime", "simulated")
        server = stack.enter_context(server_process(folder / "cluster", *flags))
        made = Sentinel(Gateway("sentinel", any_free(HOST), 0), server)
        asyncio.run(_prepare(made, objects))
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "sentinel", "start", "--log-level", "error"],
            stdout=(folder / "out").open("wb"), env=_environ(made.gateway.port, server, redis_url, traces_url),
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)
        _await_ready(process, folder / "out")
        envoy = _envoy_of(process.pid)
        subprocess.run(["taskset", "-a", "-p", "-c", str(_CPUS[0]), str(envoy)], check=True, stdout=subprocess.DEVNULL)
        _same_priority(envoy)
        yield Sentinel(Gateway("sentinel", made.gateway.port, envoy, process.pid), server)


def _environ(port: int, server: ServerProcess, redis_url: str, traces_url: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("KUBERNETES_", "SHOAL_"))}
    ours = {
        "CONCURRENCY": "1", "SHARED": "true", "PORT": str(port), "HEALTH_PORT": str(any_free(HOST)),
        "METRICS_PORT": str(any_free(HOST)), "REDIS_URL": redis_url,
        "TRACES_URL": traces_url, "TRACES_PERCENT": "1",
    }  # fmt: skip
    return {
        **plain,
        "KUBECONFIG": server.kubeconfig,
        **{f"SHOAL_SENTINEL_{name}": value for name, value in ours.items()},
    }


def _await_ready(process: subprocess.Popen[bytes], out: Path) -> None:
    def is_ready() -> bool:
        return process.poll() is not None or bool(re.search(rb"^ready ", out.read_bytes(), re.MULTILINE))

    eventually_blocking(is_ready, timeout_s=120, every_s=0.05, what="the ready line of the sentinel")
    if process.poll() is not None:
        raise RuntimeError("the sentinel did not start")


def _envoy_of(pid: int) -> int:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in found if Path(f"/proc/{one}/comm").read_text().strip() == "envoy")


async def _prepare(made: Sentinel, objects: Sequence[tuple[ResourceType, Obj]]) -> None:
    async with made.client() as client:
        await client.of(builtin("namespaces")).create({"metadata": {"name": "apps"}})
        for shared in install.shared_objects():
            await (await client.by_kind(shared["kind"], shared["apiVersion"])).create(shared)
        for definition in definitions():
            await client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(definition)
        for type_ in (ROUTE_TYPE, POLICY_TYPE):
            await _served(client, type_)
        for at in range(0, len(objects), 50):
            await asyncio.gather(*(client.of(type_).create(obj) for type_, obj in objects[at : at + 50]))


async def _served(client: Client, type_: ResourceType) -> None:
    await eventually(client.of(type_).list, until=lambda _: True, every_s=0.05, retry_on=(ApiError, TransportError))


def route(name: str, deployment: str, **spec: Any) -> tuple[ResourceType, Obj]:
    """To one deployment, for the host ``NAME.example``."""
    backend = {"deployment": deployment, "namespace": "apps", "service": deployment}
    whole = {"environment": ENVIRONMENT, "host": f"{name}.example", "backends": [backend], "policies": [], **spec}
    return ROUTE_TYPE, _object(ROUTE_TYPE, name, whole)


def policy(name: str, **spec: Any) -> tuple[ResourceType, Obj]:
    return POLICY_TYPE, _object(POLICY_TYPE, name, {"environment": ENVIRONMENT, **spec})


def _object(type_: ResourceType, name: str, spec: Obj) -> Obj:
    about = {"name": name, "namespace": "sentinel", "labels": LABELS}
    return {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": about, "spec": spec}


def endpoints(deployment: str, port: int, addresses: Sequence[str] = (HOST,)) -> tuple[ResourceType, Obj]:
    labels = {**LABELS, "kubernetes.io/service-name": deployment}
    return SLICES, {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": deployment, "namespace": "apps", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
    }
