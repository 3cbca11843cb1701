"""``shoal down``: stops the processes of a state directory and waits until they have ended."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import UP_LOCK, directory
from shoal.base.clock import Clock, RealClock
from shoal.base.files import holder_of
from shoal.cli.apps import new_app
from shoal.errors import ShoalError

app = new_app("Stop the processes of a state directory.")

STOP_BUDGET_S = 20.0
_POLL_S = 0.05


@app.command()
def down(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="then delete the state directory, with everything that pods have written")
    ] = False,
) -> None:
    """Stop the processes that `shoal up`, `shoal cluster start` or `shoal control start` runs in a state directory, and
    pods whose cluster was killed. The state is kept, unless --purge is given."""
    import asyncio

    state = directory(dir)
    stopped = asyncio.run(stop_all(state, clock=RealClock()))
    typer.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing is running")
    if purge:
        asyncio.run(delete_state(state, clock=RealClock()))
        typer.echo(f"deleted {state}")


async def delete_state(state: Path, *, clock: Clock) -> None:
    """Delete a state directory in which nothing runs any more. Files of pods may belong to users that only exist in
    the user namespace of their cluster."""
    if not any(lock.exists() for lock in locks_of(state)):
        raise ShoalError(f"{state} is not a state directory of Shoal: nothing was deleted")
    for cluster in clusters_of(state):
        for folder in (cluster / "nodes", cluster / "images"):
            if folder.is_dir():
                from shoal.app.sandboxes import remove_files

                await remove_files(cluster, folder, clock=clock)
    shutil.rmtree(state)


def locks_of(state: Path) -> list[Path]:
    """Every lock that a process of this directory can hold; first the one of `shoal up`, which stops the others, and
    last those of service proxies, which outlive a cluster that was killed."""
    below = (
        *sorted(state.glob("clusters/*/cluster.lock")),
        state / "control" / "control.lock",
        state / "navigator" / "manager.lock",
    )
    proxies = (state / "proxy" / "proxy.lock", *sorted(state.glob("clusters/*/proxy/proxy.lock")))
    return [state / UP_LOCK, state / "cluster.lock", state / "control.lock", *below, *proxies]


async def stop_all(state: Path, *, clock: Clock) -> list[str]:
    """Stop each process in order and wait for its end; return the names of the stopped ones."""
    stopped: list[str] = []
    for lock in locks_of(state):
        pid = holder_of(lock)
        if pid is None:
            continue
        os.kill(pid, signal.SIGTERM)
        deadline = clock.monotonic() + STOP_BUDGET_S
        while holder_of(lock) == pid:
            if clock.monotonic() > deadline:
                raise ShoalError(f"process {pid} did not stop within {STOP_BUDGET_S:.0f} s and still holds {lock}")
            await clock.sleep(_POLL_S)
        stopped.append(f"{lock.stem} (process {pid})")
    for cluster in clusters_of(state):
        count = left_containers(cluster)
        if count and holder_of(cluster / "cluster.lock") is None:
            from shoal.app.nodes import end_left_pods

            await end_left_pods(cluster, clock=clock)
            stopped.append(f"{count} {'container' if count == 1 else 'containers'} that outlived {cluster.name}")
        if (pid := holder_of(cluster / "sandbox" / "helper.lock")) and holder_of(cluster / "cluster.lock") is None:
            from shoal.app.sandboxes import end_helper_of

            await end_helper_of(cluster, clock=clock)
            stopped.append(f"helper of sandboxes (process {pid})")
    return stopped


def clusters_of(state: Path) -> list[Path]:
    """The directories that may be that of a cluster."""
    return [state, *sorted(state.glob("clusters/*"))]


def left_containers(cluster: Path) -> int:
    """How many containers run as processes on the nodes of a cluster."""
    folders = list(cluster.glob("nodes/*/containers/*"))
    if not folders:
        return 0
    from shoal.node.runtime.process.records import shim_of

    return sum(shim is not None and shim.alive for shim in map(shim_of, folders))
