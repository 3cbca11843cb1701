"""The whole translation, and the incremental one, which translates only changed inputs again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from google.protobuf.message import Message

from shoal.sentinel.model import Inputs, PeerGateway, ServiceEndpoints, ServiceKey, Settings
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.clusters import clusters_of, empty_cluster, service_clusters
from shoal.sentinel.translate.endpoints import load_assignment
from shoal.sentinel.translate.listeners import listeners_of
from shoal.sentinel.translate.plan import PlannedRoute, RoutePlan, plan, replicas_above_limits
from shoal.sentinel.translate.policies import KEYS, extensions, key_filter, policy_clusters
from shoal.sentinel.translate.routes import entry_configuration, route_configuration, virtual_host
from shoal.sentinel.translate.secrets import secrets_of
from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, EXTENSION, LISTENER, ROUTES, SECRET

Resources = dict[str, dict[str, Message]]
"""The configuration of an Envoy, by type URL and name. An unchanged message is the same object as last time."""

_NONE = ServiceEndpoints()
_Services = dict[ServiceKey, list[tuple[str, int, bool]]]


def translate(inputs: Inputs) -> Resources:
    """Translate all inputs, without a previous translation. Deterministic."""
    return Translator().resources(inputs)


class Translator:
    """Keeps the previous translation. Callers must not change its results."""

    def __init__(self) -> None:
        self._inputs = Inputs()
        self._settings = Settings()  # as they are used: without an entry when its certificate is missing
        self._plan = RoutePlan()
        self._replicas_above_limits = 0
        self._resources: Resources = {}
        self._hosts: dict[str, tuple[object, Message]] = {}
        self._clusters: dict[str, tuple[object, dict[str, Message]]] = {}
        self._services: _Services = {}
        self._faults: dict[str, str] = {}
        self._key_filter: Message = key_filter({})

    @property
    def faults(self) -> Mapping[str, str]:
        """Faults of the last translation by ``route/NAME`` or ``policy/NAME``: why it is not applied as it is."""
        return self._faults

    def resources(self, inputs: Inputs) -> Resources:
        """Messages that did not change are the same objects as last time."""
        before, first = self._inputs, not self._resources
        settings = _usable(inputs)
        peers = inputs.peers if settings.entry_secret else ()
        settings_changed = first or settings != self._settings
        routed = settings_changed or (
            inputs.routes is not before.routes
            or inputs.policies is not before.policies
            or inputs.tls is not before.tls
            or inputs.issuers is not before.issuers
            or _own(inputs) is not _own(before)
            and replicas_above_limits(inputs) != self._replicas_above_limits
        )
        found, services = dict(self._resources), self._services
        if routed:
            self._settings = settings
            self._plan = plan(inputs)
            self._replicas_above_limits = replicas_above_limits(inputs)
            self._faults = dict(self._plan.faults)
            if inputs.peers and not peers:
                self._faults["peers"] = f"no usable Secret {inputs.settings.entry_secret!r} for TLS to peers"
            found.update(self._routed(inputs))
            services = _by_service(self._plan, settings)
        if routed or inputs.peers != before.peers or inputs.endpoints is not before.endpoints:
            every = settings_changed or inputs.peers != before.peers
            found[ENDPOINTS] = self._endpoints(inputs, peers, services, every=every)
            self._services = services
        if first or inputs.keys is not before.keys:
            self._key_filter = key_filter(inputs.keys)
        if found[EXTENSION].get(KEYS) is not self._key_filter:
            found[EXTENSION] = {**found[EXTENSION], KEYS: self._key_filter}
        self._inputs, self._resources = inputs, found
        return found

    def _routed(self, inputs: Inputs) -> Resources:
        now, settings = self._plan, self._settings
        routes: dict[str, Message] = {envoy.ALL_ROUTES: route_configuration(now, self._virtual_hosts(), settings)}
        if settings.entry_port:
            routes[envoy.ENTRY_ROUTES] = entry_configuration(now)
        made: Resources = {
            CLUSTER: self._all_clusters(inputs.issuers),
            SECRET: _secrets(inputs, now, settings),
            EXTENSION: dict(extensions(now, settings, inputs.issuers)),
            ROUTES: routes,
            LISTENER: dict(listeners_of(settings, now.certificates)),
        }
        return {kind: _kept(members, self._resources.get(kind, {})) for kind, members in made.items()}

    def _virtual_hosts(self) -> list[Message]:
        hosts: dict[str, tuple[object, Message]] = {}
        for host, routes in self._plan.hosts.items():
            key = (routes, self._settings, _choosable(routes, self._plan))
            known = self._hosts.get(host)
            if known is None or known[0] != key:
                known = (key, virtual_host(host, routes, self._settings, environments=self._plan.environments))
            hosts[host] = known
        self._hosts = hosts
        return [message for _, message in hosts.values()]

    def _all_clusters(self, issuers: Mapping[str, str]) -> dict[str, Message]:
        kept: dict[str, tuple[object, dict[str, Message]]] = {}
        for deployment, target in self._plan.targets.items():
            key = (target, self._settings)
            known = self._clusters.get(deployment)
            if known is None or known[0] != key:
                known = (key, dict(clusters_of(target, self._settings)))
            kept[deployment] = known
        self._clusters = kept
        made: dict[str, Message] = {envoy.EMPTY_CLUSTER: empty_cluster()}
        for _, members in kept.values():
            made.update(members)
        made.update(service_clusters(self._settings))
        made.update(policy_clusters(self._plan, issuers))
        return made

    def _endpoints(
        self, inputs: Inputs, peers: tuple[PeerGateway, ...], services: _Services, *, every: bool
    ) -> dict[str, Message]:
        """The previous assignments, with those of changed services replaced."""
        known, before = self._resources.get(ENDPOINTS, {}), self._inputs.endpoints
        region, made = self._settings.region, {}
        concerned: Iterable[ServiceKey] = services
        if services is self._services and not every:
            concerned = [key for key in _changed(before, inputs.endpoints) if key in services]
            made = dict(known)
        for key in concerned:
            found, members = inputs.endpoints.get(key, _NONE), services[key]
            if not every and found is before.get(key, _NONE) and members == self._services.get(key):
                made.update((name, known[name]) for name, _, _ in members)
                continue
            for name, port, beyond in members:
                now = load_assignment(name, found, port=port, region=region, peers=peers if beyond else ())
                made[name] = old if (old := known.get(name)) == now else now
        return made


def _changed(
    before: Mapping[ServiceKey, ServiceEndpoints], now: Mapping[ServiceKey, ServiceEndpoints]
) -> list[ServiceKey]:
    """The services that differ, compared by identity: this looks at thousands for each endpoint that changes."""
    found = [key for key, one in now.items() if before.get(key) is not one]
    return found + [key for key in before if key not in now]


def _by_service(now: RoutePlan, settings: Settings) -> _Services:
    """The assignments that have a service's endpoints: name, port, and whether peers are added as fallback."""
    found: _Services = {}
    for target in now.targets.values():
        members = found.setdefault(target.service, [])
        members.append((envoy.deployment_cluster(target.deployment), target.backend.port, True))
        if settings.entry_port:
            members.append((envoy.local_cluster(target.deployment), target.backend.port, False))
    if settings.replicas is not None:
        found.setdefault(settings.replicas, []).append((envoy.REPLICAS, 0, False))
    return found


def _own(inputs: Inputs) -> ServiceEndpoints | None:
    """The gateway's own replicas."""
    return inputs.endpoints.get(inputs.settings.replicas) if inputs.settings.replicas is not None else None


def _usable(inputs: Inputs) -> Settings:
    """The settings, without the entry for peers if the gateway's certificate is missing or unusable."""
    settings = inputs.settings
    secret = inputs.tls.get(settings.entry_secret)
    if secret is not None and secret.authority and secret.usable:
        return settings
    return replace(settings, entry_port=0, entry_secret="")


def _choosable(routes: tuple[PlannedRoute, ...], now: RoutePlan) -> bool:
    return any(now.environments.get(each.route.environment) for each in routes)


def _secrets(inputs: Inputs, now: RoutePlan, settings: Settings) -> dict[str, Message]:
    used = {*now.certificates.values(), *([settings.entry_secret] if settings.entry_secret else ())}
    made: dict[str, Message] = {}
    for name in sorted(used):
        made.update(secrets_of(inputs.tls[name]))
    return made


def _kept(made: dict[str, Message], before: dict[str, Message]) -> dict[str, Message]:
    """Reuse the previous messages that are equal."""
    return {name: old if (old := before.get(name)) == message else message for name, message in made.items()}
