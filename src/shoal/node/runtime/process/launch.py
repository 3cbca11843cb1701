"""Prepares a container's folder from its spec (environment, directories, mounts, limits) and starts its shim."""

from __future__ import annotations

import asyncio
import marshal
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.base.logs import get_logger
from shoal.node.forks.client import NO_FORKS, ForkClient, ForkRefused
from shoal.node.runtime.model import (
    ContainerResources,
    ContainerSpec,
    CreateFailure,
    Mount,
    Sandbox,
    SandboxSpec,
    argv_of,
)
from shoal.node.runtime.process import forked_shim
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.fds import readable
from shoal.node.runtime.process.shim import system
from shoal.node.runtime.process.shim.mounts import is_inside

log = get_logger("node.process")

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CONTAINER_ID = "SHOAL_CONTAINER_ID"  # in the environment of all its processes
_FROM_MACHINE = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HERE = Path(__file__).parent
_OPEN_PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_CAP_NET_BIND_SERVICE = 10
_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from shim.main import main; main(sys.argv[1])"
_TRY = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); from shim import mounts, system; "
    "mode, scratch = sys.argv[2:]; mounts.isolate(mode, 'trial'); "
    "cover = [scratch], [], [scratch]; "
    "mounts.mount_all([(scratch, '/shoal-trial/deep', True, '')], scratch, cover, mode == 'root'); "
    "os.listdir('/shoal-trial/deep'); system.drop_capabilities(); system.enter_domain()"
)


@dataclass(frozen=True, slots=True)
class Pod:
    """The sandbox of a container, with its spec."""

    sandbox: Sandbox
    spec: SandboxSpec


def interpreter() -> list[str]:
    """The command line of a Python that loads nothing beyond its core."""
    return [sys.executable, "-I", "-S", "-c"]


