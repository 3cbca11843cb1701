"""Services, endpoints, ingresses and addresses as stored objects."""

from __future__ import annotations

from conformance_api import Api, conformance, labelled, refused, unique
from conformance_objects import condition
from conformance_steps import check_discovery, check_operations, check_status

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking


@conformance("[sig-network] Ingress API should support creating Ingress API operations [Conformance]")
def test_ingress_operations(api: Api, namespace: str) -> None:
    backend = {"service": {"name": "default-backend", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "ImplementationSpecific", "backend": backend}
    spec = {"defaultBackend": backend, "rules": [{"host": "foo.bar.com", "http": {"paths": [path]}}]}

    def ingress(name: str) -> Obj:
        return {"metadata": {"name": name}, "spec": spec}

    check_discovery(api, "networking.k8s.io/v1", "ingresses", "ingresses/status")
    ingresses = api.of("networking.k8s.io/v1", "ingresses", namespace)
    everywhere = api.of("networking.k8s.io/v1", "ingresses")
    check_operations(ingresses, ingress, change=lambda obj: None, everywhere=everywhere)
    ingresses.create(ingress("status"))
    given = {"ingress": [{"ip": "169.1.1.1"}]}
    check_status(ingresses, "status", {"loadBalancer": given}, "loadBalancer", {"ingress": [{"ip": "169.1.1.2"}]})


@conformance("[sig-network] IngressClass API should support creating IngressClass API operations [Conformance]")
def test_ingress_class_operations(api: Api) -> None:
    check_discovery(api, "networking.k8s.io/v1", "ingressclasses")
    check_operations(
        api.of("networking.k8s.io/v1", "ingressclasses"),
        lambda name: {"metadata": {"name": name}, "spec": {"controller": "example.com/controller"}},
        change=lambda obj: None,
    )


@conformance("[sig-network] EndpointSlice should support creating EndpointSlice API operations [Conformance]")
def test_endpoint_slice_operations(api: Api, namespace: str) -> None:
    def endpoint_slice(name: str) -> Obj:
        endpoints = [{"addresses": ["1.2.3.4", "5.6.7.8"]}, {"addresses": ["2.2.3.4", "6.6.7.8"]}]
        return {"metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints}

    check_discovery(api, "discovery.k8s.io/v1", "endpointslices")
    check_operations(
        api.of("discovery.k8s.io/v1", "endpointslices", namespace),
        endpoint_slice,
        change=lambda obj: obj["endpoints"].pop(),
        everywhere=api.of("discovery.k8s.io/v1", "endpointslices"),
    )


@conformance("[sig-network] Endpoints should test the lifecycle of an Endpoint [Conformance]")
def test_endpoints_lifecycle(live: Api, space: str) -> None:
    """On the live cluster: no controller deletes Endpoints without a Service."""
    endpoints, run = live.of("v1", "endpoints", space), unique("run")
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    subsets = [{"addresses": [{"ip": "10.0.0.24"}], "ports": ports}]
    with endpoints.watch(f"static={run}", after=endpoints.list()) as watch:
        created = endpoints.create({"metadata": {"name": "testservice", "labels": {"static": run}}, "subsets": subsets})
        watch.expect("ADDED", "testservice")
        assert live.of("v1", "endpoints").names(f"static={run}") == ["testservice"]
        created["metadata"]["labels"]["test-service"] = "updated"
        endpoints.replace(created)
        assert watch.expect("MODIFIED", "testservice")["metadata"]["labels"]["test-service"] == "updated"

        moved = [
            {"addresses": [{"ip": "10.0.0.25"}], "ports": [{"name": "http-test", "port": 8080, "protocol": "TCP"}]}
        ]
        endpoints.patch(
            "testservice", {"metadata": {"labels": {"test-service": "patched"}}, "subsets": moved}, "strategic"
        )
        watch.expect("MODIFIED", "testservice")
        read = endpoints.get("testservice")
        assert read["metadata"]["labels"]["test-service"] == "patched"
        assert read["subsets"] == moved
        endpoints.delete_collection(f"static={run}")
        watch.expect("DELETED", "testservice")
    assert endpoints.is_gone("testservice")


def service(name: str, **spec: object) -> Obj:
    return {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 80}], **spec}}


