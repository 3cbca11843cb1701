"""Steps of the start of ``shoal up`` that take modules which it does not need later. Each runs in a process of its own
that ends with it, so their memory does not stay: ``ForkServer.call``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from shoal.app.demo.samples import ensure_samples
from shoal.app.home import NAVIGATOR
from shoal.app.navigator.joining import ensure_access, ensure_join_files
from shoal.app.up_options import UpOptions, cluster_of
from shoal.base.clock import RealClock

WORKSPACE = "default"  # that of a control plane, whose modules need not be loaded for it


def join_navigator(folder: str, regions: Sequence[str], url: str) -> None:
    """Write the join files of the clusters' edges, and what the control plane needs to ask the navigator."""
    options = _options(folder, regions)

    async def join() -> None:
        edges = {cluster_of(region): (region, options.cluster_dir(region) / "edge.json") for region in regions}
        await ensure_join_files(options.navigator_dir, url, edges)
        await ensure_access(options.navigator_dir, url, options.control_dir / NAVIGATOR, WORKSPACE)

    asyncio.run(join())


def apply_samples(folder: str, regions: Sequence[str]) -> None:
    """Apply the samples to the clusters."""
    options = _options(folder, regions)
    kubeconfigs = {region: options.cluster_dir(region) / "kubeconfig" for region in regions}
    asyncio.run(ensure_samples(kubeconfigs, clock=RealClock()))


def _options(folder: str, regions: Sequence[str]) -> UpOptions:
    return UpOptions(dir=Path(folder), regions=tuple(regions))
