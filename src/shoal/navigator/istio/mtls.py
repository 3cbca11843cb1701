"""Mutual TLS: the mode at a workload's port, and the PeerAuthentication that sets it."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.kube.objects import Obj
from shoal.navigator.istio.attachment import selected
from shoal.navigator.istio.model import Mesh
from shoal.navigator.istio.resources import Workload, created, namespace_of, spec_of, workload_selector

DEFAULT = "PERMISSIVE"
_UNSET = ("", "UNSET")


@dataclass(frozen=True)
class PeerPolicies:
    """Those that act on a workload, the most specific first; newer ones of the same reach are not heard."""

    acting: tuple[Obj, ...]
    unheard: tuple[Obj, ...]

    def mode(self, port: int | None = None) -> str:
        return self.decided(port)[0]

    def decided(self, port: int | None = None) -> tuple[str, Obj | None]:
        """The mode, and the policy that sets it."""
        for policy in self.acting:
            spec = spec_of(policy)
            if port is not None and workload_selector(policy):
                ports = spec.get("portLevelMtls") or {}
                mode = (ports.get(str(port)) or ports.get(port) or {}).get("mode") or ""
                if mode not in _UNSET:
                    return mode, policy
            mode = (spec.get("mtls") or {}).get("mode") or ""
            if mode not in _UNSET:
                return mode, policy
        return DEFAULT, None


def peer_policies(mesh: Mesh, workload: Workload) -> PeerPolicies:
    reaches: dict[int, list[Obj]] = {0: [], 1: [], 2: []}
    for policy in sorted(mesh.objects.get("peerauthentications", ()), key=created):
        if not selected(policy, workload, mesh.root_namespace):
            continue
        if workload_selector(policy):
            reaches[0].append(policy)
        else:
            reaches[2 if namespace_of(policy) == mesh.root_namespace else 1].append(policy)
    acting = tuple(found[0] for found in reaches.values() if found)
    return PeerPolicies(acting, tuple(it for found in reaches.values() for it in found[1:]))
