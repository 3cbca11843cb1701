"""Tables of services, endpoints, ingresses, network policies and address ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.kube.objects import Obj
from shoal.kube.tables.printer import AGE, NAME, Cells, Printer, column
from shoal.kube.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    first_few,
    joined,
    labels,
    load_balancer,
    metadata,
    name,
    selector,
    spec,
    status,
)

_HOSTS_SHOWN: Final = 3


def _service(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    addresses = wanted.get("clusterIPs")
    return [
        name(obj),
        wanted.get("type") or "",
        addresses[0] if addresses else NONE,
        _external_ip(obj),
        ",".join(_service_port(port) for port in wanted.get("ports") or ()) or NONE,
        age(obj, now),
        labels(wanted.get("selector")),
    ]


def _service_port(port: Obj) -> str:
    number, protocol = port.get("port") or 0, port.get("protocol") or ""
    node_port = port.get("nodePort")
    return f"{number}:{node_port}/{protocol}" if node_port else f"{number}/{protocol}"


def _external_ip(obj: Obj) -> str:
    wanted = spec(obj)
    given = wanted.get("externalIPs") or ()
    match wanted.get("type"):
        case "ClusterIP" | "NodePort":
            return joined(given) or NONE
        case "LoadBalancer":
            balancer = load_balancer(status(obj))
            return joined([*([balancer] if balancer else ()), *given]) or "<pending>"
        case "ExternalName":
            return wanted.get("externalName") or ""
    return UNKNOWN


def _endpoints(obj: Obj, now: float) -> Cells:
    found: list[str] = []
    subsets = obj.get("subsets") or ()
    for subset in subsets:
        addresses = [address.get("ip") or "" for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            found += addresses
        for port in ports or ():
            found += [_host_port(address, port.get("port") or 0) for address in addresses]
    return [name(obj), first_few(found) if subsets else NONE, age(obj, now)]


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoint_slice(obj: Obj, now: float) -> Cells:
    ports = [_slice_port(port) for port in obj.get("ports") or ()]
    addresses = [a for endpoint in obj.get("endpoints") or () for a in endpoint.get("addresses") or ()]
    return [
        name(obj),
        obj.get("addressType") or "",
        first_few(ports) or UNSET,
        first_few(addresses) or UNSET,
        age(obj, now),
    ]


def _slice_port(port: Obj) -> str:
    number = port.get("port")
    if number is not None:
        return str(number)
    return "*" if port.get("name") is None else str(port["name"])


def _ingress(obj: Obj, now: float) -> Cells:
    wanted = spec(obj)
    return [
        name(obj),
        wanted.get("ingressClassName") or NONE,
        _hosts(wanted.get("rules") or ()),
        load_balancer(status(obj)),
        "80, 443" if wanted.get("tls") else "80",
        age(obj, now),
    ]


def _hosts(rules: Sequence[Obj]) -> str:
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _HOSTS_SHOWN:  # all further rules count as more, with or without a host
            return f"{joined(hosts)} + {len(rules) - _HOSTS_SHOWN} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return joined(hosts) or "*"


def _ingress_class(obj: Obj, now: float) -> Cells:
    annotations = metadata(obj).get("annotations") or {}
    default = annotations.get("ingressclass.kubernetes.io/is-default-class") == "true"
    parameters = spec(obj).get("parameters")
    reference = NONE
    if parameters:
        group = parameters.get("apiGroup")
        kind = parameters.get("kind") or ""
        reference = f"{kind}.{group}" if group is not None else kind
        reference += f"/{parameters.get('name') or ''}"
    return [
        f"{name(obj)} (default)" if default else name(obj),
        spec(obj).get("controller") or "",
        reference,
        age(obj, now),
    ]


def _network_policy(obj: Obj, now: float) -> Cells:
    return [name(obj), selector(spec(obj).get("podSelector")) or NONE, age(obj, now)]


def _service_cidr(obj: Obj, now: float) -> Cells:
    return [name(obj), joined(spec(obj).get("cidrs")), age(obj, now)]


def _ip_address(obj: Obj, now: float) -> Cells:
    parent = spec(obj).get("parentRef")
    reference = NONE
    if parent:
        resource, group = parent.get("resource") or "", parent.get("group")
        parts = [f"{resource}.{group}".lower() if group else resource.lower()]
        if parent.get("namespace"):
            parts.append(parent["namespace"])
        reference = "/".join([*parts, parent.get("name") or ""])
    return [name(obj), reference, age(obj, now)]


PRINTERS: Final = {
    ("", "Service"): Printer(
        [
            NAME,
            column("Type", "How the service can be reached."),
            column("Cluster-IP", "First address inside the cluster."),
            column("External-IP", "Addresses outside the cluster."),
            column("Port(s)", "Ports, each with its node port after a colon."),
            AGE,
            column("Selector", "Labels of the pods behind the service.", wide=True),
        ],
        _service,
    ),
    ("", "Endpoints"): Printer([NAME, column("Endpoints", "Addresses and ports behind the service."), AGE], _endpoints),
    ("discovery.k8s.io", "EndpointSlice"): Printer(
        [
            NAME,
            column("AddressType", "Kind of the addresses."),
            column("Ports", "Ports that all endpoints serve."),
            column("Endpoints", "Addresses of the endpoints."),
            AGE,
        ],
        _endpoint_slice,
    ),
    ("networking.k8s.io", "Ingress"): Printer(
        [
            NAME,
            column("Class", "Class that selects the controller."),
            column("Hosts", "Hosts of its rules."),
            column("Address", "Addresses at which it is served."),
            column("Ports", "Ports at which it is served."),
            AGE,
        ],
        _ingress,
    ),
    ("networking.k8s.io", "IngressClass"): Printer(
        [
            NAME,
            column("Controller", "Controller that serves ingresses of the class."),
            column("Parameters", "Object with settings of the class."),
            AGE,
        ],
        _ingress_class,
    ),
    ("networking.k8s.io", "NetworkPolicy"): Printer(
        [NAME, column("Pod-Selector", "Labels of the pods that it applies to."), AGE], _network_policy
    ),
    ("networking.k8s.io", "ServiceCIDR"): Printer(
        [NAME, column("CIDRs", "Ranges that service addresses are taken from."), AGE], _service_cidr
    ),
    ("networking.k8s.io", "IPAddress"): Printer(
        [NAME, column("ParentRef", "Object that holds the address."), AGE], _ip_address
    ),
}
