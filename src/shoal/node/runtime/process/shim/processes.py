"""Reads ``/proc``: identity, children and memory of processes."""

from __future__ import annotations

import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read(path: str) -> bytes:
    """The content of a file of ``/proc``; empty if its process has exited."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = b""
        while piece := os.read(number, 65536):
            found += piece
        return found
    except OSError:
        return b""
    finally:
        os.close(number)


def stat_fields(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the state on (field 3 in proc(5)), because the name before it may contain
    anything; empty if the process has exited."""
    return read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()


def start_time(pid: int) -> int:
    """The start of a process in ticks since boot; with the pid it identifies the process. 0 if it does not exist."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def session(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[3]) if len(fields) > 3 else 0


def descendants(pid: int) -> list[int]:
    """All descendants, parents before their children."""
    if not os.path.exists("/proc/self/task/self/children") and not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return _descendants_by_scan(pid)
    found: list[int] = []
    seen, todo = {pid}, [pid]
    while todo:
        parent = todo.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            for text in read(f"/proc/{parent}/task/{thread}/children").split():
                child = int(text)
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    todo.append(child)
    return found


def _descendants_by_scan(pid: int) -> list[int]:
    """``descendants`` for kernels without ``/proc/PID/task/TID/children``."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if len(fields) > 1:
                children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [pid]
    while todo:
        more = children.pop(todo.pop(), [])
        found += more
        todo += more
    return found


def private_bytes(pid: int) -> int:
    """Memory of a process without file pages. Cheap, but pages shared after a fork count for each process."""
    fields = read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES if len(fields) > 2 else 0


def proportional_bytes(pid: int) -> int:
    """Memory of a process with its part of shared pages. Expensive: the kernel walks all pages."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def boot_id() -> str:
    return read("/proc/sys/kernel/random/boot_id").decode().strip()
