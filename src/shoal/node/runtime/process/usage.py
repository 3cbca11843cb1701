"""Resource usage of containers, from ``/proc``; and processes left behind by containers without a shim."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.node.runtime.model import Container, ContainerStats
from shoal.node.runtime.process.launch import CONTAINER_ID
from shoal.node.runtime.process.records import inherited_bytes
from shoal.node.runtime.process.shim import processes

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_COUNTED_FILES = 1000


def stats_of(container: Container, shim: int, folder: Path, at: float) -> ContainerStats:
    """Usage of the container whose shim has the pid ``shim``. CPU time of exited children counts for their parents, and
    of orphans for the shim, so the total never decreases."""
    ticks = _ticks(shim, own=False)
    shared = count = 0
    private = -inherited_bytes(folder)
    for pid in processes.descendants(shim):
        ticks += _ticks(pid, own=True)
        pages = processes.read(f"/proc/{pid}/statm").split()
        if len(pages) > 2:
            count += 1
            private += (int(pages[1]) - int(pages[2])) * processes.PAGE_BYTES
            shared = max(shared, int(pages[2]) * processes.PAGE_BYTES)
    private = max(private, 0)
    return ContainerStats(
        container_id=container.id, pod_uid=container.pod_uid, name=container.name, at=at,
        cpu_total_ns=ticks * _TICK_NS, memory_working_set_bytes=private + shared, memory_rss_bytes=private,
        disk_used_bytes=_disk(folder), processes=count,
    )  # fmt: skip


def _ticks(pid: int, *, own: bool) -> int:
    fields = processes.stat_fields(pid)
    if len(fields) < 15:
        return 0
    return sum(int(field) for field in fields[11 if own else 13 : 15])


def _disk(folder: Path) -> int:
    """Size of the logs and of the working directory, of which at most ``_COUNTED_FILES`` files count."""
    found = sum(each.stat().st_size for each in folder.glob("log*") if each.is_file())
    count = 0
    for top, _, names in os.walk(folder / "work"):
        for name in names:
            count += 1
            if count > _COUNTED_FILES:
                return found
            try:
                found += os.lstat(os.path.join(top, name)).st_size
            except FileNotFoundError:
                continue
    return found


def stragglers(container_id: str) -> list[int]:
    """Processes of a container without a shim, found by their environment."""
    mark = f"{CONTAINER_ID}={container_id}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and mark in processes.read(f"/proc/{name}/environ").split(b"\0"):
            found.append(int(name))
    return found
