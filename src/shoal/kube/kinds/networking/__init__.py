"""networking.k8s.io and discovery.k8s.io."""

from __future__ import annotations

from shoal.kube.kinds.networking import addresses, endpoint_slice, ingress, network_policy
from shoal.kube.rules import KindRules

_GROUP = "networking.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    ("discovery.k8s.io", "v1", "EndpointSlice"): endpoint_slice.RULES,
    (_GROUP, "v1", "IPAddress"): addresses.IP_ADDRESS,
    (_GROUP, "v1", "Ingress"): ingress.INGRESS,
    (_GROUP, "v1", "IngressClass"): ingress.INGRESS_CLASS,
    (_GROUP, "v1", "NetworkPolicy"): network_policy.RULES,
    (_GROUP, "v1", "ServiceCIDR"): addresses.SERVICE_CIDR,
}
