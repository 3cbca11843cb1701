"""What a program in a sandbox cannot do to the machine, to the cluster and to other pods, although it is root there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sandbox_attacks import BREAK_OUT, CONNECT, OVERWRITE, REFUSED_CALLS
from sandbox_nodes import OnNode

from shoal.node.runtime.model import ContainerResources, ExitReason, Mount, Security, StartFailure

SECRET = "KEY-OF-THE-CLUSTER"
FORK_BOMB = """
import os, time
for _ in range(4096):
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        print("no more", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def secrets(tmp_path: Path) -> list[Path]:
    """Files that no pod may read: of this cluster, and of its user."""
    found = [tmp_path / "cluster" / "pki" / "ca.key", tmp_path / "cluster" / "kubeconfig", tmp_path / "home" / "key"]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    return found


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process of this user with the secret in its environment."""
    with subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "SECRET": SECRET}) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("privileged", [False, True], ids=["usual", "privileged"])
async def test_a_pod_finds_no_key_of_the_cluster_and_no_process_of_the_machine(
    on_node: OnNode, secrets: list[Path], neighbour: int, privileged: bool
) -> None:
    if privileged and 0 != os.geteuid() == Path(sys.prefix).stat().st_uid:
        pytest.skip("the interpreter is this user's, so that a privileged container does not get it")
    async with on_node() as node:
        other = await node.pod()
        victim = await node.run(other, "sh", "-c", f"echo {SECRET} > /mine; sleep 600", env=(("SECRET", SECRET),))
        attacker = await node.pod()
        paths = [
            str(path) for path in (*secrets, "/mine", node.machine.process.containers / victim.id / "root" / "mine")
        ]
        security = Security(privileged=privileged)
        found = await node.python(attacker, BREAK_OUT, SECRET, str(neighbour), *paths, security=security)
        assert found == "processes 1\ntried\n"


async def test_services_on_the_machines_loopback_cannot_be_reached(on_node: OnNode) -> None:
    abstract = f"\0shoal-test-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, closing(socket.create_server(("127.0.0.1", 0))) as server:
        with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as unnamed:
            named.bind(f"{folder}/s")
            named.listen()
            unnamed.bind(abstract)
            unnamed.listen()
            port = str(server.getsockname()[1])
            async with on_node() as node:
                found = await node.python(await node.pod(), CONNECT, port, f"{folder}/s", abstract[1:])
                assert found == "tcp refused\nunix refused\nabstract refused\n"
                same = (sys.executable, "-I", "-c", CONNECT, port, "/nowhere", abstract[1:])
                beside = subprocess.run(same, capture_output=True, text=True, check=True)
                assert "tcp reached" in beside.stdout and "abstract reached" in beside.stdout  # the test can tell


async def test_calls_that_reach_the_machine_are_refused(on_node: OnNode) -> None:
    async with on_node() as node:
        pod = await node.pod()
        assert await node.python(pod, REFUSED_CALLS) == "mount EPERM\nunshare EPERM\nbpf EPERM\nclone3 ENOSYS\n"
        without = Security(seccomp_profile="Unconfined")
        assert "unshare ok" in await node.python(pod, REFUSED_CALLS, security=without)


async def test_a_command_in_a_container_does_not_give_the_interpreter_away(on_node: OnNode) -> None:
    """The process that enters a container runs the machine's interpreter, which the container must not change."""
    async with on_node() as node:
        container = await node.run(await node.pod(), "sleep", "600")
        found, _ = await node.exec(container, "/proc/self/exe", "-I", "-c", OVERWRITE)
        assert found in ("EROFS\n", "EACCES\n", "EPERM\n")


@pytest.mark.parametrize(
    "security", [Security(privileged=True), Security(added_capabilities=("SYS_ADMIN",))], ids=["privileged", "mounts"]
)
async def test_a_container_that_may_mount_cannot_change_the_machines_programs(
    on_node: OnNode, security: Security
) -> None:
    async with on_node() as node:
        folders = sorted({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, "/usr")})
        script = (
            'for f in "$@"; do mount -o remount,bind,rw $f 2>/dev/null; touch $f/shoal-was-here 2>/dev/null; '
            "ls $f | grep shoal-was; done; echo tried"
        )
        found, _ = await node.result(await node.pod(), "sh", "-c", script, "sh", *folders, security=security)
        assert found == "tried\n"
        assert not [each for each in folders if (Path(each) / "shoal-was-here").exists()]


