"""Where pods, services and nodes are, and what is said when they are nowhere."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from shoal.apiserver.nodes import locate
from shoal.apiserver.nodes.locate import ProxiedName, UnknownError
from shoal.errors import BadRequest, ServiceUnavailable
from shoal.kube.objects import Obj

LOOPBACK = (ip_network("127.42.0.0/16"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p", ProxiedName("", "p", "")),
        ("p:80", ProxiedName("", "p", "80")),
        ("p:web", ProxiedName("", "p", "web")),
        ("https:p:443", ProxiedName("https", "p", "443")),
        ("http:p:", ProxiedName("http", "p", "")),
    ],
)
def test_a_name_may_say_scheme_and_port(text: str, expected: ProxiedName) -> None:
    assert locate.wanted(text, "pod") == expected


@pytest.mark.parametrize("text", ["", ":80", "ftp:p:21", "a:b:c:d", "https::1"])
def test_other_forms_of_names_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="invalid pod request"):
        locate.wanted(text, "pod")


def a_pod(*containers: str, **status: Any) -> Obj:
    spec = {"containers": [{"name": name} for name in containers], "initContainers": [{"name": "init"}]}
    return {"metadata": {"name": "p"}, "spec": spec, "status": status}


def test_the_only_container_needs_no_name() -> None:
    assert locate.container_of(a_pod("a"), "") == "a"
    assert locate.container_of(a_pod("a", "b"), "b") == "b"
    assert locate.container_of(a_pod("a"), "init") == "init"


def test_an_ambiguous_container_is_refused() -> None:
    with pytest.raises(BadRequest) as refused:
        locate.container_of(a_pod("a", "b"), "")
    text = "a container name must be specified for pod p, choose one of: [init a b]"
    assert refused.value.message == text
    with pytest.raises(BadRequest, match="container x is not valid for pod p"):
        locate.container_of(a_pod("a"), "x")


def a_node(*addresses: tuple[str, str], port: int = 0) -> Obj:
    made = [{"type": kind, "address": address} for kind, address in addresses]
    return {"status": {"addresses": made, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}


def test_a_kubelet_is_at_the_preferred_address() -> None:
    node = a_node(("Hostname", "n1"), ("InternalIP", "10.0.0.1"), port=1234)
    assert locate.kubelet_address(node, ("InternalIP", "Hostname"), 10250) == ("10.0.0.1", 1234)
    assert locate.kubelet_address(a_node(("Hostname", "n1")), ("InternalIP", "Hostname"), 10250) == ("n1", 10250)
    with pytest.raises(UnknownError, match="no preferred addresses found"):
        locate.kubelet_address({}, ("InternalIP",), 10250)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "fe80::1", "", "name", "127.43.0.1"],
)  # fmt: skip
def test_no_pod_is_at_special_addresses(address: str) -> None:
    with pytest.raises(BadRequest, match="address not allowed"):
        locate.check_address(address, LOOPBACK)


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.0.1", "8.8.8.8", "fd00::1", "127.42.0.7"])
def test_pods_are_at_ordinary_addresses_and_those_of_the_clusters_own_loopback(address: str) -> None:
    locate.check_address(address, LOOPBACK)


def test_a_pods_first_port_is_the_default() -> None:
    pod = a_pod("a", "b", podIPs=[{"ip": "10.0.0.9"}])
    assert locate.pod_address(pod, "", ()) == ("10.0.0.9", "")
    pod["spec"]["containers"][1]["ports"] = [{"containerPort": 8080}, {"containerPort": 9}]
    assert locate.pod_address(pod, "", ()) == ("10.0.0.9", "8080")
    assert locate.pod_address(pod, "1", ()) == ("10.0.0.9", "1")
    with pytest.raises(BadRequest):
        locate.pod_address(a_pod("a"), "", ())


def test_a_services_port_goes_by_number_or_name() -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}, {"port": 81}]}}
    assert locate.port_name(service, "80") == "web"
    assert locate.port_name(service, "81") == ""
    assert locate.port_name(service, "web") == "web"
    with pytest.raises(ServiceUnavailable, match='no service port 82 found for service "s"'):
        locate.port_name(service, "82")


def test_endpoints_are_taken_in_turn_and_only_ready_pods() -> None:
    pods = {name: {"status": {"podIPs": [{"ip": f"10.0.0.{name}"}]}} for name in "123"}

    def endpoint(name: str, address: str = "", *, ready: bool = True) -> Obj:
        made = {"addresses": [address or f"10.0.0.{name}"], "conditions": {"ready": ready}}
        return {**made, "targetRef": {"kind": "Pod", "name": name}}

    endpoints = [
        endpoint("1"), endpoint("2"), endpoint("3", ready=False), endpoint("1", "10.6.6.6"),
        {"addresses": ["10.7.7.7"]}, endpoint("absent"),
    ]  # fmt: skip
    slices = [{"ports": [{"name": "other", "port": 9}], "endpoints": endpoints}]
    with pytest.raises(ServiceUnavailable, match='no endpoints available for service "s"'):
        locate.endpoint_of("s", slices, "web", pods.get, 0)
    slices.append({"ports": [{"name": "web", "port": 80}], "endpoints": endpoints})
    found = [locate.endpoint_of("s", slices, "web", pods.get, turn) for turn in range(6)]
    assert set(found) == {("10.0.0.1", 80), ("10.0.0.2", 80)}
