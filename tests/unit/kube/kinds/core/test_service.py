"""Services: defaults, fields that an update keeps, and invalid ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.kube.kinds.core import service
from shoal.kube.kinds.core.service import SERVICE
from shoal.kube.objects import Obj

Edited = Callable[[Obj, Obj], Obj]

BASE: Obj = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}


def created(obj: Obj) -> Obj:
    SERVICE.default(obj)
    SERVICE.prepare_create(obj)
    if service.needs_cluster_ip(obj):
        obj["spec"] |= {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}
    return obj


def faults(obj: Obj) -> list[str]:
    return [str(error) for error in SERVICE.validate_create(created(obj))]


def update(old: Obj, new: Obj) -> list[str]:
    SERVICE.default(new)
    SERVICE.prepare_update(new, old)
    if service.needs_cluster_ip(new):
        new["spec"] |= {"clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8"]}
    return [str(error) for error in SERVICE.validate_update(new, old)]


def test_a_bare_service_gets_every_default(edited: Edited) -> None:
    assert created(edited(BASE, {})) == {
        "metadata": BASE["metadata"],
        "spec": {
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": ["IPv4"],
            "clusterIP": "10.0.0.7",
            "clusterIPs": ["10.0.0.7"],
        },
        "status": {"loadBalancer": {}},
    }


def test_load_balancers_and_affinity(edited: Edited) -> None:
    spec = created(edited(BASE, {"spec/type": "LoadBalancer", "spec/sessionAffinity": "ClientIP"}))["spec"]
    assert spec["externalTrafficPolicy"] == "Cluster"
    assert spec["allocateLoadBalancerNodePorts"] is True
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_headless_services_without_selector_have_both_families(edited: Edited) -> None:
    spec = created(edited(BASE, {"spec/clusterIP": "None"}))["spec"]
    assert (spec["clusterIPs"], spec["ipFamilyPolicy"]) == (["None"], "RequireDualStack")
    assert spec["ipFamilies"] == ["IPv4", "IPv6"]
    assert faults(edited(BASE, {"spec/clusterIP": "None"})) == []


def test_allocation_questions(edited: Edited) -> None:
    plain, node = edited(BASE, {}), edited(BASE, {"spec/type": "NodePort", "spec/ports/0/nodePort": 30001})
    for obj in (plain, node):
        SERVICE.default(obj)
        SERVICE.prepare_create(obj)
    assert service.needs_cluster_ip(plain)
    assert not service.needs_node_ports(plain)
    assert service.needs_node_ports(node)
    assert service.requested_node_ports(node) == [("TCP", 30001)]
    external = {"spec": {"type": "ExternalName"}}
    assert not service.needs_cluster_ip(external)
    without = {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}}
    assert not service.needs_node_ports(without)
    assert service.needs_health_check_port({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}})


VALID: list[Obj] = [
    {},
    {"spec/type": "NodePort"},
    {"spec/type": "LoadBalancer", "spec/loadBalancerSourceRanges": [" 10.0.0.0/8 "]},
    {"spec": {"type": "ExternalName", "externalName": "a.example.com."}},
    {"spec/clusterIP": "None", "spec/ports": ..., "spec/selector": {"a": "b"}},
    {"spec/ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b", "protocol": "UDP"}]},
    {"spec/ports/0/targetPort": "http", "spec/ports/0/appProtocol": "kubernetes.io/h2c"},
    {"spec/clusterIP": "10.0.0.9"},
    {"spec/trafficDistribution": "PreferSameZone"},
    {"spec/ipFamilyPolicy": "PreferDualStack"},
]

INVALID: list[tuple[str, Obj, list[str]]] = [
    ("no ports", {"spec/ports": []}, ["spec.ports: Required value"]),
    ("type", {"spec/type": "Magic"}, [
        'spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"']),
    ("headless node port", {"spec/type": "NodePort", "spec/clusterIP": "None", "spec/selector": {"a": "b"}}, [
        "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"]),
    ("port", {"spec/ports/0/port": 0, "spec/ports/0/targetPort": 1}, [
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"]),
    ("unnamed ports", {"spec/ports": [{"port": 1}, {"port": 2}]}, [
        "spec.ports[0].name: Required value", "spec.ports[1].name: Required value"]),
    ("port name", {"spec/ports/0/name": "a.b"}, ['spec.ports[0].name: Invalid value: "a.b": must not contain dots']),
    ("port names", {"spec/ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}, [
        'spec.ports[1].name: Duplicate value: "a"']),
    ("same port", {"spec/ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}, [
        'spec.ports[1]: Duplicate value: {"port":1,"protocol":"TCP"}']),
    ("target port", {"spec/ports/0/targetPort": "A"}, [
        'spec.ports[0].targetPort: Invalid value: "A": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
        'spec.ports[0].targetPort: Invalid value: "A": must contain at least one letter (a-z)']),
    ("protocol", {"spec/ports/0/protocol": "HTTP"}, [
        'spec.ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"']),
    ("node port", {"spec/ports/0/nodePort": 30000}, [
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]),
    ("node port twice", {"spec/type": "NodePort", "spec/ports": [
        {"port": 1, "name": "a", "nodePort": 30000}, {"port": 2, "name": "b", "nodePort": 30000}]}, [
        "spec.ports[1].nodePort: Duplicate value: 30000"]),
    ("external name", {"spec": {"type": "ExternalName"}}, ["spec.externalName: Required value"]),
    ("cluster ip", {"spec/clusterIP": "10.0.0"}, [
        'spec.clusterIPs[0]: Invalid value: "10.0.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
    ("cluster ips", {"spec/clusterIP": "10.0.0.9", "spec/clusterIPs": ["10.0.0.8"]}, [
        'spec.clusterIPs: Invalid value: ["10.0.0.8"]: first value must match `clusterIP`']),
    ("six", {"spec/clusterIP": "fd00::1"}, ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster']),
    ("dual", {"spec/ipFamilyPolicy": "RequireDualStack"}, [
        'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services']),
    ("family", {"spec/ipFamilies": ["IPv5"]}, [
        'spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"']),
    ("affinity", {"spec/sessionAffinity": "Cookie"}, [
        'spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"']),
    ("affinity timeout", {"spec/sessionAffinity": "ClientIP", "spec/sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}, [
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"]),
    ("external ip", {"spec/externalIPs": ["127.0.0.1"]}, [
        'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)']),
    ("external policy", {"spec/externalTrafficPolicy": "Local"}, [
        'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services']),
    ("health port", {"spec/healthCheckNodePort": 30000}, [
        "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and "
        "`externalTrafficPolicy` is 'Local'"]),
    ("internal policy", {"spec/internalTrafficPolicy": "Node"}, [
        'spec.internalTrafficPolicy: Unsupported value: "Node": supported values: "Cluster", "Local"']),
    ("class", {"spec/loadBalancerClass": "a"}, [
        "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"]),
    ("ranges", {"spec/loadBalancerSourceRanges": ["10.0.0.0/8"]}, [
        "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"]),
    ("range", {"spec/type": "LoadBalancer", "spec/loadBalancerSourceRanges": ["10.0.0.0"]}, [
        'spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or '
        "2001:db8::/64)"]),
    ("selector", {"spec/selector": {"a": "-"}}, ["spec.selector"]),
    ("distribution", {"spec/trafficDistribution": "Far"}, [
        'spec.trafficDistribution: Unsupported value: "Far": supported values: "PreferClose", "PreferSameNode", '
        '"PreferSameZone"']),
]  # fmt: skip


@pytest.mark.parametrize("changes", VALID)
def test_valid_services_are_accepted(changes: Obj, edited: Edited) -> None:
    assert faults(edited(BASE, changes)) == []


@pytest.mark.parametrize(
    ("changes", "expected"), [(changes, expected) for _, changes, expected in INVALID], ids=[n for n, *_ in INVALID]
)
def test_invalid_services_are_refused(changes: Obj, expected: list[str], edited: Edited) -> None:
    found = faults(edited(BASE, changes))
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_an_update_that_leaves_out_allocated_values_keeps_them(edited: Edited) -> None:
    ports = [{"port": 80, "name": "a", "nodePort": 30001}, {"port": 81, "name": "b", "nodePort": 30002}]
    old = created(edited(BASE, {"spec/type": "NodePort", "spec/ports": ports}))
    new = edited(BASE, {"spec/type": "NodePort", "spec/ports": [{"port": 80, "name": "a"}, {"port": 82, "name": "b"}]})
    assert update(old, new) == []
    assert new["spec"]["clusterIP"] == "10.0.0.7"
    assert [port["nodePort"] for port in new["spec"]["ports"]] == [30001, 30002]


def test_the_cluster_ip_is_for_life(edited: Edited) -> None:
    old = created(edited(BASE, {}))
    new = edited(BASE, {"spec/clusterIP": "10.0.0.9"})
    assert update(old, new) == ['spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set']


def test_changes_of_type_drop_what_the_new_type_lacks(edited: Edited) -> None:
    node = created(edited(BASE, {"spec/type": "NodePort", "spec/ports/0/nodePort": 30001}))
    plain = edited(node, {"spec/type": "ClusterIP"})
    assert update(node, plain) == []
    assert "nodePort" not in plain["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in plain["spec"]
    external = edited(plain, {"spec/type": "ExternalName", "spec/externalName": "a.b"})
    assert update(plain, external) == []
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & external["spec"].keys()
    back = edited(external, {"spec/type": "ClusterIP", "spec/externalName": ...})
    assert update(external, back) == []
    assert back["spec"]["clusterIP"] == "10.0.0.8"


def test_the_class_of_a_load_balancer_is_for_life(edited: Edited) -> None:
    old = created(edited(BASE, {"spec/type": "LoadBalancer", "spec/loadBalancerClass": "a.io/b"}))
    assert update(old, edited(old, {"spec/loadBalancerClass": "a.io/c"})) == [
        'spec.loadBalancerClass: Invalid value: "a.io/c": may not change once set'
    ]


def test_only_load_balancers_have_an_ingress_status(edited: Edited) -> None:
    old = created(edited(BASE, {}))
    ingress = {"status/loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}
    assert [str(e) for e in SERVICE.validate_status(edited(old, ingress), old)] == [
        "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    ]
    balanced = edited(old, {"spec/type": "LoadBalancer"})
    assert SERVICE.validate_status(edited(balanced, ingress), balanced) == []
    named = edited(balanced, {"status/loadBalancer": {"ingress": [{"hostname": "1.2.3.4"}]}})
    assert [str(e) for e in SERVICE.validate_status(named, balanced)] == [
        'status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address'
    ]


def test_names_may_start_with_a_digit_but_have_no_dots() -> None:
    assert SERVICE.name_errors is not None
    assert SERVICE.name_errors("1a") == []
    assert SERVICE.name_errors("a.b") == ["must not contain dots"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec/clusterIP": "None", "spec/clusterIPs": ["None", "10.0.0.1"], "spec/selector": {"a": "b"}}, ["spec.clusterIPs"]),
        ({"spec/clusterIP": "10.0.0.1", "spec/clusterIPs": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}, ["spec.clusterIPs"] * 2),
        ({"spec/clusterIPs": ["10.0.0.1"]}, ["spec.clusterIPs"]),
        ({"spec/ipFamilies": ["IPv4", "IPv4"]}, ["spec.ipFamilies[1]", "spec.ipFamilyPolicy"]),
        ({"spec/ipFamilies": ["IPv6"], "spec/clusterIP": "10.0.0.1"}, ["spec.clusterIPs[0]", "spec.ipFamilies[0]"]),
        ({"spec/ipFamilyPolicy": "Odd"}, ["spec.ipFamilyPolicy"]),
        ({"spec/type": "LoadBalancer", "spec/externalTrafficPolicy": "Local"}, ["spec.healthCheckNodePort"]),
        ({"spec/type": "LoadBalancer", "spec/externalTrafficPolicy": "Local", "spec/healthCheckNodePort": 70000}, ["spec.healthCheckNodePort"]),
        ({"spec/type": "LoadBalancer", "spec/loadBalancerClass": "a b"}, ["spec.loadBalancerClass"]),
        ({"spec/allocateLoadBalancerNodePorts": True}, ["spec.allocateLoadBalancerNodePorts"]),
        ({"spec/type": "NodePort", "spec/externalTrafficPolicy": "Odd"}, ["spec.externalTrafficPolicy"]),
        ({"spec/externalIPs": ["x"]}, ["spec.externalIPs[0]"]),
        ({"spec": {"type": "ExternalName", "externalName": "A", "clusterIPs": ["10.0.0.1"]}}, ["spec.clusterIPs", "spec.externalName"]),
        ({"spec/ports/0/appProtocol": "a b"}, ["spec.ports[0].appProtocol"]),
        ({"metadata/annotations": {"service.kubernetes.io/topology-aware-hints": "a", "service.kubernetes.io/topology-mode": "b"}}, ["metadata.annotations[service.kubernetes.io/topology-mode]"]),
        ({"metadata/annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "x"}}, ["metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]"] * 2),
    ],
)  # fmt: skip
def test_rare_fields_of_services(changes: Obj, expected: list[str], edited: Edited) -> None:
    assert [text.partition(": ")[0] for text in faults(edited(BASE, changes))] == expected


def test_secondary_addresses_go_only_with_the_policy(edited: Edited) -> None:
    dual = created(edited(BASE, {}))
    dual["spec"].update(
        clusterIPs=["10.0.0.7", "fd00::7"], ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack"
    )
    single = edited(dual, {"spec/ipFamilyPolicy": "SingleStack"})
    assert update(dual, single) == []
    assert single["spec"]["clusterIPs"] == ["10.0.0.7"]
    assert single["spec"]["ipFamilies"] == ["IPv4"]
    fewer = edited(dual, {"spec/clusterIPs": ["10.0.0.7"], "spec/ipFamilies": ["IPv4"]})
    assert [text.partition(": ")[0] for text in update(dual, fewer)] == ["spec.ipFamilyPolicy", "spec.ipFamilyPolicy"]
    other = edited(
        dual, {"spec/clusterIP": "10.0.0.9", "spec/clusterIPs": ["10.0.0.9"], "spec/ipFamilyPolicy": "SingleStack"}
    )
    assert "spec.clusterIPs[0]" in [text.partition(": ")[0] for text in update(dual, other)]


def test_health_check_ports_are_kept_and_for_life(edited: Edited) -> None:
    local = {"spec/type": "LoadBalancer", "spec/externalTrafficPolicy": "Local"}
    old = created(edited(BASE, {**local, "spec/healthCheckNodePort": 30100}))
    silent = edited(BASE, local)
    assert update(old, silent) == []
    assert silent["spec"]["healthCheckNodePort"] == 30100
    assert update(old, edited(old, {"spec/healthCheckNodePort": 30101})) == [
        "spec.healthCheckNodePort: Forbidden: field is immutable"
    ]
    cluster = edited(old, {"spec/externalTrafficPolicy": "Cluster"})
    assert update(old, cluster) == []
    assert "healthCheckNodePort" not in cluster["spec"]


def test_warnings_of_services(edited: Edited) -> None:
    assert SERVICE.warnings(created(edited(BASE, {}))) == []
    headless = {"spec/clusterIP": "None", "spec/sessionAffinity": "ClientIP", "spec/externalIPs": ["1.2.3.4"]}
    assert SERVICE.warnings(created(edited(BASE, headless))) == [
        "spec.externalIPs is ignored for headless services",
        "spec.SessionAffinity is ignored for headless services",
    ]
    assert (
        len(
            SERVICE.warnings(
                created(edited(BASE, {"spec/externalName": "a", "spec/trafficDistribution": "PreferClose"}))
            )
        )
        == 2
    )
