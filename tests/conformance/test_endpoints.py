"""Endpoints and EndpointSlices as controllers keep them for Services. What flows through them is another matter: no
process answers behind a simulated pod."""

from __future__ import annotations

from typing import Any

from conformance_api import Api, Resource, conformance
from conformance_live import is_ready, settles
from conformance_objects import IMAGE, pod, replication_controller

from shoal.kube.objects import Obj

SERVICE_LABEL = "kubernetes.io/service-name"


class Network:
    """Services of a namespace and what stands behind them."""

    def __init__(self, live: Api, space: str) -> None:
        self.pods, self.services = live.of("v1", "pods", space), live.of("v1", "services", space)
        self.endpoints = live.of("v1", "endpoints", space)
        self.slices = live.of("discovery.k8s.io/v1", "endpointslices", space)

    def serve(self, name: str, selector: dict[str, str] | None, *ports: Obj, **spec: Any) -> Obj:
        chosen = {"selector": selector} if selector is not None else {}
        return self.services.create({"metadata": {"name": name}, "spec": {**chosen, "ports": list(ports), **spec}})

    def run(self, name: str, labels: dict[str, str], **ports: int) -> str:
        """A pod with named ports; its address."""
        declared = [{"name": key.replace("_", "-"), "containerPort": value} for key, value in ports.items()]
        self.pods.create(pod(name, labels, containers=[{"name": "main", "image": IMAGE, "ports": declared}]))
        settles(lambda: is_ready(self.pods.get(name)))
        return str(self.pods.get(name)["status"]["podIP"])

    def slices_of(self, name: str) -> list[Obj]:
        return self.slices.items(f"{SERVICE_LABEL}={name}")

    def targets(self, name: str) -> set[tuple[str, int]]:
        """Address and port of all that is ready, by the slices."""
        return {
            (address, port["port"])
            for each in self.slices_of(name)
            for endpoint in each["endpoints"] or ()
            if endpoint["conditions"]["ready"]
            for address in endpoint["addresses"]
            for port in each.get("ports") or ()
        }

    def old_targets(self, name: str) -> set[tuple[str, int]]:
        """The same by the Endpoints object."""
        return {
            (address["ip"], port["port"])
            for subset in self.endpoints.get(name).get("subsets", ())
            for address in subset.get("addresses", ())
            for port in subset["ports"]
        }

    def leads_to(self, name: str, *targets: tuple[str, int]) -> None:
        wanted = set(targets)
        settles(lambda: exists(self.endpoints, name) and self.targets(name) == wanted == self.old_targets(name))


def exists(resource: Resource, name: str) -> bool:
    return name in resource.names()


@conformance(
    "[sig-network] EndpointSlice should create and delete EndpointSlices for a Service with a selector that matches no"
    " pods [Conformance]"
)
def test_slices_without_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    net.serve(
        "empty", {"does-not-match-anything": "endpoints-and-endpoint-slices-should-still-be-created"}, {"port": 80}
    )
    [found] = settles(lambda: net.slices_of("empty"))
    assert (found["endpoints"], found["addressType"]) == ([], "IPv4")
    assert found["metadata"]["ownerReferences"][0]["name"] == "empty"
    net.services.delete("empty")
    settles(lambda: not net.slices_of("empty"))


@conformance(
    "[sig-network] EndpointsController should create and delete Endpoints for a Service with a selector that matches no"
    " pods [Conformance]"
)
def test_endpoints_without_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    net.serve("empty", {"matches": "nothing"}, {"port": 80})
    settles(lambda: exists(net.endpoints, "empty"))
    assert not net.endpoints.get("empty").get("subsets")
    net.services.delete("empty")
    settles(lambda: net.endpoints.is_gone("empty"))


def check_matching_pods(net: Network) -> tuple[tuple[str, int], tuple[str, int]]:
    one = net.run("pod1", {"pod1": "on", "shared12": "on"}, example_name=3000)
    two = net.run("pod2", {"pod2": "on", "shared12": "on"}, example_name=3001, other_port=3002)
    net.serve("by-number", {"pod1": "on"}, {"name": "example", "port": 80, "targetPort": 3000})
    net.serve("by-name", {"shared12": "on"}, {"name": "http", "port": 80, "targetPort": "example-name"})
    net.leads_to("by-number", (one, 3000))
    net.leads_to("by-name", (one, 3000), (two, 3001))
    return (one, 3000), (two, 3001)


@conformance(
    "[sig-network] EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service [Conformance]"
)
def test_slices_of_matching_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    both = check_matching_pods(net)
    [first] = net.slices_of("by-number")
    [endpoint] = first["endpoints"]
    assert endpoint["targetRef"]["name"] == "pod1"
    assert endpoint["nodeName"] == net.pods.get("pod1")["spec"]["nodeName"]
    assert first["ports"] == [{"name": "example", "port": 3000, "protocol": "TCP"}]
    net.slices.delete_collection(f"{SERVICE_LABEL}=by-name")
    net.leads_to("by-name", *both)


