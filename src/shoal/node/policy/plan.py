"""Makes rules by address from policies, pods and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.kube import labels
from shoal.kube.objects import Obj
from shoal.node.policy.model import Allow, Block, PortRange, Rules

_ANY_PORT = (1, 65535)
_DIRECTIONS = (("Ingress", "ingress", "from"), ("Egress", "egress", "to"))


@dataclass(frozen=True, slots=True)
class PolicyPod:
    """A pod as policies see it."""

    address: str
    namespace: str
    labels: Mapping[str, str]
    ports: tuple[tuple[str, str, int], ...] = ()  # name, protocol, number


def pod_of(pod: Obj) -> PolicyPod | None:
    """None if policies do not concern it: it has no address of its own, or has ended."""
    spec, about, status = pod["spec"], pod["metadata"], pod.get("status") or {}
    address = status.get("podIP") or ""
    if spec.get("hostNetwork") or not address or ":" in address or status.get("phase") in ("Succeeded", "Failed"):
        return None
    found = [
        (port.get("name") or "", port.get("protocol") or "TCP", port["containerPort"])
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
    ]
    return PolicyPod(address, about["namespace"], about.get("labels") or {}, tuple(found))


def rules_of(policies: Iterable[Obj], pods: Sequence[PolicyPod], namespaces: Mapping[str, Mapping[str, str]]) -> Rules:
    """The rules for these pods; ``namespaces`` are the labels of each."""
    found: dict[str, dict[str, set[Allow]]] = {"ingress": {}, "egress": {}}
    for policy in sorted(policies, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"])):
        spec, namespace = policy["spec"], policy["metadata"]["namespace"]
        selector = labels.from_object(spec.get("podSelector") or {})
        chosen = [each for each in pods if each.namespace == namespace and selector.matches(each.labels)]
        for kind, field, side in _DIRECTIONS:
            if kind not in _kinds(spec):
                continue
            for pod in chosen:
                allows = found[field].setdefault(pod.address, set())
                for rule in spec.get(field) or ():
                    peers = _peers(rule.get(side), namespace, pods, namespaces)
                    allows.update(_allows(peers, rule.get("ports"), pod if kind == "Ingress" else None, pods))
    return Rules(
        *({address: tuple(sorted(allows, key=repr)) for address, allows in found[way].items()} for way in found)
    )


def _kinds(spec: Obj) -> Sequence[str]:
    return spec.get("policyTypes") or (("Ingress", "Egress") if spec.get("egress") else ("Ingress",))


def _peers(
    wanted: Sequence[Obj] | None, own: str, pods: Sequence[PolicyPod], namespaces: Mapping[str, Mapping[str, str]]
) -> tuple[Block, ...] | None:
    if not wanted:
        return None
    found: set[Block] = set()
    for each in wanted:
        block = each.get("ipBlock")
        if block is not None:
            if ":" not in block["cidr"]:
                found.add(Block(block["cidr"], tuple(sorted(block.get("except") or ()))))
            continue
        selector = labels.from_object(each.get("podSelector") or {})
        if each.get("namespaceSelector") is None:
            places = {own}
        else:
            within = labels.from_object(each["namespaceSelector"])
            places = {name for name, about in namespaces.items() if within.matches(about)}
        found |= {
            Block(f"{pod.address}/32") for pod in pods if pod.namespace in places and selector.matches(pod.labels)
        }
    return tuple(sorted(found))


def _allows(
    peers: tuple[Block, ...] | None, ports: Sequence[Obj] | None, target: PolicyPod | None, pods: Sequence[PolicyPod]
) -> Iterable[Allow]:
    """What a rule allows. Names of ports are those of the pod that is connected to: ``target``, else each peer."""
    if peers == ():
        return
    if not ports:
        yield Allow(peers, None)
        return
    named = [each for each in ports if isinstance(each.get("port"), str)]
    ranges = {_range(each) for each in ports if not isinstance(each.get("port"), str)}
    if target is not None:
        ranges |= _named(named, target)
    elif named:
        for pod in pods:
            own = _named(named, pod)
            if own and (peers is None or any(each.has(pod.address) for each in peers)):
                yield Allow((Block(f"{pod.address}/32"),), tuple(sorted(own)))
    if ranges:
        yield Allow(peers, tuple(sorted(ranges)))


def _range(port: Obj) -> PortRange:
    first, last = _ANY_PORT if port.get("port") is None else (port["port"], port.get("endPort") or port["port"])
    return PortRange(port.get("protocol") or "TCP", first, last)


def _named(ports: Sequence[Obj], pod: PolicyPod) -> set[PortRange]:
    wanted = {(each["port"], each.get("protocol") or "TCP") for each in ports}
    return {PortRange(protocol, number, number) for name, protocol, number in pod.ports if (name, protocol) in wanted}
