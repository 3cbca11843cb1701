"""Ingress, IngressClass, NetworkPolicy, ServiceCIDR, IPAddress, EndpointSlice and PodDisruptionBudget."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.kinds.networking.endpoint_slice import endpoint_slice_rules

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def test_a_network_policy_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [port["protocol"] for port in spec["ingress"][0]["ports"]] == ["TCP", "TCP"]
    assert spec["egress"][0]["ports"][0]["protocol"] == "UDP"
    assert kinds.created("NetworkPolicy", {"spec.egress": kinds.ABSENT})["spec"]["policyTypes"] == ["Ingress"]


def test_ports_of_a_slice_get_a_name_and_a_protocol(kinds: Any) -> None:
    made = kinds.created("EndpointSlice", {"ports": [{"port": 80}]})
    assert made["ports"] == [{"port": 80, "name": "", "protocol": "TCP"}]


def test_the_old_topology_is_dropped(kinds: Any) -> None:
    made = kinds.created("EndpointSlice", {"endpoints.0.deprecatedTopology": {"a": "b"}})
    assert "deprecatedTopology" not in made["endpoints"][0]


def test_parameters_of_an_ingress_class_are_for_the_cluster(kinds: Any) -> None:
    assert kinds.created("IngressClass")["spec"]["parameters"]["scope"] == "Cluster"


P = "spec.rules[0].http.paths[0]"
PEER = "spec.ingress[0].from[1]"
PATH = "spec.rules.0.http.paths.0"
ADDRESS = "endpoints[0].addresses[0]"
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Ingress", {"spec": {}}, ["spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"]),
    ("Ingress", {f"{PATH}.path": "x"}, [f'{P}.path: Invalid value: "x": must be an absolute path']),
    ("Ingress", {f"{PATH}.path": "/a//b"}, [f"{P}.path: Invalid value: \"/a//b\": must not contain '//'"]),
    ("Ingress", {f"{PATH}.path": "/a/.."}, [f"{P}.path: Invalid value: \"/a/..\": cannot end with '/..'"]),
    ("Ingress", {f"{PATH}.pathType": "ImplementationSpecific", f"{PATH}.path": "/a//b"}, []),
    ("Ingress", {f"{PATH}.pathType": "Glob"}, [
        f'{P}.pathType: Unsupported value: "Glob": supported values: "Exact", "ImplementationSpecific", "Prefix"'
    ]),
    ("Ingress", {f"{PATH}.backend": {}}, [f'{P}.backend: Invalid value: "": resource or service backend is required']),
    ("Ingress", {f"{PATH}.backend.resource": {"kind": "a", "name": "b"}}, [
        f'{P}.backend: Invalid value: "": cannot set both resource and service backends'
    ]),
    ("Ingress", {f"{PATH}.backend.service.port": {}}, [f"{P}.backend: Required value: port name or number is required"]),
    ("Ingress", {f"{PATH}.backend.service.port": {"name": "a", "number": 1}}, [
        f'{P}.backend: Invalid value: "": cannot set both port name & port number'
    ]),
    ("Ingress", {f"{PATH}.backend.service.port": {"number": 70000}}, [
        f"{P}.backend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive"
    ]),
    ("Ingress", {f"{PATH}.backend.service.name": ""}, [f"{P}.backend.service.name: Required value"]),
    ("Ingress", {"spec.rules.0.http.paths": []}, ["spec.rules[0].http.paths: Required value"]),
    ("Ingress", {"spec.rules.0.host": "10.0.0.1"}, [
        'spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'
    ]),
    ("Ingress", {"spec.rules.0.host": "*.shop.example"}, []),
    ("Ingress", {"spec.rules.0.host": "Shop"}, [f'spec.rules[0].host: Invalid value: "Shop": {SUBDOMAIN}']),
    ("Ingress", {"spec.tls.0.secretName": "A"}, [f'spec.tls[0].secretName: Invalid value: "A": {SUBDOMAIN}']),
    ("Ingress", {"spec.ingressClassName": "A"}, [f'spec.ingressClassName: Invalid value: "A": {SUBDOMAIN}']),
    ("Ingress", {"metadata.annotations": {"kubernetes.io/ingress.class": "other"}}, [
        'annotations.kubernetes.io/ingress.class: Invalid value: "other": '
        "must match `ingressClassName` when both are specified"
    ]),
    ("IngressClass", {"spec.controller": ""}, ["spec.controller: Required value"]),
    ("IngressClass", {"spec.controller": "plain"}, [
        'spec.controller: Invalid value: "plain": must be a domain-prefixed path (such as "acme.io/foo")'
    ]),
    ("IngressClass", {"spec.controller": "a.example/" + "x" * 250}, [
        "spec.controller: Too long: may not be more than 250 bytes"
    ]),
    ("IngressClass", {"spec.parameters.scope": "Namespace"}, [
        "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"
    ]),
    ("IngressClass", {"spec.parameters.namespace": "a"}, [
        "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"
    ]),
    ("IngressClass", {"spec.parameters.scope": "World"}, [
        'spec.parameters.scope: Unsupported value: "World": supported values: "Cluster", "Namespace"'
    ]),
    ("NetworkPolicy", {"spec.ingress.0.from.0": {}}, ["spec.ingress[0].from[0]: Required value: must specify a peer"]),
    ("NetworkPolicy", {"spec.ingress.0.from.1.podSelector": {}}, [
        f"{PEER}: Forbidden: may not specify both ipBlock and another peer"
    ]),
    ("NetworkPolicy", {"spec.ingress.0.from.1.ipBlock.cidr": ""}, [f"{PEER}.ipBlock.cidr: Required value"]),
    ("NetworkPolicy", {"spec.ingress.0.from.1.ipBlock.except": ["10.0.0.0/8"]}, [
        f'{PEER}.ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`'
    ]),
    ("NetworkPolicy", {"spec.ingress.0.from.1.ipBlock.except": ["2001:db8::/64"]}, [
        f'{PEER}.ipBlock.except[0]: Invalid value: "2001:db8::/64": must be a strict subset of `cidr`'
    ]),
    ("NetworkPolicy", {"spec.ingress.0.from.1.ipBlock": {"cidr": "10.0.0.1/8"}}, [
        f'{PEER}.ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length'
    ]),
    ("NetworkPolicy", {"spec.ingress.0.ports.0.protocol": "ICMP"}, [
        'spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'
    ]),
    ("NetworkPolicy", {"spec.ingress.0.ports.1.endPort": 7000}, [
        "spec.ingress[0].ports[1].endPort: Invalid value: 7000: must be greater than or equal to `port`"
    ]),
    ("NetworkPolicy", {"spec.egress.0.ports.0.endPort": 1}, [
        "spec.egress[0].ports[0].endPort: Invalid value: 1: may not be specified when `port` is non-numeric"
    ]),
    ("NetworkPolicy", {"spec.egress.0.ports.0": {"endPort": 1}}, [
        "spec.egress[0].ports[0].endPort: Invalid value: 1: may not be specified when `port` is not specified"
    ]),
    ("NetworkPolicy", {"spec.policyTypes": ["Both"]}, [
        'spec.policyTypes[0]: Unsupported value: "Both": supported values: "Egress", "Ingress"'
    ]),
    ("NetworkPolicy", {"spec.policyTypes": ["Ingress", "Egress", "Ingress"]}, [
        'spec.policyTypes: Invalid value: ["Ingress","Egress","Ingress"]: may not specify more than two policyTypes'
    ]),
    ("ServiceCIDR", {"spec.cidrs": []}, ["spec.cidrs: Required value: at least one CIDR required"]),
    ("ServiceCIDR", {"spec.cidrs": ["10.0.0.0/24", "10.1.0.0/24"]}, [
        'spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: '
        "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
    ]),
    ("ServiceCIDR", {"spec.cidrs": ["10.0.0.0/24", "2001:db8::/64"]}, []),
    ("ServiceCIDR", {"spec.cidrs": ["a", "b", "c"]}, [
        'spec.cidrs: Invalid value: {"cidrs":["a","b","c"]}: may only hold up to 2 values'
    ]),
    ("ServiceCIDR", {"spec.cidrs": ["x"]}, [
        'spec.cidrs[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'
    ]),
    ("IPAddress", {"spec.parentRef": {}}, [
        "spec.parentRef.resource: Required value", "spec.parentRef.name: Required value"
    ]),
    ("EndpointSlice", {"addressType": ""}, ["addressType: Required value"]),
    ("EndpointSlice", {"addressType": "MAC"}, [
        'addressType: Unsupported value: "MAC": supported values: "FQDN", "IPv4", "IPv6"'
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": []}, [
        "endpoints[0].addresses: Required value: must contain at least 1 address"
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": ["2001:db8::1"]}, [
        'endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address'
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": ["127.0.0.1"]}, [
        f'{ADDRESS}: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)'
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": ["169.254.1.1"]}, [
        f'{ADDRESS}: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)'
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": ["224.0.0.7"]}, [
        f'{ADDRESS}: Invalid value: "224.0.0.7": '
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    ]),
    ("EndpointSlice", {"endpoints.0.addresses": ["0.0.0.0"]}, [
        f'{ADDRESS}: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)'
    ]),
    ("EndpointSlice", {"addressType": "FQDN", "endpoints.0.addresses": ["shop"]}, [
        f'{ADDRESS}: Invalid value: "shop": should be a domain with at least two segments separated by dots'
    ]),
    ("EndpointSlice", {"addressType": "FQDN", "endpoints.0.addresses": ["shop.example."]}, []),
    ("EndpointSlice", {"ports": [{"name": "a"}, {"name": "a"}]}, ['ports[1].name: Duplicate value: "a"']),
    ("EndpointSlice", {"ports.0.protocol": "ICMP"}, [
        'ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'
    ]),
    ("EndpointSlice", {"endpoints.0.hints.forZones": [{"name": "a"}, {"name": "a"}]}, [
        'endpoints[0].hints.forZones[1].name: Duplicate value: "a"'
    ]),
    ("EndpointSlice", {"endpoints.0.hints.forZones": [{"name": str(n)} for n in range(9)]}, [
        "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"
    ]),
    ("PodDisruptionBudget", {"spec.maxUnavailable": 1}, [
        'spec: Invalid value: {"minAvailable":"50%","selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1}: '
        "minAvailable and maxUnavailable cannot be both set"
    ]),
    ("PodDisruptionBudget", {"spec.minAvailable": "150%"}, [
        'spec.minAvailable: Invalid value: "150%": must not be greater than 100%'
    ]),
    ("PodDisruptionBudget", {"spec.minAvailable": -1}, [
        "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"
    ]),
    ("PodDisruptionBudget", {"spec.unhealthyPodEvictionPolicy": "Never"}, [
        'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"'
    ]),
    ("PodDisruptionBudget", {"spec.minAvailable": 0}, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


def test_a_path_type_is_required(kinds: Any) -> None:
    assert kinds.faults("Ingress", {f"{PATH}.pathType": kinds.ABSENT}) == [
        f"{P}.pathType: Required value: pathType must be specified"
    ]


def test_a_slice_holds_a_thousand_endpoints(kinds: Any) -> None:
    many = [{"addresses": ["10.0.0.1"]}] * 1001
    assert kinds.faults("EndpointSlice", {"endpoints": many[:1000]}) == []
    assert kinds.faults("EndpointSlice", {"endpoints": many}) == [
        "endpoints: Too many: 1001: must have at most 1000 items"
    ]


def test_loopback_addresses_pass_where_they_are_allowed(kinds: Any) -> None:
    made = kinds.created("EndpointSlice", {"endpoints.0.addresses": ["127.0.0.1"]})
    assert endpoint_slice_rules(loopback_allowed=True).validate_create(made) == []
    assert len(endpoint_slice_rules().validate_create(made)) == 1


def test_endpoints_that_are_left_alone_are_not_judged_again(kinds: Any) -> None:
    old = kinds.created("EndpointSlice", {"endpoints.0.addresses": ["127.0.0.1"]})
    rules = kinds.rules(old)
    assert rules.validate_update(kinds.edited(old, {"metadata.labels": {"a": "b"}}), old) == []
    assert len(rules.validate_update(kinds.edited(old, {"endpoints.0.nodeName": "other"}), old)) == 1


@pytest.mark.parametrize(
    ("kind", "edits", "expected"),
    [
        ("EndpointSlice", {"addressType": "FQDN", "endpoints": []}, [
            'addressType: Invalid value: "FQDN": field is immutable']),
        ("IngressClass", {"spec.controller": "a.example/b"}, [
            'spec.controller: Invalid value: "a.example/b": field is immutable']),
        ("IPAddress", {"spec.parentRef.name": "b"}, [
            'spec.parentRef: Invalid value: {"resource":"services","name":"b","namespace":"shop"}: field is immutable']),
        ("ServiceCIDR", {"spec.cidrs": ["10.9.0.0/16"]}, [
            'spec.cidrs[0]: Invalid value: "10.9.0.0/16": field is immutable']),
        ("ServiceCIDR", {"spec.cidrs": ["10.20.0.0/16", "2001:db8::/64"]}, []),
        ("ServiceCIDR", {"spec.cidrs": []}, ["spec.cidrs: Invalid value: []: field is immutable"]),
        ("NetworkPolicy", {"spec.policyTypes": ["Egress"]}, []),
        ("Ingress", {"spec.ingressClassName": "other"}, []),
        ("PodDisruptionBudget", {"spec.minAvailable": 2}, []),
    ],
)  # fmt: skip
def test_what_may_change(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.update_faults(kind, edits) == expected


def test_a_network_that_was_accepted_once_stays_accepted(kinds: Any) -> None:
    odd = {"spec.ingress.0.from.1.ipBlock": {"cidr": "10.0.0.1/8"}}
    assert kinds.update_faults("NetworkPolicy", {"metadata.labels": {"a": "b"}}, odd) == []


def test_an_address_is_named_by_itself(kinds: Any) -> None:
    check = kinds.rules(kinds.example("IPAddress")).name_errors
    assert check("10.0.0.1") == check("2001:db8::1") == []
    assert check("2001:DB8::1") == ['must be in canonical form ("2001:db8::1")']
    assert check("web") != []


def test_the_status_of_an_ingress_has_its_addresses(kinds: Any) -> None:
    def status(**entry: str) -> list[str]:
        found: list[str] = kinds.status_faults("Ingress", {"loadBalancer": {"ingress": [entry]}})
        return found

    assert status(ip="10.0.0.1") == status(hostname="a.example") == []
    assert status(hostname="10.0.0.1") == [
        'status.loadBalancer.ingress[0].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'
    ]
    assert status(ip="x")[0].startswith('status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP')


def test_a_budget_counts_from_zero(kinds: Any) -> None:
    assert kinds.status_faults("PodDisruptionBudget", {"disruptionsAllowed": -1}) == [
        "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_deprecated_settings_cause_a_warning(kinds: Any) -> None:
    old = {"metadata.annotations": {"kubernetes.io/ingress.class": "x"}, "spec.ingressClassName": kinds.ABSENT}
    assert kinds.warnings("Ingress", old) == [
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    ]
    assert kinds.warnings("EndpointSlice", {"addressType": "FQDN"}) == [
        "spec.addressType: FQDN endpoints are deprecated"
    ]
    assert kinds.warnings("Ingress") == kinds.warnings("EndpointSlice") == []
