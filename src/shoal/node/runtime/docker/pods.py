"""Ways into the processes of containers that run on this machine: a socket in a pod's network, and an end by force.

Both need rights that only root has, and an engine on the same machine and not in a virtual one. Where these are missing
the caller is told and does without.
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
    """Whether a process of this machine is the container's, and not one of another machine with the same number."""
    return pid > 0 and container_id.encode() in read(f"/proc/{pid}/cgroup")


def kill(pid: int, container_id: str) -> bool:
    """Kill a process of a container with all that it started; False when it cannot be reached."""
    if not belongs(pid, container_id):
        return False
    for each in (*descendants(pid), pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    return True


async def socket_in(pid: int, container_id: str) -> socket.socket | None:
    """A socket in the network of a container; None when there is no way in."""
    if not belongs(pid, container_id):
        return None
    # Entering a network changes the thread for good, so the thread is thrown away.
    thread = ThreadPoolExecutor(1, thread_name_prefix="pod-network")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, _socket_of, pid)
    except OSError:
        return None
    finally:
        thread.shutdown(wait=False)


def enter_network(pid: int) -> None:
    """Move this thread into the network of a process, for good."""
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
