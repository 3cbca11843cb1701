"""Addresses of simulated nodes and pods."""

from __future__ import annotations

from shoal.node.simulated.addresses import Addresses


def test_addresses_of_one_node_are_distinct_and_are_not_reused_at_once() -> None:
    addresses = Addresses("172.16.0.0/12", "10.0.0.0/8", pods=100)
    taken = [addresses.take(7) for _ in range(100)]
    assert len(set(taken)) == 100
    addresses.free(7, taken[-1])
    assert addresses.take(7) != taken[-1]
    assert addresses.network(7) == "10.0.7.0/24"
    assert (addresses.node(1), addresses.node(5000)) == ("172.16.0.1", "172.16.19.136")
