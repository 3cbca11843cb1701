"""What the engine is asked for, and what its answers mean; all without an engine."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.node.runtime.docker import bodies, pause, views
from shoal.node.runtime.docker.config import DockerConfig, find_socket
from shoal.node.runtime.docker.engine import choose_version, error_of, target
from shoal.node.runtime.docker.images import Layers, auth_header, matching, pull_fault
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    ExitReason,
    Image,
    ImageFault,
    Mount,
    PortMapping,
    RegistryCredentials,
    RuntimeFailure,
    Sandbox,
    SandboxSpec,
    Security,
)
from shoal.node.runtime.process.images import parse_reference

CONFIG = DockerConfig(cluster="c1", node="node-1")
PLACE = bodies.CreateContext(config=CONFIG)
SANDBOX = Sandbox(
    id="f" * 64, pod_uid="u1", namespace="ns", name="web", attempt=0, ready=True, addresses=("10.1.2.3",), created_at=1.0
)  # fmt: skip


def a_spec(**more: Any) -> ContainerSpec:
    image = Image(id="sha256:1", names=("busybox:1",), entrypoint=("/entry",), command=("arg",))
    return ContainerSpec(name="main", attempt=2, image=image, image_reference="busybox:1", **more)


# requests


def test_paths_and_queries_are_quoted() -> None:
    path = ("images", "host:5000/a b/c@sha256:12", "json")
    assert target(path, {}) == "/images/host:5000%2Fa%20b%2Fc@sha256:12/json"
    query = {"all": True, "size": False, "tail": 3, "none": None, "filters": {"label": ["a=b&c"]}}
    assert target(("x",), query) == "/x?all=true&size=false&tail=3&filters=%7B%22label%22%3A%5B%22a%3Db%26c%22%5D%7D"


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, b'{"message":"No such container: x\\n"}', "No such container: x"),
        (500, b'{"cause":"c","message":"m","response":500}', "m"),
        (404, b"Not Found\n", "Not Found"),
        (500, b"", "the engine answered with 500"),
        (400, b"[1]", "[1]"),
    ],
)
def test_errors_are_the_engines_own_words(status: int, body: bytes, text: str) -> None:
    found = error_of(status, body)
    assert (found.status, str(found)) == (status, text)


def test_the_newest_version_that_both_know_is_spoken() -> None:
    assert choose_version("1.41", "1.24") == "1.41"
    assert choose_version("1.99", "1.24") == "1.47"
    assert choose_version("1.60", "1.50") == "1.50"
    with pytest.raises(RuntimeFailure, match="1.40"):
        choose_version("1.40", "1.12")
    with pytest.raises(RuntimeFailure, match="'x'"):
        choose_version("x", "")


# the socket


def test_the_socket_is_the_configured_one_else_that_of_the_environment_else_a_usual_one() -> None:
    def found(socket: str, environ: dict[str, str], *there: str) -> str:
        return find_socket(DockerConfig(cluster="c", node="n", socket=socket), environ, there.__contains__)

    assert found("/a", {"DOCKER_HOST": "unix:///b"}, "/a", "/b") == "/a"
    assert found("", {"DOCKER_HOST": "unix:///b"}, "/b", "/var/run/docker.sock") == "/b"
    assert found("", {}, "/run/podman/podman.sock") == "/run/podman/podman.sock"
    assert found("", {"XDG_RUNTIME_DIR": "/me"}, "/me/podman/podman.sock") == "/me/podman/podman.sock"
    with pytest.raises(RuntimeFailure, match=r"at /b:.*systemctl start docker"):
        found("", {"DOCKER_HOST": "unix:///b"})
    with pytest.raises(RuntimeFailure, match=r"/var/run/docker.sock, /run/podman/podman.sock:.*DOCKER_HOST"):
        found("", {})
    with pytest.raises(RuntimeFailure, match="tcp://x:1.*unix:///PATH"):
        found("", {"DOCKER_HOST": "tcp://x:1"})


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"cluster": ""}, {"node": "a/b"}, {"log_bytes": 1}, {"look_s": 0}):
        with pytest.raises(ConfigError):
            DockerConfig(**{"cluster": "c", "node": "n", **wrong})  # type: ignore[arg-type]


# bodies


def test_a_sandbox_has_the_pods_network_name_ports_and_labels() -> None:
    ports = (
        PortMapping(container_port=53, host_port=5353, protocol="UDP", host_ip="127.0.0.1"),
        PortMapping(container_port=80, host_port=8080),
        PortMapping(container_port=80, host_port=8081),
    )
    spec = SandboxSpec(
        pod_uid="u1", namespace="ns", name="web", hostname="web", ports=ports, dns_servers=("10.0.0.1",),
        dns_searches=("ns.svc",), dns_options=("ndots:5",), sysctls={"net.a": "1"},
    )  # fmt: skip
    body = bodies.sandbox_body(spec, "pause", PLACE)
    host = body["HostConfig"]
    assert (body["Hostname"], host["NetworkMode"]) == ("web", "shoal-c1")
    assert host["PortBindings"] == {
        "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "5353"}],
        "80/tcp": [{"HostIp": "", "HostPort": "8080"}, {"HostIp": "", "HostPort": "8081"}],
    }
    assert (host["Dns"], host["DnsSearch"], host["DnsOptions"]) == (["10.0.0.1"], ["ns.svc"], ["ndots:5"])
    assert body["Labels"]["io.kubernetes.pod.uid"] == "u1"
    on_host = bodies.sandbox_body(SandboxSpec(pod_uid="u", namespace="n", name="p", host_network=True), "pause", PLACE)
    assert on_host["HostConfig"]["NetworkMode"] == "host" and "Hostname" not in on_host


def test_names_are_unique_and_taken_by_engines() -> None:
    spec = SandboxSpec(pod_uid="u:1", namespace="ns", name="a.b")
    assert bodies.sandbox_name(spec, CONFIG) == "c1_node-1_pod_ns_a-b_u-1_0"
    names = {bodies.container_name(a_spec(), each, CONFIG) for each in (SANDBOX, _other_sandbox())}
    assert len(names) == 2


def _other_sandbox() -> Sandbox:
    return Sandbox(
        id="e" * 64, pod_uid="u1", namespace="ns", name="web", attempt=1, ready=True, addresses=("10.1.2.4",),
        created_at=2.0,
    )  # fmt: skip


def test_a_container_joins_its_sandbox_and_runs_what_the_pod_says() -> None:
    mount = Mount(host_path="/h:1", container_path="/c", read_only=True, propagation="HostToContainer")
    env = (("A", "1"), ("B", "x=y"), ("A", "2"))
    body = bodies.container_body(a_spec(args=("own",), env=env, mounts=(mount,), tty=True), SANDBOX, PLACE)
    assert (body["Entrypoint"], body["Cmd"]) == (["/entry", "own"], [])
    assert body["Env"] == ["A=2", "B=x=y"]
    host = body["HostConfig"]
    assert host["NetworkMode"] == host["IpcMode"] == f"container:{SANDBOX.id}"
    assert "UTSMode" not in host
    assert host["Mounts"] == [
        {
            "Type": "bind",
            "Source": "/h:1",
            "Target": "/c",
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rslave"},
        }
    ]
    assert host["RestartPolicy"] == {"Name": "no"} and body["Tty"]
    with pytest.raises(CreateFailure, match="no command"):
        bodies.container_body(
            ContainerSpec(name="x", attempt=0, image=Image(id="i", names=()), image_reference="i"), SANDBOX, PLACE
        )


def test_limits_become_shares_quotas_and_bytes() -> None:
    full = ContainerResources(
        cpu_request_milli=250, cpu_limit_milli=1500, memory_request_bytes=100, memory_limit_bytes=200
    )  # fmt: skip
    assert bodies.resources_body(full) == {
        "CpuShares": 256,
        "CpuPeriod": 100_000,
        "CpuQuota": 150_000,
        "Memory": 200,
        "MemorySwap": 200,
        "MemoryReservation": 100,
    }
    assert bodies.resources_body(ContainerResources()) == {}
    assert bodies.resources_body(ContainerResources(cpu_request_milli=1)) == {"CpuShares": 2}


def test_rights_are_as_the_pod_says() -> None:
    security = Security(
        user=1, group=2, supplemental_groups=(3, 4), fs_group=3, allow_privilege_escalation=False,
        added_capabilities=("CAP_NET_ADMIN",), dropped_capabilities=("all",), seccomp_profile="Unconfined",
    )  # fmt: skip
    body = bodies.container_body(a_spec(security=security), SANDBOX, PLACE)
    host = body["HostConfig"]
    assert body["User"] == "1:2"
    assert host["GroupAdd"] == ["3", "4"]
    assert (host["CapAdd"], host["CapDrop"]) == (["NET_ADMIN"], ["ALL"])
    assert host["SecurityOpt"] == ["no-new-privileges", "seccomp=unconfined"]


@pytest.mark.parametrize(
    ("user", "image_user", "refused"),
    [(0, "1000", True), (1000, "", False), (None, "", True), (None, "root:root", True), (None, "1000:0", False),
     (None, "www-data", True)],
)  # fmt: skip
def test_not_as_root_means_that_the_user_is_known_not_to_be(user: int | None, image_user: str, refused: bool) -> None:
    image = Image(id="i", names=(), entrypoint=("/x",), user=image_user)
    spec = ContainerSpec(
        name="x", attempt=0, image=image, image_reference="i", security=Security(user=user, run_as_non_root=True)
    )
    if refused:
        with pytest.raises(CreateFailure, match="non-root|runAsNonRoot"):
            bodies.container_body(spec, SANDBOX, PLACE)
    else:
        bodies.container_body(spec, SANDBOX, PLACE)


# answers


def an_answer(body: dict[str, Any], **state: Any) -> dict[str, Any]:
    """What an engine says about a container made from ``body``."""
    return {
        "Id": "a" * 64,
        "Created": "2024-01-01T00:00:00Z",
        "Image": "sha256:1",
        "Config": {"Labels": body["Labels"], "Tty": False, "StopSignal": "SIGINT"},
        "State": {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}
        | state,
        "NetworkSettings": {"Networks": {"shoal-c1": {"IPAddress": "10.1.2.3", "GlobalIPv6Address": "fd00::3"}}},
    }


def container(**state: Any) -> Container:
    body = bodies.container_body(a_spec(hash="h", labels={"a": "b"}, stdin=True), SANDBOX, PLACE)
    found = views.found_of(an_answer(body, **state), CONFIG)
    assert found is not None and isinstance(found.view, Container)
    assert found.stop_signal == "SIGINT" and found.stdin
    return found.view


def test_a_container_comes_back_with_all_that_it_was_made_with() -> None:
    found = container()
    assert (found.name, found.attempt, found.hash, dict(found.labels)) == ("main", 2, "h", {"a": "b"})
    assert (found.sandbox_id, found.pod_uid, found.image_reference) == (SANDBOX.id, "u1", "busybox:1")
    assert (found.phase, found.started_at, found.finished_at) == (ContainerPhase.CREATED, None, None)


_RAN = {"StartedAt": "2024-01-01T00:00:01Z", "FinishedAt": "2024-01-01T00:00:02Z"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"Status": "running", "Pid": 7, **_RAN}, (ContainerPhase.RUNNING, 0, None)),
        ({"Status": "paused", **_RAN}, (ContainerPhase.RUNNING, 0, None)),
        ({"Status": "exited", "ExitCode": 0, **_RAN}, (ContainerPhase.EXITED, 0, ExitReason.COMPLETED)),
        ({"Status": "stopped", "ExitCode": 3, **_RAN}, (ContainerPhase.EXITED, 3, ExitReason.ERROR)),
        (
            {"Status": "exited", "ExitCode": 137, "OOMKilled": True, **_RAN},
            (ContainerPhase.EXITED, 137, ExitReason.OOM_KILLED),
        ),
        ({"Status": "created", "ExitCode": 127, "Error": "no x"}, (ContainerPhase.EXITED, 127, ExitReason.START_ERROR)),
        ({"Status": "created", "ExitCode": 1, "Error": "no x"}, (ContainerPhase.EXITED, 128, ExitReason.START_ERROR)),
        ({"Status": "exited", "ExitCode": 128}, (ContainerPhase.EXITED, 128, ExitReason.START_ERROR)),
        ({"Status": "something"}, (ContainerPhase.UNKNOWN, 0, None)),
    ],
)
def test_states_of_the_engine_are_phases_with_reasons(state: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = container(**state)
    assert (found.phase, found.exit_code, found.reason) == expected


def test_nothing_ends_before_it_has_started() -> None:
    found = container(Status="exited", StartedAt="2024-01-01T00:00:01.5Z", FinishedAt="2024-01-01T00:00:01.4Z")
    assert found.started_at == found.finished_at


def test_a_sandbox_is_ready_while_it_runs_and_has_an_address() -> None:
    spec = SandboxSpec(pod_uid="u", namespace="ns", name="p", attempt=3)
    body = bodies.sandbox_body(spec, "pause", PLACE)
    running = views.found_of(an_answer(body, Status="running"), CONFIG)
    assert running is not None and isinstance(running.view, Sandbox)
    assert (running.view.ready, running.view.addresses, running.view.attempt) == (True, ("10.1.2.3", "fd00::3"), 3)
    ended = views.found_of(an_answer(body, Status="exited"), CONFIG)
    assert ended is not None and isinstance(ended.view, Sandbox)
    assert (ended.view.ready, ended.view.addresses) == (False, ())


def test_what_is_somebody_elses_is_not_seen() -> None:
    body = bodies.container_body(a_spec(), SANDBOX, PLACE)
    assert views.found_of(an_answer(body), DockerConfig(cluster="c1", node="node-2")) is None
    assert views.found_of(an_answer({"Labels": {}}), CONFIG) is None


def test_the_working_set_is_the_use_without_what_can_be_dropped() -> None:
    answer = {
        "cpu_stats": {"cpu_usage": {"total_usage": 5}},
        "memory_stats": {"usage": 100, "stats": {"inactive_file": 30, "anon": 60}},
        "pids_stats": {"current": 2},
    }
    found = views.stats_of(answer, container(), 9.0, 11)
    assert (found.cpu_total_ns, found.memory_working_set_bytes, found.memory_rss_bytes) == (5, 70, 60)
    assert (found.disk_used_bytes, found.processes) == (11, 2)
    assert views.stats_of({}, container(), 9.0, 0).memory_working_set_bytes == 0


# images


def test_credentials_are_those_of_the_images_registry_the_most_exact_first() -> None:
    hub = RegistryCredentials(server="https://index.docker.io/v1/", username="hub")
    whole = RegistryCredentials(server="r.example:5000", username="whole")
    part = RegistryCredentials(server="r.example:5000/team", username="part")

    def users(reference: str) -> list[str]:
        return [each.username for each in matching(parse_reference(reference), (hub, whole, part))]

    assert users("busybox:1") == ["hub"]
    assert users("docker.io/a/b") == ["hub"]
    assert users("r.example:5000/team/app") == ["part", "whole"]
    assert users("r.example:5000/teamwork/app") == ["whole"]
    assert users("other.example/app") == []


def test_the_header_of_credentials_is_what_engines_read() -> None:
    header = auth_header(RegistryCredentials(server="r", username="ü", password="?~"))
    assert json.loads(base64.urlsafe_b64decode(header)) == {
        "username": "ü",
        "password": "?~",
        "serveraddress": "r",
    }


def test_a_registry_that_cannot_be_asked_is_another_fault_than_its_no() -> None:
    assert pull_fault("dial tcp 127.0.0.1:1: connect: connection refused") is ImageFault.REGISTRY
    assert pull_fault("Get https://x/v2/: dial tcp: lookup x: no such host") is ImageFault.REGISTRY
    assert pull_fault("manifest for x:1 not found: manifest unknown") is ImageFault.PULL


def test_progress_is_the_sum_over_the_layers() -> None:
    layers = Layers("x:1")
    assert layers.add({"status": "Pulling fs layer", "id": "a"}) is None
    layers.add({"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 10}})
    layers.add({"status": "Downloading", "id": "b", "progressDetail": {"current": 2, "total": 20}})
    found = layers.add({"status": "Downloading", "id": "a", "progressDetail": {"current": 5, "total": 10}})
    assert found is not None
    assert (found.done_bytes, found.total_bytes) == (7, 30)


def test_the_program_that_holds_a_pod_is_an_executable_for_its_machine() -> None:
    for architecture, machine in (("amd64", 62), ("arm64", 183)):
        content = pause.program(architecture)
        assert content is not None and content[:4] == b"\x7fELF"
        assert int.from_bytes(content[18:20], "little") == machine
        entry = int.from_bytes(content[24:32], "little") - 0x400000
        assert content[entry:] and entry == 120
    assert pause.program("mips") is None and pause.archive("mips") is None
