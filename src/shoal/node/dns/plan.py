"""The names of a Service, from its object and its EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.kube.objects import Obj
from shoal.node.dns.model import NamedEndpoint, NamedPort, ServiceNames


def names_of(service: Obj, slices: Iterable[Obj]) -> ServiceNames:
    spec, about = service["spec"], service["metadata"]
    namespace, name = about["namespace"], about["name"]
    if spec.get("type") == "ExternalName":
        return ServiceNames(namespace=namespace, name=name, external=spec.get("externalName") or "")
    addresses = [each for each in spec.get("clusterIPs") or (spec.get("clusterIP"),) if each and each != "None"]
    if addresses:
        own = tuple(sorted(_port(each) for each in spec.get("ports") or ()))
        return ServiceNames(namespace=namespace, name=name, addresses=tuple(addresses), ports=own)
    everybody = bool(spec.get("publishNotReadyAddresses"))
    found: dict[tuple[str, str], set[NamedPort]] = {}
    for each in slices:
        if each.get("addressType") == "FQDN":
            continue
        ports = {_port(port) for port in each.get("ports") or () if port.get("port")}
        for endpoint in each.get("endpoints") or ():
            if everybody or (endpoint.get("conditions") or {}).get("ready") is not False:
                for address in (endpoint.get("addresses") or ())[:1]:
                    found.setdefault((address, endpoint.get("hostname") or ""), set()).update(ports)
    ends = (NamedEndpoint(address, hostname, tuple(sorted(ports))) for (address, hostname), ports in found.items())
    return ServiceNames(namespace=namespace, name=name, endpoints=tuple(sorted(ends)))


def _port(port: Obj) -> NamedPort:
    return NamedPort(port.get("name") or "", port.get("protocol") or "TCP", port["port"])
