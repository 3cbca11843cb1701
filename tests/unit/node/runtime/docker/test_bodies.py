"""Bodies of requests that create sandboxes and containers."""

from __future__ import annotations

import pytest
from docker_specs import CONFIG, CREATE_CONTEXT, SANDBOX, a_spec

from shoal.node.runtime.docker import bodies
from shoal.node.runtime.model import (
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    Image,
    Mount,
    PortMapping,
    Sandbox,
    SandboxSpec,
    Security,
)


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
    body = bodies.sandbox_body(spec, "pause", CREATE_CONTEXT)
    host = body["HostConfig"]
    assert (body["Hostname"], host["NetworkMode"]) == ("web", "shoal-c1")
    assert host["PortBindings"] == {
        "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "5353"}],
        "80/tcp": [{"HostIp": "", "HostPort": "8080"}, {"HostIp": "", "HostPort": "8081"}],
    }
    assert (host["Dns"], host["DnsSearch"], host["DnsOptions"]) == (["10.0.0.1"], ["ns.svc"], ["ndots:5"])
    assert body["Labels"]["io.kubernetes.pod.uid"] == "u1"
    on_host = bodies.sandbox_body(
        SandboxSpec(pod_uid="u", namespace="n", name="p", host_network=True), "pause", CREATE_CONTEXT
    )
    assert on_host["HostConfig"]["NetworkMode"] == "host" and "Hostname" not in on_host


def test_names_are_unique_and_valid() -> None:
    spec = SandboxSpec(pod_uid="u:1", namespace="ns", name="a.b")
    assert bodies.sandbox_name(spec, CONFIG) == "c1_node-1_pod_ns_a-b_u-1_0"
    names = {bodies.container_name(a_spec(), each, CONFIG) for each in (SANDBOX, _other_sandbox())}
    assert len(names) == 2


def _other_sandbox() -> Sandbox:
    return Sandbox(
        id="e" * 64, pod_uid="u1", namespace="ns", name="web", attempt=1, ready=True, addresses=("10.1.2.4",),
        created_at=2.0,
    )  # fmt: skip


def test_a_container_joins_its_sandbox_and_has_the_command_of_the_pod() -> None:
    mount = Mount(host_path="/h:1", container_path="/c", read_only=True, propagation="HostToContainer")
    env = (("A", "1"), ("B", "x=y"), ("A", "2"))
    body = bodies.container_body(a_spec(args=("own",), env=env, mounts=(mount,), tty=True), SANDBOX, CREATE_CONTEXT)
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
            ContainerSpec(name="x", attempt=0, image=Image(id="i", names=()), image_reference="i"),
            SANDBOX,
            CREATE_CONTEXT,
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


def test_the_security_settings_of_the_pod_are_sent() -> None:
    security = Security(
        user=1, group=2, supplemental_groups=(3, 4), fs_group=3, allow_privilege_escalation=False,
        added_capabilities=("CAP_NET_ADMIN",), dropped_capabilities=("all",), seccomp_profile="Unconfined",
    )  # fmt: skip
    body = bodies.container_body(a_spec(security=security), SANDBOX, CREATE_CONTEXT)
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
def test_run_as_non_root_needs_a_numeric_user_other_than_root(user: int | None, image_user: str, refused: bool) -> None:
    image = Image(id="i", names=(), entrypoint=("/x",), user=image_user)
    spec = ContainerSpec(
        name="x", attempt=0, image=image, image_reference="i", security=Security(user=user, run_as_non_root=True)
    )
    if refused:
        with pytest.raises(CreateFailure, match="non-root|runAsNonRoot"):
            bodies.container_body(spec, SANDBOX, CREATE_CONTEXT)
    else:
        bodies.container_body(spec, SANDBOX, CREATE_CONTEXT)