async def find_namespaces(config: ProcessConfig) -> str:
    """How this machine lets a container have a view of its own of the file system: ``root``, ``user``, or empty if it
    does not."""
    if config.namespaces == "off":
        return ""
    scratch = config.root / "trial"
    scratch.mkdir(parents=True, exist_ok=True)
    for mode in ("root", "user") if os.geteuid() == 0 and config.namespaces == "auto" else ("user",):
        trial = await asyncio.create_subprocess_exec(
            *interpreter(), _TRY, str(_HERE), mode, str(scratch),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        if await trial.wait() == 0:
            return mode
    return ""


@dataclass(frozen=True, slots=True)
class IsolationGap:
    """What pods can see although they should not, and what to do about it."""

    what: str
    fix: str


def isolation_gap(namespaces: str) -> IsolationGap | None:
    """``namespaces`` is what ``find_namespaces`` has found."""
    if not namespaces:
        return IsolationGap(
            "pods can read every file of this user, the keys and tokens of its clusters among them: no namespaces",
            "run as root, allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or use --runtime docker",
        )
    if namespaces == "root" and not system.has_landlock():
        return IsolationGap(
            "pods can look into each other through /proc: the kernel has no Landlock",
            "run as an ordinary user, on Linux 5.19 or newer with Landlock, or use --runtime docker",
        )
    return None


def covered_folders(config: ProcessConfig) -> list[str]:
    """The folders to cover, without those inside another one."""
    found = {os.path.realpath(path) for path in (config.root, *config.covered) if path.is_dir()}
    return sorted(path for path in found if not any(is_inside(path, other) for other in found - {path}))


def prepare(
    folder: Path, container_id: str, spec: ContainerSpec, pod: Pod, config: ProcessConfig, machine: Mapping[str, str],
    namespaces: str,
) -> list[str]:  # fmt: skip
    """Write what a container's shim needs to its folder. Returns notices for the user, each ``REASON message``."""
    notices: list[str] = []
    argv = argv_of(spec)
    if not argv:
        raise CreateFailure(f'no command specified: the image table has no program for "{spec.image_reference}"')
    work, scratch = folder / "work", folder / "root"
    for each in (work, scratch):
        each.mkdir(parents=True, exist_ok=True)
    user, group, groups = _identity(spec, notices)
    if user is not None or group is not None:
        os.chown(work, -1 if user is None else user, -1 if group is None else group)
    if not namespaces:
        for mount in spec.mounts:
            _redirect(scratch, mount)
        redirected = [mount for mount in spec.mounts if mount.volume]
        if redirected:
            places = ", ".join(mount.container_path for mount in redirected)
            notices.append(
                f"VolumeRedirected container {spec.name!r} finds its volumes ({places}) below $SHOAL_POD_DIR: this "
                f"machine allows no user namespaces"
            )
    shown = "/" if namespaces else str(scratch)
    may_bind_all = user in (None, 0) and namespaces != "user" and _has_bind_capability()
    port = _port(spec, config, notices, may_bind_all=may_bind_all)
    made: dict[str, Any] = {
        "argv": list(argv),
        "env": _environment(spec, pod, port, machine, container_id, shown),
        "cwd": _working_dir(spec, work, None if namespaces else scratch),
        "tty": spec.tty, "stdin": spec.stdin, "stdin_once": spec.stdin_once,
        "namespaces": namespaces, "covered": covered_folders(config), "kept": _kept(config, work),
        "sources": _sources(config, pod, privileged=spec.security.privileged),
        "confined": not spec.security.privileged, "scratch": os.path.realpath(scratch),
        "hostname": pod.spec.hostname or pod.sandbox.name,
        "mounts": [(each.host_path, each.container_path, each.read_only, each.within) for each in spec.mounts],
        "user": user, "group": group, "groups": groups, "limits": _limits(spec.resources),
        "memory_limit": spec.resources.memory_limit_bytes,
        "log_bytes": config.log_bytes, "log_files": config.log_files,
    }  # fmt: skip
    (folder / "config").write_bytes(marshal.dumps(made, 2))
    return notices


def limits_of(resources: ContainerResources) -> dict[str, int]:
    """What a shim keeps a container within; 0 means no limit."""
    return {
        "memory": resources.memory_limit_bytes,
        "cpu_limit_milli": resources.cpu_limit_milli,
        "cpu_request_milli": resources.cpu_request_milli,
    }


def change_memory_limit(folder: Path, resources: ContainerResources) -> None:
    """Change the limit of a container that was not started yet."""
    made = marshal.loads((folder / "config").read_bytes())  # noqa: S302 - written by our own user
    made["memory_limit"], made["limits"] = resources.memory_limit_bytes, _limits(resources)
    (folder / "config").write_bytes(marshal.dumps(made, 2))


def _environment(
    spec: ContainerSpec, pod: Pod, port: int, machine: Mapping[str, str], container_id: str, shown: str
) -> dict[str, str]:
    address = pod.sandbox.addresses[0]
    found = {name: machine[name] for name in _FROM_MACHINE if name in machine}
    found.setdefault("PATH", _DEFAULT_PATH)
    found |= {
        "HOSTNAME": pod.spec.hostname or pod.sandbox.name,
        "HOST": address,
        "POD_IP": address,
        "PORT": str(port),
        "SHOAL_POD_DIR": shown,
        "SHOAL_SERVICEACCOUNT_DIR": f"{shown.rstrip('/')}{SERVICE_ACCOUNT}",
        CONTAINER_ID: container_id,
    }
    return {**found, **dict(spec.image.env), **dict(spec.env)}


def _port(spec: ContainerSpec, config: ProcessConfig, notices: list[str], *, may_bind_all: bool) -> int:
    """The container's ``$PORT``: one that it declares, else that of its image, else the default. The program of an
    image with a port gets the default if the machine does not permit the port."""
    of_image = 0 if spec.command or "PORT" in dict(spec.env) else spec.image.port
    port = next(iter(spec.ports), of_image or config.default_port)
    if not of_image or may_bind_all or port >= _first_open_port():
        return port
    notices.append(
        f"PortNotPermitted container {spec.name!r} listens on port {config.default_port}, not on {port}: only root may "
        f"use ports below {_first_open_port()} of this machine (sysctl net.ipv4.ip_unprivileged_port_start); use "
        f"{config.default_port} as the Service's targetPort, or declare another containerPort"
    )
    return config.default_port


def _first_open_port() -> int:
    """The lowest port that users without rights may listen on."""
    try:
        return int(_OPEN_PORTS.read_text())
    except (OSError, ValueError):
        return 1024


def _has_bind_capability() -> bool:
    """Whether this process and the containers it starts may listen on every port."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return os.geteuid() == 0
    held = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return bool(held >> _CAP_NET_BIND_SERVICE & 1)


def _kept(config: ProcessConfig, work: Path) -> list[str]:
    """What a container needs of the covered folders: where it works, and Python if that is installed there."""
    programs = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, _HERE.parents[3])}
    covered = covered_folders(config)
    return [
        os.path.realpath(work),
        *sorted(path for path in programs if any(is_inside(path, folder) and path != folder for folder in covered)),
    ]


def _sources(config: ProcessConfig, pod: Pod, *, privileged: bool) -> list[str]:
    """Where in covered folders the sources of a pod's mounts may be: its own volumes, and those of claims."""
    if privileged:
        return ["/"]
    return [os.path.realpath(path) for path in (config.root / "pods" / pod.sandbox.pod_uid, *config.volumes)]


def _working_dir(spec: ContainerSpec, work: Path, redirected: Path | None) -> str:
    wanted = spec.working_dir or spec.image.working_dir
    if not wanted:
        return str(work)
    if redirected is not None and (redirected / wanted.lstrip("/")).is_dir():
        return str(redirected / wanted.lstrip("/"))
    return wanted


def _identity(spec: ContainerSpec, notices: list[str]) -> tuple[int | None, int | None, list[int] | None]:
    """User, group and supplementary groups of the container. Only root can change them."""
    security, me = spec.security, os.geteuid()
    if security.run_as_non_root and (security.user if me == 0 and security.user is not None else me) == 0:
        raise CreateFailure(f"container {spec.name!r} has runAsNonRoot and would run as root")
    if me == 0:
        if security.user is None and security.group is None:
            return None, None, None
        extra = (*security.supplemental_groups, *((security.fs_group,) if security.fs_group is not None else ()))
        return security.user, security.user if security.group is None else security.group, list(extra)
    if security.user not in (None, me):
        notices.append(
            f"UserNotChanged container {spec.name!r} runs as user {me} of this machine, not as {security.user}"
        )
    return None, None, None


def _redirect(scratch: Path, mount: Mount) -> None:
    """Link a mount below ``scratch``, where the container finds it through ``$SHOAL_POD_DIR``."""
    place = scratch / mount.container_path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or not place.exists():
        place.unlink(missing_ok=True)
        place.symlink_to(mount.host_path)


def _limits(resources: ContainerResources) -> list[tuple[int, int]]:
    """No core dumps, and an rlimit far above the memory limit, for processes that grow between two checks."""
    found = [(resource.RLIMIT_CORE, 0)]
    if resources.memory_limit_bytes:
        bound = max(2 * resources.memory_limit_bytes, resources.memory_limit_bytes + (1 << 30))
        found.append((resource.RLIMIT_DATA, bound))
    return found


@dataclass(frozen=True, slots=True)
class ShimStart:
    """The result of starting a shim. One that is a child of this process has to be reaped by the caller."""

    shim_pid: int
    ok: bool
    message: str = ""
    child: bool = True  # of this process, which has to reap it


def _executed(folder: Path, files: Sequence[int]) -> int:
    return os.posix_spawn(
        sys.executable, [*interpreter(), _RUN, str(_HERE), str(folder)], {},
        file_actions=[(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(files)],
    )  # fmt: skip


async def _spawn(folder: Path, forks: ForkClient) -> tuple[int, int, bool]:
    """Start the shim. Returns its pid, the file from which its result is read, and whether it is a child."""
    ours, theirs = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    complaints = os.open(folder / "shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    files, child = (nothing, nothing, complaints, theirs), False
    try:
        try:
            pid = await forks.fork(forked_shim.FUNCTION, [str(folder)], files)
        except ForkRefused as refusal:
            if forks.path is not None:
                log.debug("the shim is executed", reason=str(refusal))
            pid, child = _executed(folder, files), True
    except BaseException:
        os.close(ours)
        raise
    finally:
        for fd in (theirs, nothing, complaints):
            os.close(fd)
    os.set_blocking(ours, False)
    return pid, ours, child


async def start_shim(folder: Path, forks: ForkClient = NO_FORKS) -> ShimStart:
    """Start the shim of a container, forked where that is possible, and wait for its result."""
    pid, ours, child = await _spawn(folder, forks)
    return await result_of(pid, ours, folder, child=child)


async def result_of(pid: int, ours: int, folder: Path, *, child: bool = True) -> ShimStart:
    """Read the result of a start from the shim's pipe, and close it."""
    answer = b""
    try:
        while True:
            await readable([ours])
            piece = os.read(ours, 65536)
            if not piece:
                break
            answer += piece
    finally:
        os.close(ours)
    word, _, rest = answer.decode(errors="replace").partition(" ")
    if word == "started":
        return ShimStart(pid, True, child=child)
    message = rest.partition(" ")[2] or _last_line(folder / "shim.err") or "the container's shim exited at once"
    return ShimStart(pid, False, message, child=child)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