@conformance("[sig-network] Services should complete a service status lifecycle [Conformance]")
def test_service_status_lifecycle(api: Api, namespace: str) -> None:
    services, run = api.of("v1", "services", namespace), unique("run")
    balanced = service("test-service", type="LoadBalancer", loadBalancerClass="example.com/internal-vip")
    with services.watch(f"static={run}", after=services.list()) as watch:
        services.create(labelled(balanced, static=run))
        watch.expect("ADDED", "test-service")
        assert services.get("test-service", "status")["spec"]["type"] == "LoadBalancer"

        ingress = {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}
        services.patch(
            "test-service", {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": ingress}, sub="status"
        )
        seen = watch.expect("MODIFIED", "test-service")
        assert seen["metadata"]["annotations"]["patchedstatus"] == "true"
        assert seen["status"]["loadBalancer"]["ingress"][0]["ip"] == "203.0.113.1"

        made = condition("StatusUpdate", lastTransitionTime="2024-05-01T10:00:00Z")
        services.update("test-service", lambda obj: obj["status"].update(conditions=[made]), "status")
        assert watch.expect("MODIFIED", "test-service")["status"]["conditions"][0]["type"] == "StatusUpdate"

        services.patch("test-service", {"metadata": {"labels": {"test-service": "patched"}}}, "strategic")
        assert watch.expect("MODIFIED", "test-service")["metadata"]["labels"]["test-service"] == "patched"
        services.delete("test-service")
        watch.expect("DELETED", "test-service")
    assert services.is_gone("test-service")


@conformance("[sig-network] Services should find a service from listing all namespaces [Conformance]")
def test_service_in_all_namespaces(api: Api) -> None:
    names = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in api.of("v1", "services").items()]
    assert ("default", "kubernetes") in names


@conformance("[sig-network] Services should delete a collection of services [Conformance]")
def test_service_collection(api: Api, namespace: str) -> None:
    services, run = api.of("v1", "services", namespace), unique("run")
    for number in range(3):
        services.create(labelled(service(f"e2e-svc-{number}"), chosen=run if number else "no"))
    services.delete_collection(f"chosen={run}")
    assert services.names() == ["e2e-svc-0"]


@conformance("[sig-network] Services should be able to change the type from ExternalName to ClusterIP [Conformance]")
def test_service_from_external_name_to_cluster_ip(api: Api, namespace: str) -> None:
    services = api.of("v1", "services", namespace)
    created = services.create(
        {"metadata": {"name": "svc"}, "spec": {"type": "ExternalName", "externalName": "foo.example.com"}}
    )
    assert not created["spec"].get("clusterIP")
    changed = services.update("svc", lambda obj: become(obj, "ClusterIP"))
    assert changed["spec"]["clusterIP"]
    assert changed["spec"]["clusterIPs"] == [changed["spec"]["clusterIP"]]
    assert "externalName" not in changed["spec"]


@conformance("[sig-network] Services should be able to change the type from ExternalName to NodePort [Conformance]")
def test_service_from_external_name_to_node_port(api: Api, namespace: str) -> None:
    services = api.of("v1", "services", namespace)
    services.create({"metadata": {"name": "svc"}, "spec": {"type": "ExternalName", "externalName": "foo.example.com"}})
    changed = services.update("svc", lambda obj: become(obj, "NodePort"))
    assert changed["spec"]["clusterIP"]
    assert 30000 <= changed["spec"]["ports"][0]["nodePort"] <= 32767


@conformance("[sig-network] Services should be able to change the type from ClusterIP to ExternalName [Conformance]")
def test_service_from_cluster_ip_to_external_name(api: Api, namespace: str) -> None:
    check_becomes_external(api, namespace, service("svc", type="ClusterIP"))


@conformance("[sig-network] Services should be able to change the type from NodePort to ExternalName [Conformance]")
def test_service_from_node_port_to_external_name(api: Api, namespace: str) -> None:
    check_becomes_external(api, namespace, service("svc", type="NodePort"))


def become(obj: Obj, kind: str) -> None:
    obj["spec"].pop("externalName", None)
    obj["spec"].update(type=kind, ports=[{"name": "http", "port": 80, "protocol": "TCP"}])


def check_becomes_external(api: Api, namespace: str, made: Obj) -> None:
    """The name replaces the address, and the address is free for another service."""
    services = api.of("v1", "services", namespace)
    address = services.create(made)["spec"]["clusterIP"]

    def change(obj: Obj) -> None:
        obj["spec"].update(type="ExternalName", externalName="svc.example.com")
        for name in ("clusterIP", "clusterIPs"):
            obj["spec"].pop(name, None)
        for port in obj["spec"]["ports"]:
            port.pop("nodePort", None)

    changed = services.update("svc", change)
    assert changed["spec"]["externalName"] == "svc.example.com"
    assert not changed["spec"].get("clusterIP")
    assert services.create(service("another", clusterIP=address))["spec"]["clusterIP"] == address


@conformance(
    "[sig-network] Services should be able to switch session affinity for service with type clusterIP [LinuxOnly]"
    " [Conformance]"
)
def test_session_affinity_of_a_cluster_ip(api: Api, namespace: str) -> None:
    check_affinity(api, namespace, "ClusterIP")


