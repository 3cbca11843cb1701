"""Direct access to containers whose processes run on this machine: sockets in a pod's network, and kills.

Both need root, and an engine that runs on this machine and not in a virtual one. Without them ``socket_in`` returns
None and ``kill`` False.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from shoal.node.runtime.process.shim.processes import descendants, read

_NETWORK = 0x40000000  # CLONE_NEWNET


def belongs(pid: int, container_id: str) -> bool:
    """Whether the process of this machine with this pid is the container's."""
    return pid > 0 and container_id.encode() in read(f"/proc/{pid}/cgroup")


def kill(pid: int, container_id: str) -> bool:
    """Kill a process of a container and its descendants; False if the process is not on this machine."""
    if not belongs(pid, container_id):
        return False
    for each in (*descendants(pid), pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    return True


async def socket_in(pid: int, container_id: str) -> socket.socket | None:
    """A socket in the network of a container; None if the network cannot be entered."""
    if not belongs(pid, container_id):
        return None
    # A thread cannot leave a network namespace safely, so it is used once.
    thread = ThreadPoolExecutor(1, thread_name_prefix="pod-network")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, _socket_of, pid)
    except OSError:
        return None
    finally:
        thread.shutdown(wait=False)


def enter_network(pid: int) -> None:
    """Move this thread to the network namespace of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(network, _NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "entering the pod's network namespace failed")
    finally:
        os.close(network)


def _socket_of(pid: int) -> socket.socket:
    enter_network(pid)
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setblocking(False)
    return found
