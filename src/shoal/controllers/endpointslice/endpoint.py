"""The endpoint of a pod in a service. Pure; also used for Endpoints objects."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shoal.controllers.pods.status import is_ready, is_terminal, is_terminating
from shoal.kube.names import parse_ip
from shoal.kube.objects import Obj

EndpointKey = tuple[tuple[str, ...], str, str, str]
PortsKey = tuple[tuple[str, str, int, str], ...]


def endpoint_facts(pod: Obj) -> object:
    """The fields of a pod that affect its endpoints; other changes are ignored."""
    about, status, spec = pod["metadata"], pod.get("status") or {}, pod["spec"]
    return (
        about.get("labels"), is_terminating(pod), is_terminal(pod), is_ready(pod), status.get("podIPs"),
        spec.get("hostname"), spec.get("subdomain"), spec.get("nodeName"),
    )  # fmt: skip


def has_address(pod: Obj) -> bool:
    """Whether a pod can be an endpoint: it has not ended, and has an address."""
    status = pod.get("status") or {}
    return not is_terminal(pod) and bool(status.get("podIP") or status.get("podIPs"))


def is_headless(service: Obj) -> bool:
    return (service["spec"].get("clusterIP") or "None") == "None"


def families_of(service: Obj) -> tuple[str, ...]:
    """The address families of a service; derived from its addresses if not set."""
    spec = service["spec"]
    named: list[str] | None = spec.get("ipFamilies")
    if named:
        return tuple(named)
    if is_headless(service):
        return ("IPv4", "IPv6")
    return ("IPv6" if ":" in spec["clusterIP"] else "IPv4",)


def addresses_of(pod: Obj, family: str) -> list[str]:
    """The pod's addresses of one family, in canonical form."""
    found: list[str] = []
    for each in (pod.get("status") or {}).get("podIPs") or ():
        text = each.get("ip") or ""
        if (":" in text) == (family == "IPv6") and (canonical := _canonical(text)):
            found.append(canonical)
    return found


@lru_cache(maxsize=65_536)
def _canonical(text: str) -> str:
    """The canonical form of an address; empty for an invalid one."""
    parsed = parse_ip(text)
    return str(parsed) if parsed is not None else ""


def host_name_of(pod: Obj, service: Obj) -> str:
    """The host name of the pod in the service's domain."""
    spec = pod["spec"]
    return spec.get("hostname") or "" if spec.get("subdomain") == service["metadata"]["name"] else ""


def target_reference(pod: Obj) -> Obj:
    about = pod["metadata"]
    return {"kind": "Pod", "namespace": about["namespace"], "name": about["name"], "uid": about["uid"]}


def endpoint_of(pod: Obj, service: Obj, family: str, zone: str) -> Obj:
    """The endpoint in a slice of that family. A terminating pod is never ready, unless the service publishes all."""
    serving, terminating = is_ready(pod), is_terminating(pod)
    ready = bool(service["spec"].get("publishNotReadyAddresses")) or (serving and not terminating)
    endpoint: Obj = {
        "addresses": addresses_of(pod, family),
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": target_reference(pod),
    }
    if node := pod["spec"].get("nodeName"):
        endpoint["nodeName"] = node
    if zone:
        endpoint["zone"] = zone
    if host := host_name_of(pod, service):
        endpoint["hostname"] = host
    if hints := _hints(endpoint, service["spec"].get("trafficDistribution") or ""):
        endpoint["hints"] = hints
    return endpoint


def _hints(endpoint: Obj, distribution: str) -> Obj:
    """The zone and node hints of the endpoint, if the service prefers close endpoints."""
    if distribution not in ("PreferClose", "PreferSameZone", "PreferSameNode") or not endpoint["conditions"]["ready"]:
        return {}
    hints: Obj = {}
    if "zone" in endpoint:
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if distribution == "PreferSameNode" and "nodeName" in endpoint:
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints


def endpoint_key(endpoint: Obj) -> EndpointKey:
    """The identity of an endpoint, independent of its state."""
    target = endpoint.get("targetRef") or {}
    return (
        tuple(sorted(endpoint.get("addresses") or ())),
        endpoint.get("hostname") or "",
        target.get("namespace") or "",
        target.get("name") or "",
    )


def port_number(pod: Obj, port: Obj) -> int | None:
    """The number of a service's target port on this pod; a name is looked up in the ports of its containers."""
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    spec, protocol = pod["spec"], port.get("protocol", "TCP")
    sidecars = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    for container in (*spec["containers"], *sidecars):
        for offered in container.get("ports") or ():
            if offered.get("name") == target and offered.get("protocol", "TCP") == protocol:
                number: int = offered["containerPort"]
                return number
    return None


def ports_of(service: Obj, pod: Obj) -> list[Obj]:
    """The ports of a service on this pod, without those that the pod lacks."""
    found: list[Obj] = []
    for port in service["spec"].get("ports") or ():
        number = port_number(pod, port)
        if number is None:
            continue
        made = {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol", "TCP")}
        if port.get("appProtocol") is not None:
            made["appProtocol"] = port["appProtocol"]
        found.append(made)
    return found


def ports_key(ports: Iterable[Obj] | None) -> PortsKey:
    """The key of a set of ports, independent of order: a slice has one set."""
    return tuple(
        sorted(
            (each.get("name") or "", each.get("protocol") or "", each.get("port") or 0, each.get("appProtocol") or "")
            for each in ports or ()
        )
    )
