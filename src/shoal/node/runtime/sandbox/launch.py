"""Prepares a container's folder for its shim, from its spec."""

from __future__ import annotations

import marshal
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.node.runtime.model import ContainerResources, ContainerSpec, CreateFailure, Mount, Security, argv_of
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.launch import CONTAINER_ID, SERVICE_ACCOUNT, Pod, covered_folders, limits_of
from shoal.node.runtime.process.shim.mounts import is_inside
from shoal.node.runtime.sandbox.config import SandboxConfig
from shoal.node.runtime.sandbox.groups import Groups
from shoal.node.runtime.sandbox.ids import IdMap
from shoal.node.runtime.sandbox.roots import RootFiles
from shoal.node.runtime.sandbox.security import capabilities_of, rights_of

KINDS = ("net", "ipc", "uts", "mnt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FROM_MACHINE = ("LANG", "LC_ALL", "TZ")
_MARSHAL = 2
_MACHINE_PROCESSES = -1
_LOWEST_PID_MAX = 301  # the kernel's


@dataclass(frozen=True, slots=True)
class Place:
    """What containers of a node have in common."""

    process: ProcessConfig
    sandbox: SandboxConfig
    ids: IdMap
    groups: Groups
    machine: str  # as ``uname`` calls it
    limits_pids: bool  # the kernel has a highest pid for each process namespace
    environ: Mapping[str, str]


def prepare(
    folder: Path, container_id: str, spec: ContainerSpec, pod: Pod, place: Place, files: RootFiles, *, target: int = 0
) -> list[str]:
    """Write what a container's shim needs to its folder. ``target``: a process of the container that it looks into.
    Returns notices, each ``REASON message``; raises ``CreateFailure``."""
    argv = argv_of(spec)
    if not argv:
        raise CreateFailure(f'no command specified: "{spec.image_reference}" has no program')
    _check_ids(spec, place.ids)
    rights = rights_of(spec.security, place.machine)
    writable = folder / "root"
    _make_owned(writable, place.ids, 0o755)
    etc = "" if files.layers else "/etc"
    if etc:
        _write_etc(folder / "etc", pod, place.ids)
    memory, mounts = _split(spec.mounts, pod)
    covered = covered_folders(place.process)
    own = _sources(place.process, pod)
    bound = [str(path) for path in files.system]
    foreign = any(not _is_in(each.host_path, own) for each in mounts) or any(
        is_inside(path, each) for path in covered for each in bound
    )
    made: dict[str, Any] = {
        "argv": list(argv),
        "env": _environment(spec, pod, container_id, place),
        "cwd": spec.working_dir or spec.image.working_dir or "/",
        "make_cwd": bool(spec.working_dir or spec.image.working_dir),
        "tty": spec.tty, "stdin": spec.stdin, "stdin_once": spec.stdin_once,
        "outside": place.ids.root, "kinds": kinds_of(pod),
        "pid_of": _MACHINE_PROCESSES if pod.spec.host_pid else target,
        "layers": [str(path) for path in files.layers], "writable": str(writable),
        "system": bound, "programs": _programs(files, spec, place), "links": list(files.links),
        "etc": etc, "etc_writable": str(folder / "etc"), "files": _files(pod, files),
        "overlay": place.sandbox.overlay == "auto", "image_volumes": _image_volumes(spec) if files.layers else [],
        "covered": covered, "sources": own, "foreign": foreign,
        "mounts": [(each.host_path, each.container_path, each.read_only, each.within) for each in mounts],
        "memory": memory,
        "masked": not spec.security.privileged, "privileged": spec.security.privileged,
        "read_only_root": spec.security.read_only_root,
        "user": spec.security.user, "group": spec.security.group, "image_user": spec.image.user,
        "groups": _groups(spec.security, place.ids), "groups_change": place.ids.root or place.ids.count > 1,
        "ids": place.ids.count, "non_root": spec.security.run_as_non_root,
        "capabilities": rights.capabilities, "no_new_privileges": rights.no_new_privileges, "filter": rights.filter,
        "cgroup": place.groups.of(container_id), "resources": resources_of(spec.resources, place),
        "highest_pid": max(_LOWEST_PID_MAX, place.sandbox.processes) if place.sandbox.processes else 0,
        "limits": [(resource.RLIMIT_CORE, 0)], "memory_limit": 0,
        "log_bytes": place.process.log_bytes, "log_files": place.process.log_files,
    }  # fmt: skip
    (folder / "config").write_bytes(marshal.dumps(made, _MARSHAL))
    return []


def change_limits(folder: Path, resources: ContainerResources, place: Place) -> None:
    """Change the limits of a container that was not started yet."""
    made = marshal.loads((folder / "config").read_bytes())  # noqa: S302 - written by our own user
    made["resources"] = resources_of(resources, place)
    (folder / "config").write_bytes(marshal.dumps(made, _MARSHAL))


def resources_of(resources: ContainerResources, place: Place) -> dict[str, int]:
    processes, unified = place.sandbox.processes, int(place.groups.unified)
    watched = 0 if place.limits_pids else processes
    return {**limits_of(resources), "processes": processes, "watched_processes": watched, "unified": unified}


def kinds_of(pod: Pod) -> list[str]:
    """The namespaces that a pod has for itself, at their places; those of the machine are empty."""
    shared = {"net": pod.spec.host_network, "ipc": pod.spec.host_ipc}
    return ["" if shared.get(kind) else kind for kind in KINDS]


def _programs(files: RootFiles, spec: ContainerSpec, place: Place) -> list[str]:
    """A container that may mount can make its mounts writable. Where its root is the own user, it does not get the
    programs that belong to that user, who runs them outside."""
    mounts = spec.security.privileged or "SYS_ADMIN" in capabilities_of(spec.security)
    keep = place.ids.root or not mounts
    return [str(path) for path in files.programs if keep or path.stat().st_uid != place.ids.outer_root]


def _check_ids(spec: ContainerSpec, ids: IdMap) -> None:
    security = spec.security
    if security.run_as_non_root and (security.user == 0 or (security.user is None and spec.image.user in ("", "0"))):
        raise CreateFailure(f"container {spec.name!r} has runAsNonRoot and would run as root")
    wanted = {"runAsUser": security.user, "runAsGroup": security.group, "fsGroup": security.fs_group}
    named = [(name, number) for name, number in wanted.items() if number is not None]
    for name, number in (*named, *(("supplementalGroups", each) for each in security.supplemental_groups)):
        if number >= ids.count and name != "fsGroup":
            raise CreateFailure(_missing(spec.name, name, number, ids))


def _missing(container: str, field: str, number: int, ids: IdMap) -> str:
    if ids.count > 1:
        return f"container {container!r} has {field} {number}: the cluster has the ids 0 to {ids.count - 1}"
    return (
        f"container {container!r} has {field} {number}: this cluster has the user 0 only, who is you outside of pods; "
        f"install newuidmap (Debian: apt-get install uidmap) and add your user to /etc/subuid and /etc/subgid, "
        f"or run the cluster as root"
    )


def _groups(security: Security, ids: IdMap) -> list[int]:
    """A ``fsGroup`` that the cluster does not have is left out: every user may write to the volumes then."""
    extra = (security.fs_group,) if security.fs_group is not None and security.fs_group < ids.count else ()
    return sorted({*security.supplemental_groups, *extra})


def _environment(spec: ContainerSpec, pod: Pod, container_id: str, place: Place) -> dict[str, str]:
    address = pod.sandbox.addresses[0]
    found = {name: place.environ[name] for name in _FROM_MACHINE if name in place.environ}
    found |= {
        "PATH": PATH,
        "HOSTNAME": pod.spec.hostname or pod.sandbox.name,
        "HOST": address,
        "POD_IP": address,
        "PORT": str(next(iter(spec.ports), spec.image.port or place.process.default_port)),
        "SHOAL_POD_DIR": "/",
        "SHOAL_SERVICEACCOUNT_DIR": SERVICE_ACCOUNT,
        CONTAINER_ID: container_id,
    }
    return {**found, **dict(spec.image.env), **dict(spec.env)}


def _split(mounts: tuple[Mount, ...], pod: Pod) -> tuple[list[tuple[int, str, str, bool]], list[Mount]]:
    """Volumes in memory, by their number in the pod and a path inside them, and the others."""
    places = {each.path: number for number, each in enumerate(pod.spec.memory_volumes)}
    memory: list[tuple[int, str, str, bool]] = []
    others: list[Mount] = []
    for each in mounts:
        path = each.within or each.host_path
        if path in places:
            part = os.path.relpath(each.host_path, path) if each.within else ""
            memory.append((places[path], part, each.container_path, each.read_only))
        else:
            others.append(each)
    return memory, others


def _sources(config: ProcessConfig, pod: Pod) -> list[str]:
    """Where the sources of a pod's own mounts are: its volumes, and those of claims."""
    return [os.path.realpath(path) for path in (config.root / "pods" / pod.sandbox.pod_uid, *config.volumes)]


def _is_in(path: str, folders: list[str]) -> bool:
    return any(is_inside(os.path.realpath(path), folder) for folder in folders)


def _image_volumes(spec: ContainerSpec) -> list[str]:
    """The volumes of the image where the pod mounts nothing."""
    mounted = {os.path.normpath(each.container_path) for each in spec.mounts}
    return [path for each in spec.image.volumes if (path := os.path.normpath(each)) not in mounted]


def _make_owned(folder: Path, ids: IdMap, mode: int) -> None:
    """A folder that belongs to the pods' root."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
    if ids.root:
        os.chown(folder, ids.outer_root, ids.gids[0][1])


def _write_etc(folder: Path, pod: Pod, ids: IdMap) -> None:
    """What the pod has of its own in ``/etc``, over the machine's."""
    for name in ("upper", "work"):
        _make_owned(folder / name, ids, 0o755)
    _make_owned(folder, ids, 0o755)
    for name, text in etc_files(pod).items():
        path = folder / "upper" / name
        path.write_text(text)
        if ids.root:
            os.chown(path, ids.outer_root, ids.gids[0][1])


def etc_files(pod: Pod) -> dict[str, str]:
    name = pod.spec.hostname or pod.sandbox.name
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    lines += [f"{address}\t{name}" for address in pod.sandbox.addresses]
    return {"hostname": f"{name}\n", "hosts": "\n".join(lines) + "\n", "resolv.conf": resolver_file(pod)}


def resolver_file(pod: Pod) -> str:
    spec = pod.spec
    lines = [f"nameserver {each}" for each in spec.dns_servers]
    if spec.dns_searches:
        lines.append(f"search {' '.join(spec.dns_searches)}")
    if spec.dns_options:
        lines.append(f"options {' '.join(spec.dns_options)}")
    return "\n".join(lines) + "\n" if lines else "# no name servers\n"


def _files(pod: Pod, files: RootFiles) -> list[tuple[str, str]]:
    """With an image of its own the pod's files in ``/etc`` are written into its root."""
    return [(f"/etc/{name}", text) for name, text in etc_files(pod).items()] if files.layers else []
