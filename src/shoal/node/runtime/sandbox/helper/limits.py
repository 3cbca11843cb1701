"""Limits of a container by control groups, version 1 or 2. The shim makes the groups, moves processes in, and removes
them. ``config["cgroup"]`` maps controllers to folders; it is empty where this machine gives no groups."""

from __future__ import annotations

import os

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CPU_PERIOD_US = 100_000
_REMOVE_TRIES = 50


def make(groups: dict[str, str], resources: dict[str, int]) -> None:
    """Make the groups, with these limits."""
    for folder in dict.fromkeys(groups.values()):
        os.makedirs(folder, exist_ok=True)
    apply(groups, resources)


def apply(groups: dict[str, str], resources: dict[str, int]) -> None:
    """Write limits; 0 means none. A limit of memory below what is in use leaves the old one, as the kernel says no."""
    for controller, name, value in settings(groups, resources):
        try:
            files.write(f"{groups[controller]}/{name}", value)
        except OSError:
            continue


def settings(groups: dict[str, str], resources: dict[str, int]) -> list[tuple[str, str, str]]:
    """Controller, file and text of each setting, for version 1 or 2 (``unified``); pure."""
    memory, cpu = resources["memory"], resources["cpu_limit_milli"]
    weight, most = resources["cpu_request_milli"], resources["processes"]
    quota = cpu * _CPU_PERIOD_US // 1000
    shares = max(2, weight * 1024 // 1000)
    one = not resources["unified"]
    found: list[tuple[str, str, str]] = []
    if "memory" in groups:
        if one:
            # twice: the limit with swap is never below that without, so the order depends on the direction
            for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"):
                found.append(("memory", name, str(memory or -1)))
        else:
            found.append(("memory", "memory.max", str(memory or "max")))
            found.append(("memory", "memory.swap.max", "0" if memory else "max"))
    if "cpu" in groups:
        if one:
            found.append(("cpu", "cpu.cfs_quota_us", str(quota or -1)))
            found.append(("cpu", "cpu.shares", str(shares)))
        else:
            found.append(("cpu", "cpu.max", f"{quota or 'max'} {_CPU_PERIOD_US}"))
            found.append(("cpu", "cpu.weight", str(1 + (shares - 2) * 9999 // 262142)))
    if "pids" in groups:
        found.append(("pids", "pids.max", str(most or "max")))
    return found


def join(groups: dict[str, str], pid: int) -> None:
    for folder in dict.fromkeys(groups.values()):
        files.write(f"{folder}/cgroup.procs", str(pid))


def was_out_of_memory(groups: dict[str, str]) -> bool:
    """Whether the kernel has killed a process of the group because of its limit."""
    folder = groups.get("memory")
    for name in ("memory.events", "memory.oom_control") if folder else ():
        try:
            text = files.read(f"{folder}/{name}")
        except OSError:
            continue
        for line in text.splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill" and number.strip() != "0":
                return True
    return False


def remove(groups: dict[str, str], pause: Any) -> None:
    """Remove the groups once their processes are gone."""
    for folder in dict.fromkeys(groups.values()):
        for _ in range(_REMOVE_TRIES):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError:
                pause()
            else:
                break