@conformance(
    "[sig-network] Services should be able to switch session affinity for NodePort service [LinuxOnly] [Conformance]"
)
def test_session_affinity_of_a_node_port(api: Api, namespace: str) -> None:
    check_affinity(api, namespace, "NodePort")


def check_affinity(api: Api, namespace: str, kind: str) -> None:
    """Off, on with a default time, off again: the field, not the traffic."""
    services = api.of("v1", "services", namespace)
    assert services.create(service("svc", type=kind))["spec"]["sessionAffinity"] == "None"
    stuck = services.patch("svc", {"spec": {"sessionAffinity": "ClientIP"}})["spec"]
    assert stuck["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    loose = services.patch("svc", {"spec": {"sessionAffinity": "None", "sessionAffinityConfig": None}})["spec"]
    assert loose["sessionAffinity"] == "None"
    assert "sessionAffinityConfig" not in loose
    assert loose["clusterIP"] == stuck["clusterIP"]


@conformance("[sig-network] ServiceCIDR and IPAddress API should support ServiceCIDR API operations [Conformance]")
def test_service_cidr_operations(api: Api) -> None:
    ranges, name = api.of("networking.k8s.io/v1", "servicecidrs"), unique("cidr")
    check_discovery(api, "networking.k8s.io/v1", "servicecidrs", "servicecidrs/status", "ipaddresses")
    assert not ranges.is_gone("kubernetes")
    created = ranges.create({"metadata": {"name": name}, "spec": {"cidrs": ["10.248.0.0/24"]}})
    patched = ranges.patch(name, {"metadata": {"annotations": {"patched": "true"}}})
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    updated = ranges.update(name, lambda obj: obj["metadata"]["annotations"].update(updated="true"))
    assert updated["metadata"]["annotations"]["updated"] == "true"
    assert name in ranges.names()

    wrong = condition("Ready", lastTransitionTime="2024-05-01T10:00:00Z")
    ranges.patch(name, {"status": {"conditions": [wrong]}}, sub="status")
    assert ranges.get(name, "status")["status"]["conditions"][0]["reason"] == "Test"
    ranges.update(name, lambda obj: obj["status"]["conditions"].append({**wrong, "type": "Extra"}), "status")
    assert [c["type"] for c in ranges.get(name)["status"]["conditions"]] == ["Ready", "Extra"]
    ranges.delete(name)
    eventually_blocking(lambda: ranges.is_gone(name))


@conformance("[sig-network] ServiceCIDR and IPAddress API should support IPAddress API operations [Conformance]")
def test_ip_address_operations(api: Api) -> None:
    addresses = api.of("networking.k8s.io/v1", "ipaddresses")
    parent = {"group": "mygroup", "resource": "myresources", "namespace": "foo", "name": "bar"}

    def address(name: str, kind: str) -> Obj:
        return {"metadata": {"name": name, "labels": {"type": kind}}, "spec": {"parentRef": parent}}

    created = addresses.create(address("255.255.255.255", "broadcast"))
    addresses.create(address("fe80::42:1dff:fe84:f9e2", "link-local"))
    patched = addresses.patch("255.255.255.255", {"metadata": {"annotations": {"patched": "true"}}})
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    addresses.update("255.255.255.255", lambda obj: obj["metadata"]["annotations"].update(updated="true"))
    assert addresses.get("255.255.255.255")["metadata"]["annotations"]["updated"] == "true"
    assert addresses.names("type=broadcast") == ["255.255.255.255"]
    with addresses.watch("type=broadcast") as watch:
        watch.expect("ADDED", "255.255.255.255")
        addresses.delete("255.255.255.255")
        watch.expect("DELETED", "255.255.255.255")
    addresses.delete_collection("type=link-local")
    assert addresses.names("type=link-local") == []
    refused("Invalid", addresses.create, address("not-an-address", "broken"))


@conformance("[sig-network] API Server should provide secure master service [Conformance]")
def test_the_server_is_a_service(api: Api) -> None:
    ports = api.of("v1", "services", "default").get("kubernetes")["spec"]["ports"]
    assert [(port["name"], port["port"]) for port in ports] == [("https", 443)]


@conformance("[sig-network] API Server should have Endpoints and EndpointSlices pointing to API Server [Conformance]")
def test_the_server_has_endpoints(api: Api) -> None:
    endpoints = api.of("v1", "endpoints", "default").get("kubernetes")
    addresses = {address["ip"] for subset in endpoints["subsets"] for address in subset["addresses"]}
    slices = api.of("discovery.k8s.io/v1", "endpointslices", "default").items("kubernetes.io/service-name=kubernetes")
    assert addresses
    assert addresses == {ip for found in slices for endpoint in found["endpoints"] for ip in endpoint["addresses"]}
    assert {port["name"] for found in slices for port in found["ports"]} == {"https"}
