"""Rules by address allow exactly what the policies allow; the reference reads the objects anew for each connection."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.kube.labels import from_object
from shoal.node.policy.model import Rules, pack, unpack
from shoal.node.policy.plan import PolicyPod, pod_of, rules_of

NAMESPACES = {"a": {"team": "x"}, "b": {"team": "y"}}
PORTS = (("web", "TCP", 80), ("names", "UDP", 53))
ADDRESSES = [f"10.244.0.{n}" for n in range(1, 6)]

selectors = st.sampled_from([{}, {"matchLabels": {"app": "one"}}, {"matchLabels": {"app": "two"}}])
spaces = st.sampled_from([{}, {"matchLabels": {"team": "x"}}, {"matchLabels": {"team": "none"}}])
blocks = st.sampled_from(
    [{"cidr": "10.244.0.0/29"}, {"cidr": "10.244.0.0/24", "except": ["10.244.0.2/31"]}, {"cidr": "fd00::/8"}]
)
peers = st.one_of(
    st.builds(lambda s: {"podSelector": s}, selectors),
    st.builds(lambda n: {"namespaceSelector": n}, spaces),
    st.builds(lambda s, n: {"podSelector": s, "namespaceSelector": n}, selectors, spaces),
    st.builds(lambda b: {"ipBlock": b}, blocks),
)
ports = st.sampled_from(
    [
        {"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 79, "endPort": 81}, {"protocol": "UDP"},
        {"protocol": "TCP", "port": "web"}, {"protocol": "UDP", "port": "names"}, {"protocol": "UDP", "port": "web"},
    ]
)  # fmt: skip
pods_of = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["one", "two"]), st.sampled_from([PORTS, PORTS[:1], ()])
    ),
    min_size=1, max_size=5,
).map(lambda found: [PolicyPod(ADDRESSES[n], each[0], {"app": each[1]}, each[2]) for n, each in enumerate(found)])  # fmt: skip


def rules(side: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries({}, optional={side: st.lists(peers, max_size=2), "ports": st.lists(ports, max_size=2)})
    return st.lists(one, max_size=2)


specs = st.fixed_dictionaries(
    {"podSelector": selectors},
    optional={
        "ingress": rules("from"), "egress": rules("to"),
        "policyTypes": st.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
    },
)  # fmt: skip
policies = st.lists(st.tuples(st.sampled_from(["a", "b"]), specs), max_size=3).map(
    lambda found: [{"metadata": {"namespace": n, "name": f"p{i}"}, "spec": s} for i, (n, s) in enumerate(found)]
)


def reference(
    found: list[dict[str, Any]], pods: list[PolicyPod], source: str, target: str, protocol: str, port: int
) -> bool:
    by = {each.address: each for each in pods}
    if source == target:
        return True
    for kind, field, side, own, other in (
        ("Egress", "egress", "to", source, target), ("Ingress", "ingress", "from", target, source),
    ):  # fmt: skip
        if own not in by:
            continue
        chosen = [
            each for each in found
            if each["metadata"]["namespace"] == by[own].namespace
            and from_object(each["spec"]["podSelector"]).matches(by[own].labels)
            and kind in (each["spec"].get("policyTypes") or (["Ingress", *(["Egress"] if each["spec"].get("egress") else [])]))
        ]  # fmt: skip
        every = [(policy, rule) for policy in chosen for rule in policy["spec"].get(field) or ()]
        if chosen and not any(
            _peer(rule.get(side), policy["metadata"]["namespace"], other, by.get(other))
            and _port(rule.get("ports"), by.get(target), protocol, port)
            for policy, rule in every
        ):
            return False
    return True


def _peer(wanted: list[dict[str, Any]] | None, own: str, address: str, pod: PolicyPod | None) -> bool:
    if not wanted:
        return True
    for each in wanted:
        if "ipBlock" in each:
            block = each["ipBlock"]
            if ":" not in block["cidr"] and IPv4Address(address) in IPv4Network(block["cidr"]):
                if not any(IPv4Address(address) in IPv4Network(out) for out in block.get("except", ())):
                    return True
        elif pod is not None:
            if "namespaceSelector" in each:
                near = from_object(each["namespaceSelector"]).matches(NAMESPACES[pod.namespace])
            else:
                near = pod.namespace == own
            if near and from_object(each.get("podSelector", {})).matches(pod.labels):
                return True
    return False


def _port(wanted: list[dict[str, Any]] | None, target: PolicyPod | None, protocol: str, port: int) -> bool:
    if not wanted:
        return True
    for each in wanted:
        number = each.get("port")
        if each["protocol"] != protocol:
            continue
        if number is None:
            return True
        if isinstance(number, str):
            if target is not None and (number, protocol, port) in target.ports:
                return True
        elif number <= port <= each.get("endPort", number):
            return True
    return False


@given(found=policies, pods=pods_of)
def test_the_rules_allow_what_the_policies_allow(found: list[dict[str, Any]], pods: list[PolicyPod]) -> None:
    made = rules_of(found, pods, NAMESPACES)
    assert unpack(pack(made)) == made
    everybody = [*(each.address for each in pods), "10.96.0.10", "192.0.2.1"]
    for source in everybody:
        for target in everybody:
            for protocol, port in (("TCP", 80), ("TCP", 81), ("UDP", 53), ("TCP", 53)):
                expected = reference(found, pods, source, target, protocol, port)
                assert made.allow(source, target, protocol, port) == expected, (source, target, protocol, port)


def test_without_policies_there_are_no_rules() -> None:
    assert rules_of([], [PolicyPod("10.244.0.1", "a", {})], NAMESPACES) == Rules()


def test_pods_that_ended_or_have_no_address_of_their_own_are_left_out() -> None:
    spec: dict[str, Any] = {"containers": [{"ports": [{"name": "web", "containerPort": 80}]}]}
    pod = {"metadata": {"namespace": "a"}, "spec": spec, "status": {"podIP": "10.244.0.1", "phase": "Running"}}
    assert pod_of(pod) == PolicyPod("10.244.0.1", "a", {}, (("web", "TCP", 80),))
    assert pod_of({**pod, "spec": {**spec, "hostNetwork": True}}) is None
    assert pod_of({**pod, "status": {"podIP": "10.244.0.1", "phase": "Failed"}}) is None
    assert pod_of({**pod, "status": {}}) is None