async def test_the_kernels_settings_and_the_system_are_read_only(on_node: OnNode) -> None:
    async with on_node() as node:
        script = (
            "for f in /proc/sys/kernel/core_pattern /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger /usr/file "
            "/sys/kernel/uevent_helper; do echo 1 > $f && echo WROTE $f; done 2>/dev/null; echo done"
        )
        security = Security(added_capabilities=("NET_ADMIN", "SYS_ADMIN"))
        assert await node.sh(await node.pod(), script, security=security) == "done\n"


async def test_a_host_path_reaches_what_it_names_and_not_the_state(on_node: OnNode, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given\n")
    (tmp_path / "cluster" / "pki").mkdir(parents=True)
    (tmp_path / "cluster" / "pki" / "ca.key").write_text(SECRET)
    async with on_node() as node:
        pod = await node.pod()
        tmp_path.chmod(0o755)
        above = Mount(host_path=str(tmp_path), container_path="/host", volume="host")
        found = await node.sh(pod, "cat /host/given/file; cat /host/cluster/pki/ca.key", mounts=(above,))
        assert "given" in found and SECRET not in found
        inside = Mount(host_path=str(tmp_path / "cluster" / "pki"), container_path="/host", volume="host")
        with pytest.raises(StartFailure, match="part of Shoal's state, which pods do not see"):
            await node.sh(pod, "true", mounts=(inside,))


async def test_a_link_in_a_volume_does_not_lead_out_of_it(on_node: OnNode, tmp_path: Path) -> None:
    async with on_node() as node:
        pod = await node.pod()
        volume = node.machine.process.root / "pods" / pod.pod_uid / "volumes" / "v"
        volume.mkdir(parents=True)
        (volume / "sub").symlink_to("/etc")
        mount = Mount(host_path=str(volume / "sub"), container_path="/data", volume="v", within=str(volume))
        with pytest.raises(StartFailure):
            await node.sh(pod, "ls /data", mounts=(mount,))


@pytest.mark.usefixtures("as_root")
async def test_root_in_a_pod_is_not_the_machines_root(on_node: OnNode, tmp_path: Path) -> None:
    async with on_node() as node:
        container = await node.run(await node.pod(), "sleep", "600")
        pid = int(container.identity.split("/")[0])
        assert os.stat(f"/proc/{pid}").st_uid > 100_000
        assert (await node.exec(container, "id", "-u"))[0] == "0\n"
        (tmp_path / "of-root").write_text("x")
        (tmp_path / "of-root").chmod(0o600)
        mount = Mount(host_path=str(tmp_path / "of-root"), container_path="/file", volume="host")
        assert "Permission denied" in await node.sh(await node.pod(), "cat /file", mounts=(mount,))


@pytest.mark.parametrize("groups", ["auto", "off"])
async def test_a_fork_bomb_and_a_memory_hog_end_alone(on_node: OnNode, groups: str) -> None:
    async with on_node(processes=301, groups=groups) as node:
        pod = await node.pod()
        neighbour = await node.run(pod, "sleep", "600", name="neighbour")
        hog = "a = bytearray(1)\nwhile True: a += bytes(1 << 22)"
        limit = ContainerResources(memory_limit_bytes=64 << 20)
        _, ended = await node.result(pod, sys.executable, "-I", "-c", hog, resources=limit)
        assert (ended.exit_code, ended.reason) == (137, ExitReason.OOM_KILLED)
        bomb = await node.run(pod, sys.executable, "-I", "-c", FORK_BOMB)
        await node.says(bomb, "no more")
        await node.runtime.stop(bomb.id, grace_s=0)
        assert (await node.exec(neighbour, "echo", "alive"))[0] == "alive\n"