@conformance("[sig-network] EndpointsController should create Endpoints for Pods matching a Service [Conformance]")
def test_endpoints_of_matching_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    both = check_matching_pods(net)
    [subset] = net.endpoints.get("by-number")["subsets"]
    assert subset["addresses"][0]["targetRef"]["name"] == "pod1"
    net.endpoints.delete("by-name")
    settles(lambda: exists(net.endpoints, "by-name"))
    net.leads_to("by-name", *both)


@conformance(
    "[sig-network] EndpointSliceMirroring should mirror a custom Endpoints resource through create update and delete"
    " [Conformance]"
)
def test_endpoints_of_others_are_mirrored(live: Api, space: str) -> None:
    net = Network(live, space)
    net.serve("custom", None, {"name": "example", "port": 80})

    def to(address: str) -> Obj:
        return {"metadata": {"name": "custom"}, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]}

    net.endpoints.create(to("10.1.2.3"))
    settles(lambda: net.targets("custom") == {("10.1.2.3", 80)})
    [mirror] = net.slices_of("custom")
    assert mirror["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"].startswith("endpointslicemirroring")
    net.endpoints.replace(to("10.2.3.4"))
    settles(lambda: net.targets("custom") == {("10.2.3.4", 80)})
    net.endpoints.delete("custom")
    settles(lambda: not net.slices_of("custom"))


@conformance("[sig-network] Services should serve a basic endpoint from pods [Conformance]")
def test_a_service_follows_its_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    net.serve("basic", {"app": "basic"}, {"port": 80, "targetPort": 80})
    net.leads_to("basic")
    one = net.run("pod1", {"app": "basic"}, web=80)
    net.leads_to("basic", (one, 80))
    two = net.run("pod2", {"app": "basic"}, web=80)
    net.leads_to("basic", (one, 80), (two, 80))
    net.pods.delete("pod1")
    net.leads_to("basic", (two, 80))
    net.pods.delete("pod2")
    net.leads_to("basic")


@conformance("[sig-network] Services should serve multiport endpoints from pods [Conformance]")
def test_each_port_has_its_own_pods(live: Api, space: str) -> None:
    net = Network(live, space)
    ports = [{"name": f"portname{n}", "port": 79 + n, "targetPort": f"portname{n}"} for n in (1, 2)]
    net.serve("multi", {"foo": "bar"}, *ports)
    net.leads_to("multi")
    one = net.run("pod1", {"foo": "bar"}, portname1=100)
    net.leads_to("multi", (one, 100))
    two = net.run("pod2", {"foo": "bar"}, portname2=101)
    net.leads_to("multi", (one, 100), (two, 101))
    net.pods.delete("pod1")
    net.leads_to("multi", (two, 101))
    net.pods.delete("pod2")
    net.leads_to("multi")


@conformance("[sig-network] Services should serve endpoints on same port and different protocols [Conformance]")
def test_one_port_of_two_protocols(live: Api, space: str) -> None:
    net = Network(live, space)
    tcp, udp = ({"name": name, "port": 80, "targetPort": 80, "protocol": name.upper()} for name in ("tcp", "udp"))
    net.serve("both", {"app": "both"}, tcp, udp)
    net.run("pod", {"app": "both"}, web=80)

    def protocols() -> list[str]:
        return sorted(port["protocol"] for each in net.slices_of("both") for port in each.get("ports") or ())

    settles(lambda: protocols() == ["TCP", "UDP"])
    net.services.update("both", lambda obj: obj["spec"].update(ports=[tcp]))
    settles(lambda: protocols() == ["TCP"])
    net.services.update("both", lambda obj: obj["spec"].update(ports=[udp]))
    settles(lambda: protocols() == ["UDP"])


@conformance("[sig-network] Service endpoints latency should not be very high [Conformance]")
def test_endpoints_come_soon(live: Api, space: str) -> None:
    net, count = Network(live, space), 20
    net.run("pod", {"name": "svc-latency-rc"}, web=80)
    with net.endpoints.watch(after=net.endpoints.list()) as watch:
        for number in range(count):
            net.serve(f"latency-{number}", {"name": "svc-latency-rc"}, {"port": 80})
        seen: set[str] = set()
        while len(seen) < count:
            event = watch.next()
            if event["object"].get("subsets"):
                seen.add(event["object"]["metadata"]["name"])


@conformance("[sig-cli] Kubectl client Kubectl expose should create services for rc [Conformance]")
def test_a_controller_is_exposed(live: Api, space: str) -> None:
    """With the Service that ``kubectl expose`` makes of the controller's selector."""
    net = Network(live, space)
    controllers = live.of("v1", "replicationcontrollers", space)
    made = replication_controller("agnhost-primary", 1)
    made["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "server", "containerPort": 6379}]
    selector = controllers.create(made)["spec"]["selector"]
    net.serve("rm2", selector, {"port": 1234, "targetPort": 6379})
    settles(lambda: [port for _, port in net.targets("rm2")] == [6379])
    exposed = net.services.get("rm2")["spec"]
    net.serve("rm3", exposed["selector"], {"port": 2345, "targetPort": 6379})
    settles(lambda: net.targets("rm3") == net.targets("rm2") == net.old_targets("rm3"))
