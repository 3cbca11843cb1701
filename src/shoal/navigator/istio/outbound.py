"""A proxy's outbound settings: its Sidecar, the hosts it imports, the DestinationRule of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.kube.objects import Obj
from shoal.navigator.istio.hosts import covers, full_name, most_specific, visible
from shoal.navigator.istio.model import Mesh
from shoal.navigator.istio.resources import (
    ServiceRegistry,
    Workload,
    created,
    namespace_of,
    selects,
    spec_of,
    workload_selector,
)


def sidecar_for(mesh: Mesh, workload: Workload) -> Obj | None:
    """The one Sidecar that acts: one that selects the pod, else its namespace's, else the mesh's."""
    if workload.proxy != "sidecar":
        return None
    ordered = sorted(mesh.objects.get("sidecars", ()), key=created)
    here = [it for it in ordered if namespace_of(it) == workload.namespace]
    selecting = [it for it in here if workload_selector(it) and selects(workload_selector(it), workload.labels)]
    everywhere = [it for it in ordered if namespace_of(it) == mesh.root_namespace]
    plain = [it for it in (*here, *everywhere) if not workload_selector(it)]
    return next(iter((*selecting, *plain)), None)


@dataclass(frozen=True)
class Imports:
    """What a Sidecar lets its workload see; everything when there is none."""

    patterns: Sequence[tuple[str, str]] | None  # namespace, host
    namespace: str

    def allow(self, owner: str, hosts: Iterable[str]) -> bool:
        """Whether one of the hosts, of a resource in namespace ``owner``, is imported."""
        if self.patterns is None:
            return True
        hosts = tuple(hosts)
        return any(
            place in ("*", owner) and any(covers(pattern, host) or covers(host, pattern) for host in hosts)
            for place, pattern in self.patterns
        )


def imports_of(mesh: Mesh, workload: Workload) -> Imports:
    sidecar = sidecar_for(mesh, workload)
    egress = spec_of(sidecar).get("egress") if sidecar is not None else None
    if not egress:
        return Imports(None, workload.namespace)
    found = []
    for listener in egress:
        for written in listener.get("hosts") or []:
            place, _, host = written.partition("/")
            found.append((workload.namespace if place == "." else place, host or "*"))
    return Imports(found, workload.namespace)


@dataclass(frozen=True)
class ChosenRule:
    """A DestinationRule that decides for hosts, and whose namespace made it so."""

    rule: Obj
    hosts: tuple[str, ...]
    by: str  # client, service, root


class DestinationRules:
    """The DestinationRules of a mesh, by namespace and full host."""

    def __init__(self, mesh: Mesh, registry: ServiceRegistry) -> None:
        self._mesh = mesh
        self._registry = registry
        self._by: dict[str, dict[str, list[Obj]]] = {}
        for rule in sorted(mesh.objects.get("destinationrules", ()), key=created):
            home = namespace_of(rule)
            host = full_name(spec_of(rule).get("host", ""), home, mesh.domain)
            self._by.setdefault(home, {}).setdefault(host, []).append(rule)

    def for_host(
        self, host: str, owner: str, client: str, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Obj], str]:
        """The rules that decide for a client in namespace ``client`` and a service of namespace ``owner``: those of the
        first namespace that has one. ``labels`` None: whatever a rule selects."""
        order = [("client", client), ("service", owner), ("root", self._mesh.root_namespace)]
        for by, namespace in order:
            if by == "client" and client == self._mesh.root_namespace != owner:
                continue  # rules there are for all, so the service's own come first
            patterns = {
                pattern: usable
                for pattern, rules in self._by.get(namespace, {}).items()
                if (usable := [it for it in rules if self._usable(it, client, labels)])
            }
            found = most_specific(patterns, host)
            if found is not None:
                return patterns[found], by
        return [], ""

    def chosen(self, workload: Workload, imports: Imports) -> list[ChosenRule]:
        """The rules that decide for at least one host that the workload may call."""
        hosts: dict[int, list[str]] = {}
        rules: dict[int, tuple[Obj, str]] = {}
        for host, owner in self._callable(workload.namespace, imports):
            found, by = self.for_host(host, owner, workload.namespace, workload.labels)
            for rule in found:
                hosts.setdefault(id(rule), []).append(host)
                rules.setdefault(id(rule), (rule, by))
        return [ChosenRule(rule, tuple(sorted(set(hosts[key]))), by) for key, (rule, by) in rules.items()]

    def _callable(self, client: str, imports: Imports) -> Iterable[tuple[str, str]]:
        for host, service in self._registry.kubernetes.items():
            if imports.allow(namespace_of(service), (host,)):
                yield host, namespace_of(service)
        for host, entries in self._registry.entries.items():
            for entry in entries:
                owner = namespace_of(entry)
                if visible(spec_of(entry).get("exportTo"), owner, client) and imports.allow(owner, (host,)):
                    yield host, owner

    def _usable(self, rule: Obj, client: str, labels: Mapping[str, str] | None) -> bool:
        home, selector = namespace_of(rule), workload_selector(rule)
        if not visible(spec_of(rule).get("exportTo"), home, client):
            return False
        if not selector or labels is None:
            return True
        return home == client and selects(selector, labels)
