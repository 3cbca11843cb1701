"""Which network a cluster of containers gets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from shoal.app.cluster import run_until
from shoal.app.config import ClusterConfig, StoreUrl
from shoal.app.container_network import ContainerReach, api_listener, choose_network
from shoal.errors import ConfigError
from shoal.node.proxy.model import ProxyBackend

REACHED = ContainerReach("", (IPv4Network("10.89.3.0/24"),), (IPv4Network("10.48.0.0/13"),))
ROOTLESS = ContainerReach("the container engine is rootless", (), ())


def config(folder: Path, **more: object) -> ClusterConfig:
    return replace(
        ClusterConfig(dir=folder / "c", store=StoreUrl("memory"), nodes=1, runtime="docker", port=7001), **more
    )  # type: ignore[arg-type]


def test_a_new_cluster_has_a_network_that_containers_reach_and_no_other_network_has(tmp_path: Path) -> None:
    network, problem = choose_network(config(tmp_path), REACHED)
    assert network.reaches_containers and not problem
    assert not IPv4Network(network.cidr).overlaps(REACHED.every[0])
    assert choose_network(config(tmp_path), REACHED) == (network, "")


def test_where_containers_cannot_reach_it_a_cluster_has_loopback_addresses_for_good(tmp_path: Path) -> None:
    network, problem = choose_network(config(tmp_path), ROOTLESS)
    assert network.cidr.startswith("127.") and problem == ROOTLESS.problem
    assert choose_network(config(tmp_path), REACHED)[1].endswith("began with loopback addresses")
    elsewhere = config(tmp_path / "other", components=("nodes",))
    assert choose_network(elsewhere, REACHED)[1] == "the API server of this cluster runs elsewhere"


async def test_a_cluster_whose_network_cannot_be_made_local_again_does_not_start(tmp_path: Path) -> None:
    network, _ = choose_network(config(tmp_path), REACHED)
    with pytest.raises(ConfigError, match=f"{network.cidr} .* cannot be made local: the container engine is rootless"):
        choose_network(config(tmp_path), ROOTLESS)
    with pytest.raises(ConfigError, match=r"runtime is 'process': .* use --runtime docker"):
        await run_until(asyncio.Event(), config(tmp_path, runtime="process"), lambda: None)


def test_the_api_server_is_served_to_containers_unless_it_listens_everywhere(tmp_path: Path) -> None:
    network, _ = choose_network(config(tmp_path), REACHED)
    (listener,) = api_listener(config(tmp_path), network)
    assert str(listener.place) == f"{network.api_address}:7001/TCP"
    assert listener.backends == (ProxyBackend("127.0.0.1", 7001),)
    assert api_listener(config(tmp_path, host="0.0.0.0"), network) == ()
