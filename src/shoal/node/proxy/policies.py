"""Tells the proxy process which connections between pods NetworkPolicies allow."""

from __future__ import annotations

from typing import Protocol

from shoal.base.logs import get_logger
from shoal.node.policy.model import Rules
from shoal.node.policy.plan import PolicyPod, pod_of, rules_of
from shoal.reconcile import DONE, Informer, ObjectKey, Result

log = get_logger("node.proxy")

ALL = ObjectKey("", "rules")  # there is one set of rules
_DNS_LABELS = {"k8s-app": "kube-dns"}
_DNS_PORTS = (("dns", "UDP", 53), ("dns-tcp", "TCP", 53))


class PolicyRules(Protocol):
    async def set_rules(self, rules: Rules) -> str:
        """Enforce the rules from now on. Returns why the kernel does not; empty if it does."""


class NetworkPolicies:
    """A controller calls ``reconcile`` with ``ALL`` after any change. To policies, DNS is a pod, as elsewhere."""

    def __init__(
        self, policies: Informer, pods: Informer, namespaces: Informer, rules: PolicyRules, dns_address: str
    ) -> None:
        self._policies = policies.cache
        self._pods = pods.cache
        self._namespaces = namespaces.cache
        self._rules = rules
        self._dns = PolicyPod(dns_address, "kube-system", _DNS_LABELS, _DNS_PORTS)
        self._told: Rules | None = None
        self._fault = ""

    async def reconcile(self, key: ObjectKey) -> Result:
        policies = [found for each in self._policies.keys() if (found := self._policies.get(each)) is not None]
        rules = self._compiled(policies) if policies else Rules()
        if rules == self._told:
            return DONE
        fault = await self._rules.set_rules(rules)
        self._told = rules
        if fault and fault != self._fault:
            log.warning("network policies are enforced for Services and DNS only, not between pods", reason=fault)
        self._fault = fault
        return DONE

    def _compiled(self, policies: list[dict[str, object]]) -> Rules:
        found = [self._pods.get(each) for each in self._pods.keys()]
        pods = [made for each in found if each is not None and (made := pod_of(each)) is not None]
        spaces = [self._namespaces.get(each) for each in self._namespaces.keys()]
        labels = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in spaces if each is not None}
        return rules_of(policies, [*pods, self._dns], labels)
