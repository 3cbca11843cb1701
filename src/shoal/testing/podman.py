"""A container engine for tests: podman's Docker-compatible service in its own folder and namespaces.

    if not (reason := why_not()):
        runtime = shared_podman().runtime("my-cluster")

It shares no storage, settings or network with an engine of the machine, and leaves nothing behind. It needs root and
Debian's packages podman, runc, netavark, iptables and busybox-static, on a machine that allows containers; ``why_not``
tries to run one and returns what is missing. Images come from a registry in this process that only the engine reaches.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from shoal.base.clock import RealClock
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.pods import enter_network
from shoal.node.runtime.docker.runtime import DockerRuntime
from shoal.testing.registry import TAG, ImageRegistry, archive
from shoal.testing.waiting import eventually_blocking

_REGISTRY = "127.0.0.1:5000"
IMAGE = f"{_REGISTRY}/shoal/busybox:{TAG}"
PRIVATE_IMAGE = f"{_REGISTRY}/private/busybox:{TAG}"
MISSING_IMAGE = f"{_REGISTRY}/shoal/missing:{TAG}"
REGISTRY = _REGISTRY
_NETWORK = "shoal-test"
_START_S = 30.0
_END_S = 60.0
_COMMAND_S = 30.0
_TRIAL = "shoal-trial"
# The programs that tests use. Each container gets a copy, so there are no others.
_APPLETS = (
    "cat", "env", "grep", "head", "hostname", "httpd", "id", "ls", "mkdir", "nc", "printf", "ps", "pwd", "rm", "sh",
    "sleep", "stty", "tail", "tar", "touch", "tr", "true", "wc", "wget",
)  # fmt: skip
_HUNGRY = "head -c 100000000 /dev/zero | tail >/dev/null; exit $?"
_KILLED = 137
_CHAIN = 4  # containers that have joined one another

# The machine that tests run on may lack the right to raise limits, which podman's defaults need.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_REGISTRIES = f"""
unqualified-search-registries = []
[[registry]]
location = "{_REGISTRY}"
insecure = true
"""


@cache
def why_not() -> str:
    """The reason why podman cannot run containers here; empty if it can."""
    if missing := _missing():
        return missing
    try:
        engine = shared_podman()
    except (OSError, RuntimeError) as error:
        return f"podman cannot be started here: {error}"
    try:
        engine.try_out()
    except subprocess.CalledProcessError as error:
        return f"podman cannot run containers here: {error.stderr.strip()[-500:] or error}"
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"podman cannot run containers here: {error}"
    return ""


def _missing() -> str:
    if os.geteuid() != 0:
        return "podman in namespaces of its own needs root"
    missing = [
        each for each in ("podman", "runc", "busybox", "unshare", "nsenter", "iptables") if shutil.which(each) is None
    ]
    if not any(Path(folder, "netavark").exists() for folder in ("/usr/lib/podman", "/usr/libexec/podman")):
        missing.append("netavark")
    return f"not installed: {', '.join(missing)}" if missing else ""


# Holds the namespaces, and cleans up when this process closes the pipe or ends. Podman keeps its locks
# and its networks at fixed places, which several services must not share; for each exec it keeps a process for minutes.
_KEEPER = """
mkdir -p /run/netns && busybox mount -t tmpfs none /run/netns && busybox mount -t tmpfs none /dev/shm || exit 1
busybox ip link set lo up || exit 1
echo ready
read _
folder=$1; shift
for _ in 1 2 3 4; do  # of containers that others have joined only those others go at first
  timeout -k 5 30 "$@" rm --all --force --time=0 && break
done
for process in /proc/[0-9]*; do
  [ "$process" != "/proc/$$" ] && grep -qsF "$folder/" "$process/cmdline" && kill -KILL "${process#/proc/}"
