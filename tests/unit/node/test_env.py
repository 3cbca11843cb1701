"""The environment of containers: sources, references between variables, service links."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_pods import POD

from shoal.kube import quantity
from shoal.node.env import EnvironmentSources, environment, expand, linked_services, pod_field, service_links
from shoal.node.errors import ConfigFault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"), ("$(A)", "1"), ("x$(A)y$(B)", "x1y$(B)"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"),
        ("$(A", "$(A"), ("$", "$"), ("$x", "$x"), ("a$$", "a$"), ("$(A)$(A)", "11"), ("", ""), ("$()", "$()"),
    ],
)  # fmt: skip
def test_references_to_variables_are_expanded(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}.get) == expected


@given(st.text("$()AB ", max_size=30))
@settings(max_examples=300)
def test_text_without_known_names_only_loses_doubled_dollars(text: str) -> None:
    assert expand(text, lambda _: None).replace("$", "") == text.replace("$", "")


def test_later_variables_win_and_see_earlier_ones() -> None:
    container = {
        "name": "c",
        "envFrom": [{"configMapRef": {"name": "m"}}, {"prefix": "S_", "secretRef": {"name": "s"}}],
        "env": [{"name": "A", "value": "own"}, {"name": "B", "value": "$(A)-$(S_K)"}, {"name": "EMPTY"}],
    }
    secret = {"data": {"K": base64.b64encode(b"hidden").decode()}}
    sources = EnvironmentSources(config_maps={"m": {"data": {"A": "map", "Z": "z"}}}, secrets={"s": secret})
    found = dict(environment(POD, container, sources))
    assert found == {"A": "own", "Z": "z", "S_K": "hidden", "B": "own-hidden", "EMPTY": ""}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"configMapKeyRef": {"name": "m", "key": "k"}}, 'configmap "m" not found'),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, 'secret "s" not found'),
        ({"configMapKeyRef": {"name": "there", "key": "k"}}, "couldn't find key k in ConfigMap n/there"),
        ({"fieldRef": {"fieldPath": "spec.other"}}, "unsupported fieldPath: spec.other"),
        ({"resourceFieldRef": {"containerName": "x", "resource": "limits.cpu"}}, "container x not found"),
    ],
)
def test_a_missing_source_is_named_in_the_error(variable: dict[str, Any], message: str) -> None:
    container = {"name": "c", "env": [{"name": "V", "valueFrom": variable}]}
    with pytest.raises(ConfigFault) as caught:
        environment(POD, container, EnvironmentSources(config_maps={"there": {"data": {}}}))
    assert str(caught.value) == message


def test_an_optional_source_may_be_missing() -> None:
    source = {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}
    container = {
        "name": "c", "env": [{"name": "V", "valueFrom": source}],
        "envFrom": [{"secretRef": {"name": "s", "optional": True}}],
    }  # fmt: skip
    assert environment(POD, container, EnvironmentSources()) == ()


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"), ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "64"), ({"resource": "requests.memory"}, "67108864"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"), ({"resource": "requests.cpu"}, "0"),
    ],
)  # fmt: skip
def test_resource_fields_are_divided_and_rounded_up(reference: dict[str, Any], expected: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}
    container = {
        "name": "c",
        "resources": resources,
        "env": [{"name": "V", "valueFrom": {"resourceFieldRef": reference}}],
    }
    sources = EnvironmentSources(allocatable={"memory": quantity.parse("8Gi")})
    assert dict(environment(POD, container, sources))["V"] == expected


def test_fields_of_a_pod_become_text() -> None:
    sources = EnvironmentSources(pod_addresses=("10.0.0.1", "fd00::1"), host_addresses=("192.0.2.1",))
    assert pod_field(POD, "metadata.labels['b']", sources) == "2"
    assert pod_field(POD, "metadata.labels", sources) == 'a="x\\"y"\nb="2"'
    assert pod_field(POD, "status.podIPs", sources) == "10.0.0.1,fd00::1"
    assert pod_field(POD, "spec.serviceAccountName", sources) == "sa"


def test_service_links_have_the_hosts_and_ports_of_services() -> None:
    ports = [{"name": "web", "port": 80}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}]
    service = {"metadata": {"name": "my-app", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.7", "ports": ports}}
    headless = {"metadata": {"name": "h", "namespace": "n"}, "spec": {"clusterIP": "None", "ports": ports}}
    api = {
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": ports},
    }
    other = {"metadata": {"name": "x", "namespace": "other"}, "spec": {"clusterIP": "10.96.0.9", "ports": ports}}
    every = (service, headless, api, other)
    assert linked_services(every, "n", all_links=True) == (api, service)
    assert linked_services(every, "n", all_links=False) == (api,)
    found = service_links([service])
    assert found["MY_APP_SERVICE_HOST"] == "10.96.0.7"
    assert (found["MY_APP_SERVICE_PORT"], found["MY_APP_SERVICE_PORT_DNS_UDP"]) == ("80", "53")
    assert found["MY_APP_PORT"] == found["MY_APP_PORT_80_TCP"] == "tcp://10.96.0.7:80"
    assert found["MY_APP_PORT_53_UDP_PROTO"] == "udp"


def test_service_links_have_the_port_at_which_a_moved_port_is_served() -> None:
    moved = {"shoal.dev/served-ports": "80:8080,x:1,443:"}
    ports = [{"name": "web", "port": 80}, {"name": "tls", "port": 443}]
    about = {"name": "my-app", "namespace": "n", "annotations": moved}
    found = service_links([{"metadata": about, "spec": {"clusterIP": "127.5.128.7", "ports": ports}}])
    assert (found["MY_APP_SERVICE_PORT"], found["MY_APP_SERVICE_PORT_WEB"]) == ("8080", "8080")
    assert found["MY_APP_PORT"] == found["MY_APP_PORT_80_TCP"] == "tcp://127.5.128.7:8080"
    assert found["MY_APP_PORT_80_TCP_PORT"] == "8080"
    assert found["MY_APP_SERVICE_PORT_TLS"] == found["MY_APP_PORT_443_TCP_PORT"] == "443"
