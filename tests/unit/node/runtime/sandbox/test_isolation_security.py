"""securityContext, volumes, files and namespaces of containers in sandboxes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sandbox_nodes import OnNode, SandboxNode

from shoal.node.runtime.model import (
    ContainerResources,
    CreateFailure,
    Image,
    MemoryVolume,
    Mount,
    Security,
    StartFailure,
)
from shoal.node.runtime.sandbox.roots import RootFiles
from shoal.testing.waiting import eventually

STATUS = "grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t\\n' ' '"


def volume(node: SandboxNode, uid: str, name: str = "v") -> Path:
    path = node.machine.process.root / "pods" / uid / "volumes" / name
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    return path


async def test_a_container_has_the_usual_capabilities_and_the_filter_of_calls(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        assert (
            await node.sh(pod, STATUS) == "CapEff: 00000000a80425fb CapBnd: 00000000a80425fb NoNewPrivs: 0 Seccomp: 2 "
        )
        none = Security(dropped_capabilities=("ALL",), allow_privilege_escalation=False)
        assert await node.sh(pod, STATUS, security=none) == (
            "CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 "
        )
        one = Security(dropped_capabilities=("ALL",), added_capabilities=("NET_ADMIN",), seccomp_profile="Unconfined")
        assert await node.sh(pod, STATUS, security=one) == (
            "CapEff: 0000000000001000 CapBnd: 0000000000001000 NoNewPrivs: 0 Seccomp: 0 "
        )


@pytest.mark.parametrize(
    ("security", "text"),
    [
        (Security(added_capabilities=("FLY",)), "unknown capability 'FLY'"),
        (Security(seccomp_profile="localhost/mine.json"), "seccompProfile 'localhost/mine.json' is not available"),
        (Security(run_as_non_root=True), "runAsNonRoot and would run as root"),
        (Security(user=70000), "runAsUser 70000"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason(on_node: OnNode, security: Security, text: str) -> None:
    async with on_node() as node:
        with pytest.raises(CreateFailure, match=text):
            await node.create(await node.pod(), "true", security=security)


async def test_with_one_user_another_one_is_refused_with_the_fix(on_node: OnNode) -> None:
    async with on_node(ids="one") as node:
        pod = await node.pod()
        with pytest.raises(CreateFailure, match="install newuidmap .* or run the cluster as root"):
            await node.create(pod, "true", security=Security(user=1000))
        assert await node.sh(pod, "id -u", security=Security(user=0, fs_group=2000)) == "0\n"


@pytest.mark.usefixtures("as_root")
async def test_users_and_groups_are_those_of_the_spec(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        place = volume(node, pod.pod_uid)
        os.chown(place, -1, 2000)
        place.chmod(0o2775)
        security = Security(user=1234, group=1235, supplemental_groups=(3000,), fs_group=2000)
        mounts = (Mount(host_path=str(place), container_path="/data", volume="v"),)
        script = "id -u; id -g; id -G; echo x > /data/f; stat -c '%u %g' /data/f; echo $HOME; touch /x"
        found = await node.sh(pod, script, security=security, mounts=mounts)
        assert found.splitlines()[:5] == ["1234", "1235", "1235 2000 3000", "1234 2000", "/"]
        assert "Permission denied" in found
        assert (os.stat(place / "f").st_uid, os.stat(place / "f").st_gid) == (1234, 2000)  # shifted back on disk
        assert await node.sh(pod, "stat -c %u /data", mounts=mounts) == "0\n"


async def test_a_read_only_root_has_writable_volumes(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        place = volume(node, pod.pod_uid)
        mounts = (
            Mount(host_path=str(place), container_path="/data", volume="v"),
            Mount(host_path=str(place), container_path="/usr/share/shown", volume="v", read_only=True),
        )
        script = "echo x > /data/f; cat /usr/share/shown/f; for f in /x /tmp/x /usr/share/shown/y; do echo x > $f; done"
        found = await node.sh(pod, script, security=Security(read_only_root=True), mounts=mounts)
        assert found.splitlines()[0] == "x" and found.count("Read-only file system") == 3


async def test_the_containers_of_a_pod_share_name_network_memory_and_little_else(on_node: OnNode) -> None:
    async with on_node() as node:
        path = node.machine.process.root / "pods" / "p" / "volumes" / "m"
        pod = await node.pod(hostname="web", memory_volumes=(MemoryVolume(path=str(path), size_bytes=4 << 20),))
        mounts = (Mount(host_path=str(path), container_path="/mem", volume="m"),)
        first = await node.run(
            pod,
            "sh",
            "-c",
            "echo one > /mem/f; echo shm > /dev/shm/f; echo own > /tmp/f; echo up; sleep 600",
            mounts=mounts,
        )
        await node.says(first, "up")
        found = await node.sh(
            pod, "hostname; cat /mem/f /dev/shm/f; ls /tmp; df -k /mem | tail -1 | tr -s ' ' | cut -d' ' -f2; ls /proc | grep -c '^[0-9]'",
            mounts=mounts,
        )  # fmt: skip
        name, one, shm, size, processes = found.split()
        assert (name, one, shm, size) == ("web", "one", "shm", "4096") and int(processes) < 6
        await node.runtime.remove(first.id)
        assert await node.sh(pod, "cat /mem/f", mounts=mounts) == "one\n"  # it lives as long as the pod


async def test_the_files_of_the_pod_in_etc_are_its_own(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod(
            hostname="web", dns_servers=("10.96.0.10",), dns_searches=("a.svc",), dns_options=("ndots:5",)
        )
        found = await node.sh(
            pod, "cat /etc/hostname /etc/resolv.conf; grep web /etc/hosts; echo x > /etc/mine && cat /etc/mine"
        )
        assert found == (f"web\nnameserver 10.96.0.10\nsearch a.svc\noptions ndots:5\n{pod.addresses[0]}\tweb\nx\n")
        assert not Path("/etc/mine").exists()


async def test_a_pod_on_the_machines_network_reaches_it_and_has_its_own_files(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod(host_network=True, host_pid=True, host_ipc=True)
        assert pod.addresses == ("127.0.0.1",)
        script = f"test -d /proc/{os.getpid()} && echo processes; cat /proc/net/dev | wc -l"
        found = await node.sh(pod, script)
        lines = len(Path("/proc/net/dev").read_text().splitlines())
        assert found.split()[:2] == ["processes", str(lines)]
        container = await node.run(pod, "sleep", "600")
        assert await node.exec(container, "echo", "in") == ("in\n", 0)


async def test_safe_sysctls_are_set_in_the_pod_only(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod(sysctls={"net.ipv4.ip_local_port_range": "2000 3000"})
        assert (await node.sh(pod, "cat /proc/sys/net/ipv4/ip_local_port_range")).split() == ["2000", "3000"]
        assert "2000" not in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        with pytest.raises(CreateFailure, match="sysctl kernel.panic=1 cannot be set in a pod"):
            await node.pod(sysctls={"kernel.panic": "1"})


async def test_any_user_may_listen_on_any_port(on_node: OnNode) -> None:
    async with on_node() as node:
        security = Security(dropped_capabilities=("ALL",))
        program = "import socket; print(socket.create_server(('', 80)).getsockname())"
        assert await node.python(await node.pod(), program, security=security) == "('0.0.0.0', 80)\n"


@pytest.mark.usefixtures("as_root")
async def test_limits_change_while_the_container_runs(on_node: OnNode) -> None:
    memory = Path("/sys/fs/cgroup/memory/shoal")
    if not memory.is_dir():
        pytest.skip("needs control groups of version 1")
    async with on_node() as node:
        limits = ContainerResources(memory_limit_bytes=64 << 20, cpu_limit_milli=500)
        container = await node.run(await node.pod(), "sleep", "600", resources=limits)
        group = memory / container.id
        cpu = Path("/sys/fs/cgroup/cpu/shoal") / container.id
        assert (group / "memory.limit_in_bytes").read_text() == f"{64 << 20}\n"
        assert (cpu / "cpu.cfs_quota_us").read_text() == "50000\n"
        await node.runtime.update(container.id, ContainerResources(memory_limit_bytes=96 << 20, cpu_limit_milli=250))
        await eventually(lambda: (cpu / "cpu.cfs_quota_us").read_text() == "25000\n")
        assert (group / "memory.limit_in_bytes").read_text() == f"{96 << 20}\n"


class Layers:
    """Images of two layers, from folders."""

    def __init__(self, layers: tuple[Path, ...], user: str) -> None:
        self._layers, self._user = layers, user

    async def image(self, reference: str) -> Image | None:
        return Image(id="layers", names=(reference,), user=self._user, env=(("FROM", "image"),), working_dir="/srv/dir")

    async def images(self) -> tuple[Image, ...]:
        return ()

    async def pull(self, reference: str, **more: Any) -> Image:
        found = await self.image(reference)
        assert found is not None
        return found

    async def remove_image(self, image_id: str) -> None: ...

    def files_of(self, image: Image) -> RootFiles:
        return RootFiles(layers=self._layers)


def a_small_system(folder: Path) -> None:
    """A shell and a few programs with their libraries."""
    programs = [shutil.which(name) for name in ("dash", "cat", "ls", "id", "stat")]
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout.split()
    libraries = {word for word in said if word.startswith("/") and not word.endswith(":")}
    for path in (*map(str, programs), *libraries):
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (folder / "etc").mkdir()
    (folder / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/home/app:/bin/sh\n")
    (folder / "etc" / "group").write_text("more:x:1003:app\n")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


@pytest.mark.usefixtures("many_users")
async def test_an_image_of_layers_is_the_root_and_nothing_of_the_machine(on_node: OnNode, tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    a_small_system(lower)
    upper.mkdir(mode=0o755)
    (upper / "etc").mkdir(mode=0o755)
    (upper / "etc" / "shown").write_text("upper\n")
    (lower / "etc" / "shown").write_text("lower\n")
    shell = str(shutil.which("dash"))
    async with on_node(roots=Layers((upper, lower), "app")) as node:
        pod = await node.pod()
        script = "pwd; id -u; id -g; id -G; echo $FROM $HOME; cat /etc/shown; ls /; stat -c %u /etc/passwd; cat /etc/hostname"
        found = (await node.result(pod, shell, "-c", script))[0].splitlines()
        assert found[:6] == ["/srv/dir", "1001", "1002", "1002 1003", "image /home/app", "upper"]
        assert "home" not in found and "opt" not in found and found[-2:] == ["0", pod.name]
        writes = "echo new > /etc/shown; cat /etc/shown"
        assert (await node.result(pod, shell, "-c", writes, security=Security(user=0)))[0] == "new\n"
        assert (upper / "etc" / "shown").read_text() == "upper\n"
        with pytest.raises(StartFailure, match="unable to find user nobody-here"):
            other = Layers((upper, lower), "nobody-here")
            node.image = await other.pull("x")
            await node.result(pod, shell, "-c", "true")
