"""Pods that outlive a cluster that was killed: the next start goes on with them, and `shoal down` ends them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.app.commands.down import left_containers, stop_all
from shoal.base.clock import RealClock
from shoal.client import builtin, connect, load
from shoal.node.runtime.process.records import main_of
from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.waiting import eventually, eventually_blocking

_POD = {
    "metadata": {"name": "sleeper"},
    "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "pause"}]},
}


@contextmanager
def killed(folder: Path) -> Iterator[ServerProcess]:
    """A cluster that is killed at the end."""
    cluster = start_server_process(folder, "--port", "0", components="")
    try:
        yield cluster
    finally:
        cluster.kill()


async def running_pid(cluster: ServerProcess, folder: Path) -> int:
    """Of the container of the pod, once it is running."""
    async with connect(load(cluster.kubeconfig), clock=RealClock()) as client:
        pods = client.of(builtin("pods"))

        async def runs() -> bool:
            return (await pods.get("sleeper", "default"))["status"].get("phase") == "Running"

        await eventually(runs, timeout_s=60)
    (container,) = folder.glob("nodes/*/containers/*")
    main = main_of(container)
    assert main is not None
    return main.pid


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_pods_outlive_a_killed_cluster_are_adopted_by_the_next_one_and_ended_by_down(tmp_path: Path) -> None:
    folder = tmp_path / "clusters" / "eu-1"
    folder.mkdir(parents=True)
    with killed(folder) as first:
        async with connect(load(first.kubeconfig), clock=RealClock()) as client:
            accounts = client.of(builtin("serviceaccounts"))
            await eventually(lambda: accounts.get("default", "default"), timeout_s=60)
            await client.of(builtin("pods")).create(_POD, "default")
        pid = await running_pid(first, folder)
    try:
        assert not is_gone(pid)
        with killed(folder) as second:
            assert await running_pid(second, folder) == pid
        assert not is_gone(pid) and left_containers(folder) == 1

        stopped = await stop_all(tmp_path, clock=RealClock())
        assert stopped[-1] == "1 container that outlived eu-1"
        eventually_blocking(lambda: is_gone(pid))
        assert left_containers(folder) == 0
        assert await stop_all(tmp_path, clock=RealClock()) == []
    finally:
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)
