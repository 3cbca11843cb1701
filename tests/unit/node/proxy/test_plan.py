"""The listeners of services, and the choice of a backend."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.objects import Obj
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.plan import (
    BackendChoice,
    backends_of,
    balancer_of,
    free_balancer,
    listeners_of,
    moved_ports,
    wants_balancer,
)


def service(**spec: Any) -> Obj:
    made: Obj = {"clusterIP": "127.9.128.5", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], **spec}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": made}


def endpoint(address: str, **conditions: bool) -> Obj:
    return {"addresses": [address], "conditions": conditions}


def piece(*endpoints: Obj, port: int = 8080, name: str = "http", protocol: str = "TCP", kind: str = "IPv4") -> Obj:
    return {
        "metadata": {"name": "web-1", "namespace": "default"}, "addressType": kind, "endpoints": list(endpoints),
        "ports": [{"name": name, "port": port, "protocol": protocol}],
    }  # fmt: skip


def test_a_service_has_listeners_at_its_cluster_ip_and_node_ports() -> None:
    asked = service(type="NodePort", ports=[{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}])
    found = listeners_of(asked, [piece(endpoint("127.9.1.1"))], ["127.9.0.1", "127.0.0.1"])
    assert [(str(each.place), each.node_port) for each in found] == [
        ("127.9.128.5:80/TCP", False), ("127.9.0.1:30080/TCP", True), ("127.0.0.1:30080/TCP", True),
    ]  # fmt: skip
    assert all(each.backends == (ProxyBackend("127.9.1.1", 8080),) for each in found)


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": "None"},
        {"clusterIP": ""},
        {"type": "ExternalName"},
        {"ports": []},
        {"ports": [{"name": "other", "port": 1}]},
    ],
)
def test_a_service_without_cluster_ip_or_matching_port_has_no_listener(spec: Obj) -> None:
    assert listeners_of(service(**spec), [piece(endpoint("127.9.1.1"))], ["127.0.0.1"]) == ()


def test_a_service_without_endpoints_has_no_listener() -> None:
    assert listeners_of(service(), [piece()], ["127.0.0.1"]) == ()
    assert listeners_of(service(), [piece(endpoint("127.9.1.1", ready=False))], ["127.0.0.1"]) == ()


def test_terminating_pods_are_used_only_without_ready_ones() -> None:
    ready, unsaid = endpoint("127.9.1.1", ready=True, serving=True), endpoint("127.9.1.2")
    going = endpoint("127.9.1.3", ready=False, serving=True, terminating=True)
    down = endpoint("127.9.1.4", ready=False, serving=False, terminating=True)
    starting = endpoint("127.9.1.5", ready=False, serving=True, terminating=False)

    def found(*endpoints: Obj) -> list[str]:
        return [each.address for each in backends_of("http", "TCP", [piece(*endpoints)])]

    assert found(going, unsaid, ready, down) == ["127.9.1.1", "127.9.1.2"]
    assert found(going, down, starting) == ["127.9.1.3"]
    assert found(down) == []


def test_ports_are_matched_by_name_and_protocol_over_all_slices() -> None:
    slices = [
        piece(endpoint("127.9.1.1"), port=1), piece(endpoint("127.9.1.2"), port=2), piece(endpoint("127.9.1.1"), port=1),
        piece(endpoint("127.9.1.3"), protocol="UDP"), piece(endpoint("127.9.1.4"), name="x"), piece(endpoint("a.b"), kind="FQDN"),
    ]  # fmt: skip
    assert backends_of("http", "TCP", slices) == (ProxyBackend("127.9.1.1", 1), ProxyBackend("127.9.1.2", 2))
    assert backends_of("http", "UDP", slices) == (ProxyBackend("127.9.1.3", 8080),)


def test_moved_ports_are_listed_in_order() -> None:
    places = [ListenAddress("TCP", "127.9.128.5", port) for port in (443, 80, 8443)]
    assert moved_ports(places[:2], places) == "80:8080,443:8443"
    assert moved_ports([], places) == ""


def choice(count: int, affinity_s: float = 0.0) -> BackendChoice:
    backends = tuple(ProxyBackend(f"127.9.1.{n}", 1) for n in range(1, count + 1))
    return BackendChoice(
        ProxyListener(place=ListenAddress("TCP", "127.9.128.5", 80), backends=backends, affinity_s=affinity_s)
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 7), st.integers(1, 40))
def test_pods_take_turns(count: int, clients: int) -> None:
    asked = choice(count)
    firsts = [asked.order("c", 0.0)[0] for _ in range(clients)]
    counts = [firsts.count(each) for each in asked.listener.backends]
    assert max(counts) - min(counts) <= 1
    assert all(set(asked.order("c", 0.0)) == set(asked.listener.backends) for _ in range(3))


def test_a_client_keeps_its_pod_until_the_affinity_expires_or_the_pod_is_removed() -> None:
    asked = choice(3, affinity_s=10)
    first = asked.order("a", 0.0)[0]
    asked.remember("a", first, 0.0)
    assert asked.order("b", 1.0)[0] != first
    assert asked.order("a", 9.0)[0] == first
    asked.remember("a", first, 9.0)
    assert asked.order("a", 19.0)[0] == first
    rest = tuple(each for each in asked.listener.backends if each != first)
    asked.change(ProxyListener(place=asked.listener.place, backends=rest, affinity_s=10))
    assert asked.order("a", 19.5)[0] in rest
    asked.remember("a", rest[0], 20.0)
    others = {asked.order("a", 40.0)[0] for _ in range(2)}
    assert others == set(rest)


def test_a_balancer_gets_the_first_free_address_and_keeps_one_of_the_range() -> None:
    one = {**service(type="LoadBalancer"), "status": {"loadBalancer": {"ingress": [{"ip": "127.9.128.2"}]}}}
    assert balancer_of(one, "127.9.128.0/17") == "127.9.128.2"
    assert balancer_of(one, "127.8.128.0/17") == ""
    assert balancer_of({**one, "status": {"loadBalancer": {"ingress": [{"hostname": "x"}]}}}, "127.9.128.0/17") == ""
    assert free_balancer("127.9.128.0/30", {"127.9.128.1"}) == "127.9.128.2"
    assert free_balancer("127.9.128.0/30", {"127.9.128.1", "127.9.128.2"}) == ""


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [({"type": "LoadBalancer"}, True), ({"type": "LoadBalancer", "loadBalancerClass": "x"}, False), ({}, False)],
)
def test_services_of_another_class_get_no_address(spec: Obj, wanted: bool) -> None:
    assert wants_balancer(service(**spec)) is wanted
