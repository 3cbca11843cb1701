"""Sandboxes on this machine: the runtime of a node, and whether the machine can do it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.node.policy.model import Rules
from shoal.node.policy.packets import apply
from shoal.node.proxy.sockets import InsideSockets
from shoal.node.runtime.images.adding import ImageAdder, this_platform
from shoal.node.runtime.images.config import load_image_config
from shoal.node.runtime.images.source import StoreImages
from shoal.node.runtime.images.store import ImageStore
from shoal.node.runtime.model import ContainerSpec, CreateFailure, RuntimeFailure, SandboxSpec, StartFailure
from shoal.node.runtime.process.addresses import PodAddresses
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import ImageTable, load_table
from shoal.node.runtime.process.records import load_container
from shoal.node.runtime.process.runtime import ProcessRuntime, ProcessRuntimeDeps
from shoal.node.runtime.process.table_images import TableImages
from shoal.node.runtime.sandbox.client import HelperClient, HelperLink, end_helper, remove_as_helper
from shoal.node.runtime.sandbox.config import SandboxConfig
from shoal.node.runtime.sandbox.groups import find_groups
from shoal.node.runtime.sandbox.ids import choose
from shoal.node.runtime.sandbox.isolation import SandboxDeps, SandboxIsolation
from shoal.node.runtime.sandbox.network import SandboxNetwork
from shoal.node.runtime.sandbox.roots import MachineRoots, RootSource

_FIX = (
    "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0) on Linux 5.12 or newer, or use --runtime process or docker"
)
_TRIAL_S = 20.0


def helper_folder(cluster: Path) -> Path:
    """Where the helper of a cluster's sandboxes works."""
    return (cluster / "sandbox").absolute()


def image_store(cluster: Path, *, clock: Clock) -> ImageStore:
    """The images of a cluster, which all its nodes share."""

    def used() -> set[str]:
        folders = cluster.glob("nodes/*/containers/*")
        return {found.container.image_id for each in folders if (found := load_container(each)) is not None}

    return ImageStore(
        load_image_config(cluster), ids=lambda: choose(helper_folder(cluster), "auto"), clock=clock, in_use=used
    )


def image_adder(store: ImageStore, *, clock: Clock) -> ImageAdder:
    return ImageAdder(store, clock, this_platform())


def real_images(cluster: Path, table: ImageTable, *, clock: Clock) -> StoreImages:
    """The images of a node of a cluster."""
    store = image_store(cluster, clock=clock)
    return StoreImages(TableImages(table), store, image_adder(store, clock=clock), clock=clock)


def sandbox_runtime(
    process: ProcessConfig, config: SandboxConfig, roots: RootSource, *, node: str, address: str, clock: Clock, ids: Ids
) -> ProcessRuntime:
    """The runtime of one node."""
    isolation = SandboxIsolation(process, config, SandboxDeps(clock=clock, environ=dict(os.environ), roots=roots))
    deps = ProcessRuntimeDeps(clock=clock, new_id=ids.new_uid, host_address=address)
    return ProcessRuntime(process, roots, PodAddresses(SandboxNetwork(config.helper), node), isolation, deps)


async def start_helper(cluster: Path, *, clock: Clock) -> None:
    """Start the helper of a cluster's sandboxes unless it runs; raises ``RuntimeFailure``."""
    folder = helper_folder(cluster)
    client = HelperClient(folder, clock=clock, ids=lambda: choose(folder, "auto"), found=_not_asked)
    try:
        await client.ask({"do": "hello"})
    finally:
        await client.close()


async def _not_asked(link: HelperLink) -> None:
    """Nobody's pods: the agents ask for theirs."""


async def end_helper_of(cluster: Path, *, clock: Clock) -> None:
    """End the helper of a cluster whose pods have ended."""
    await end_helper(helper_folder(cluster), clock=clock)


async def remove_files(cluster: Path, folder: Path, *, clock: Clock) -> None:
    """Delete a folder in which pods of the cluster have written, also as users that exist in its sandboxes only."""
    helper = helper_folder(cluster)
    with suppress(PermissionError):
        await asyncio.to_thread(shutil.rmtree, folder)
        return
    if not helper.is_dir():
        raise PermissionError(f"{folder} has files of other users: delete it as root")
    await remove_as_helper(helper, folder, clock=clock)


@dataclass(frozen=True, slots=True)
class SandboxAnswer:
    """Whether this machine can run sandboxes, and with what; else why not, and the fix."""

    works: bool
    text: str
    fix: str = ""


async def try_sandboxes(clock: Clock) -> SandboxAnswer:
    """Run a container in a sandbox of its own and remove both."""
    with tempfile.TemporaryDirectory(prefix="shoal-trial-", ignore_cleanup_errors=True) as folder:
        process = ProcessConfig(root=Path(folder) / "node")
        config = SandboxConfig(helper=helper_folder(Path(folder)))
        runtime = sandbox_runtime(
            process, config, MachineRoots(load_table()), node="trial", address="127.0.0.1", clock=clock, ids=Ids()
        )
        try:
            async with asyncio.timeout(_TRIAL_S):
                await _trial(runtime)
                policies = await _policies(config.helper)
            users = choose(config.helper, config.ids).shown
            return SandboxAnswer(True, f"{users}; limits: {find_groups().shown}; {policies}")
        except (RuntimeFailure, CreateFailure, StartFailure, OSError, TimeoutError) as failure:
            return SandboxAnswer(False, str(failure) or "starting a container took too long", _FIX)
        finally:
            await end_helper(config.helper, clock=clock)


async def _policies(helper: Path) -> str:
    """Whether the kernel enforces network policies between pods."""
    sockets = InsideSockets(helper)
    try:
        with await sockets.packet_filter() as kernel:
            await asyncio.to_thread(apply, kernel, Rules())
    except OSError as error:
        return f"network policies: for Services and DNS only, not between pods (nftables: {error.strerror})"
    finally:
        sockets.close()
    return "network policies: enforced"


async def _trial(runtime: ProcessRuntime) -> None:
    await runtime.open()
    try:
        sandbox = await runtime.create_sandbox(SandboxSpec(pod_uid="trial", namespace="trial", name="trial"))
        image = await runtime.pull("busybox")
        spec = ContainerSpec(name="trial", attempt=0, image=image, image_reference="busybox", command=("true",))
        made = await runtime.create(sandbox.id, spec)
        await runtime.start(made.id)
        await runtime.remove_sandbox(sandbox.id)
    finally:
        await runtime.close()


async def sandbox_line(clock: Clock) -> str:
    """What sandboxes have here, for the first line of `cluster start`; raises RuntimeFailure with the fix."""
    answer = await try_sandboxes(clock)
    if not answer.works:
        raise RuntimeFailure(f"sandboxes cannot be used on this machine: {answer.text}; {answer.fix}")
    return f"pods have namespaces and a network of their own; {answer.text}"
