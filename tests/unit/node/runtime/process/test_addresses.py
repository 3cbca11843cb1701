"""Addresses of clusters, nodes and pods on the loopback network."""

from __future__ import annotations

import os
import shutil
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.node.runtime.process.addresses import Network, PodAddresses, claim_network


def test_a_cluster_keeps_its_network_and_no_other_gets_it(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    networks = [claim_network(tmp_path / f"cluster-{n}", registry=registry) for n in range(30)]
    assert len({each.number for each in networks}) == 30
    assert claim_network(tmp_path / "cluster-7", registry=registry) == networks[7]
    assert all(each.cidr.startswith("127.") and each.service_cidr.endswith(".128.0/17") for each in networks)


def test_the_network_of_a_deleted_cluster_is_free_again(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    number = claim_network(tmp_path / "a", registry=registry).number
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "network").write_text(f"127.{number}.0.0/16\n")
    assert claim_network(tmp_path / "b", registry=registry).number == number


def test_a_network_that_another_cluster_has_is_refused_with_both_folders(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    number = claim_network(tmp_path / "a", registry=registry).number
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "network").write_text(f"127.{number}.0.0/16\n")
    with pytest.raises(ConfigError) as caught:
        claim_network(tmp_path / "copy", registry=registry)
    assert str(tmp_path / "a") in str(caught.value) and str(tmp_path / "copy") in str(caught.value)


def test_a_list_of_networks_that_another_user_prepared_is_refused(tmp_path: Path) -> None:
    registry = Path("/usr")
    if os.geteuid() == 0:
        registry = tmp_path / "registry"
        registry.mkdir(mode=0o777)
        os.chown(registry, 12345, 12345)
    with pytest.raises(ConfigError, match=r"list of clusters' networks is .* belongs to user"):
        claim_network(tmp_path / "cluster", registry=registry)
    assert not list(registry.glob("lock"))


def test_a_cluster_of_containers_has_a_private_network_apart_from_others(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    first = claim_network(tmp_path / "a", registry=registry, apart_from=())
    assert first.reaches_containers and first.cidr.startswith("10.")
    assert [first.node_address("n"), first.api_address] == [f"10.{first.number}.0.1", f"10.{first.number}.1.1"]
    assert claim_network(tmp_path / "a", registry=registry) == first
    others = [claim_network(tmp_path / f"b{n}", registry=registry, apart_from=()) for n in range(10)]
    assert len({each.cidr for each in (first, *others)}) == 11
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").mkdir()
    elsewhere = claim_network(tmp_path / "a", registry=registry, apart_from=(IPv4Network(first.cidr),))
    assert elsewhere.cidr != first.cidr
    assert not claim_network(tmp_path / "c", registry=registry).reaches_containers
    with pytest.raises(ConfigError, match="all private networks of containers are in use"):
        claim_network(tmp_path / "d", registry=registry, apart_from=(IPv4Network("10.0.0.0/8"),))


def test_a_file_that_names_no_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "network").write_text("10.0.0.0/24")
    with pytest.raises(ConfigError, match="127.5.0.0/16"):
        claim_network(tmp_path, registry=tmp_path / "registry")


def test_a_network_that_is_not_loopback_is_taken_if_the_machine_has_it(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    for wanted in ("10.0.0.0/8", "224.1.0.0/16", "127.1.0.0/16", "shoal"):
        with pytest.raises(ConfigError, match="use a /16 network"):
            claim_network(tmp_path / "a", wanted, registry=registry)
    with pytest.raises(ConfigError, match="ip route add local 198.51.0.0/16 dev lo"):
        claim_network(tmp_path / "a", "198.51.0.0/16", registry=registry)
    network = claim_network(tmp_path / "a", "127.201.0.0/16", registry=registry)
    assert claim_network(tmp_path / "a", "127.201.0.0/16", registry=registry) == network
    with pytest.raises(ConfigError, match="have addresses of 127.201.0.0/16"):
        claim_network(tmp_path / "a", "127.202.0.0/16", registry=registry)
    with pytest.raises(ConfigError, match="in use by the cluster in"):
        claim_network(tmp_path / "b", "127.201.0.0/16", registry=registry)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "network").write_text("10.207.0.0/16\n")
    other = claim_network(tmp_path / "c", registry=registry)
    assert (other.cidr, other.pod_cidr, other.node_address("n")) == ("10.207.0.0/16", "10.207.0.0/17", "10.207.0.1")
    assert _opened(other, "n").take() == "10.207.1.1"


def test_nodes_have_addresses_and_blocks_of_their_own_and_find_them_again(tmp_path: Path) -> None:
    network = Network(9, tmp_path)
    assert network.node_address("a") != network.node_address("b")
    assert network.node_address("a") == Network(9, tmp_path).node_address("a")
    taken = {name: {_opened(network, name).take() for _ in range(1)} for name in ("a", "b")}
    assert taken["a"].isdisjoint(taken["b"])
    assert network.blocks("a") != network.blocks("b")


def _opened(network: Network, node: str, used: tuple[str, ...] = ()) -> PodAddresses:
    found = PodAddresses(network, node)
    found.open(used)
    return found


def test_a_node_takes_another_block_when_one_is_full(tmp_path: Path) -> None:
    addresses = _opened(Network(9, tmp_path), "a")
    assert len({addresses.take() for _ in range(600)}) == 600


def test_a_released_address_is_reused_last(tmp_path: Path) -> None:
    addresses = _opened(Network(9, tmp_path), "a")
    first = addresses.take()
    addresses.give_back(first)
    assert first not in [addresses.take() for _ in range(253)]
    assert addresses.take() == first


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=200))
def test_no_address_is_given_out_while_a_pod_has_it(tmp_path_factory: pytest.TempPathFactory, steps: list[int]) -> None:
    network = Network(9, tmp_path_factory.mktemp("network"))
    addresses, used = _opened(network, "a"), []
    for step in steps:
        if step < 200 or not used:
            address = addresses.take()
            assert address not in used
            used.append(address)
        elif step < 280:
            addresses.give_back(used.pop(step % len(used)))
        else:  # the agent comes back
            addresses = _opened(network, "a", tuple(used))