done
while read -r _ place _; do
  case "$place" in "$folder"/*) busybox umount -l "$place" ;; esac
done </proc/mounts
rm -rf "$folder"
"""


class Podman:
    """A running service."""

    def __init__(self, folder: Path, driver: str = "vfs") -> None:
        """``driver`` "overlay" is fast with large images, on file systems that allow it: see ``overlay_driver``."""
        self.folder = folder
        self.socket = str(folder / "api.sock")
        (folder / "networks").mkdir()
        (folder / "containers.conf").write_text(_CONTAINERS.format(folder=folder))
        (folder / "registries.conf").write_text(_REGISTRIES)
        self._command = [
            "podman", f"--root={folder}/root", f"--runroot={folder}/run", f"--tmpdir={folder}/tmp",
            f"--storage-driver={driver}",
        ]  # fmt: skip
        self._environ = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        }
        self._keeper = self._start_keeper()
        try:
            self._service = self._start()
            listening = _listening_in(self._keeper.pid)
        except BaseException:
            self._keeper.communicate(timeout=_END_S)
            raise
        self._registry = ImageRegistry(listening, _busybox(), ("shoal/busybox", "private/busybox"), {})

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        keeper = subprocess.Popen(
            ["unshare", "--net", "--mount", "--", "sh", "-c", _KEEPER, "sh", str(self.folder), *self._command],
            env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if keeper.stdout is None or keeper.stdout.readline() != b"ready\n":
            keeper.communicate(timeout=_END_S)
            shutil.rmtree(self.folder)
            raise RuntimeError("the namespaces for it could not be made")
        return keeper

    def _start(self) -> subprocess.Popen[bytes]:
        serve = [*self._inside("--mount"), *self._command, "system", "service", "--time=0", f"unix://{self.socket}"]
        with (self.folder / "service.log").open("ab") as log:
            service = subprocess.Popen(
                serve, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            eventually_blocking(lambda: service.poll() is not None or _answers(self.socket), timeout_s=_START_S)
            assert service.poll() is None, "the service has exited"
        except AssertionError as error:
            service.kill()
            service.wait()
            raise RuntimeError((self.folder / "service.log").read_text()[-500:].strip() or str(error)) from None
        return service

    def stop(self) -> None:
        """Kill the service; containers continue."""
        self._service.kill()
        self._service.wait()

    def start(self) -> None:
        """Start the service again."""
        self._service = self._start()

    def runtime(self, cluster: str, **config: Any) -> DockerRuntime:
        """A runtime on this engine; it does not see the containers of runtimes with another ``cluster``."""
        settings = {"network": _NETWORK, "socket": self.socket, "node": "node-1", **config}
        return DockerRuntime(DockerConfig(cluster=cluster, **settings), clock=RealClock(), environ={})

    def command(self, *arguments: str) -> str:
        """Run a podman command beside the service; returns its output."""
        done = subprocess.run(
            [*self._inside("--mount"), *self._command, *arguments], env=self._environ, capture_output=True, text=True,
            check=True, timeout=_COMMAND_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout

    def remove_containers(self) -> None:
        """Remove all containers; those that share their namespaces with others are removed last."""
        for _ in range(_CHAIN):
            with suppress(subprocess.CalledProcessError):
                self.command("rm", "--all", "--force", "--time=0")
                return
        raise RuntimeError(f"containers of podman are left: {self.command('ps', '--all')}")

    def command_line(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """How others call podman beside the service from this folder: words, and variables."""
        return [*self._inside("--mount", f"--wd={folder}"), *self._command], self._environ

    def on_its_network(self, *command: str) -> list[str]:
        """The command, to be run in the engine's network, where its containers can be reached."""
        return [*self._inside(), *command]

    def _inside(self, *more: str) -> list[str]:
        return ["nsenter", f"--target={self._keeper.pid}", "--net", *more, "--"]

    def try_out(self) -> None:
        """Run containers that need what a machine may forbid; raise if that fails. It does not use the runtime under
        test: a fault there must fail tests, not skip them."""
        self.command("pull", "--quiet", IMAGE)
        self.command("network", "create", _TRIAL)
        self.command(
            "run", "--detach", f"--name={_TRIAL}", f"--network={_TRIAL}", "--memory=32m", "--cpus=0.5",
            "--publish=18000:80", "--sysctl=net.ipv4.ip_unprivileged_port_start=79", "--cap-drop=ALL",
            "--read-only", IMAGE, "sleep", "1000",
        )  # fmt: skip
        if "CapBnd:\t0000000000000000" not in self.command("exec", _TRIAL, "cat", "/proc/1/status"):
            raise RuntimeError("capabilities cannot be dropped")
        self.command("rm", "--force", "--time=0", _TRIAL)
        self.command("network", "rm", _TRIAL)
        try:
            self.command("run", "--rm", "--network=none", "--memory=16m", IMAGE, "sh", "-c", _HUNGRY)
        except subprocess.CalledProcessError as error:
            if error.returncode != _KILLED:
                raise
        else:
            raise RuntimeError("memory cannot be limited")

    def close(self) -> None:
        """End every container and the service, and remove all files."""
        self._registry.close()
        self._keeper.communicate(timeout=_END_S)
        self._service.wait(_END_S)


@cache
def shared_podman() -> Podman:
    """The engine that tests of this process share, started at the first call and ended with the process."""
    podman = Podman(Path(tempfile.mkdtemp(prefix="shoal-podman-")))
    atexit.register(podman.close)
    return podman


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def overlay_driver(folder: Path) -> str:
    """The storage driver for large images: overlay, or vfs where the folder is on a file system without."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(parents=True)
    options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    trial = ["unshare", "--mount", "--", "busybox", "mount", "-t", "overlay", "none", f"{folder}/merged", "-o", options]
    done = subprocess.run(trial, capture_output=True, timeout=_COMMAND_S)
    shutil.rmtree(folder, ignore_errors=True)
    return "overlay" if done.returncode == 0 else "vfs"


def _listening_in(pid: int) -> socket.socket:
    """A socket that listens at the registry's address in the network of a process."""
    made: list[socket.socket] = []

    def listen() -> None:
        enter_network(pid)
        host, _, port = _REGISTRY.partition(":")
        made.append(socket.create_server((host, int(port))))

    with ThreadPoolExecutor(1, thread_name_prefix="registry") as thread:  # thrown away: it stays in that network
        thread.submit(listen).result()
    return made[0]


def _busybox() -> bytes:
    program = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    links = {f"bin/{name}": "busybox" for name in _APPLETS}
    return archive({"bin/busybox": program}, links, ("bin", "tmp", "etc", "proc", "sys", "dev"))
