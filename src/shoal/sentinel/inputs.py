"""The inputs of a gateway, read by informers from the cluster: routes, policies, secrets, peers, and the
EndpointSlices of the environment's Services. The gateway never calls the control plane.

A change replaces only the objects it affects; ``current`` returns all others as the same objects as before. While the
API server is unreachable the last state stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, ResourceType, Scope, builtin
from shoal.crds.sentinel import GROUP, VERSION
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer, ReflectorConfig
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.model import (
    GatewayPolicy,
    GatewayRoute,
    Inputs,
    KeySet,
    PeerGateway,
    ServiceEndpoints,
    ServiceKey,
    Settings,
    TlsSecret,
)
from shoal.sentinel.translate.endpoints import service_endpoints
from shoal.sentinel.translate.reading import ENVIRONMENT, key_set_of, peers_of, policy_of, route_of, tls_secret_of

log = get_logger("sentinel.inputs")

ROUTE_TYPE = ResourceType(GROUP, VERSION, "sentinelroutes", True, "SentinelRoute")
POLICY_TYPE = ResourceType(GROUP, VERSION, "sentinelpolicies", True, "SentinelPolicy")
PEERS_ENTRY = "peers.json"
SERVICE_NAME = "kubernetes.io/service-name"
_REFLECTOR = ReflectorConfig(backoff=Backoff(base_s=0.2, cap_s=5.0))
_BY_SERVICE = "service"
_TLS = "kubernetes.io/tls"
_KEYS = "keys-"  # prefix of the names of Secrets with keys


class InputKeeper:
    """``run`` it as a task. ``changed`` is called at each change; only then ``current`` may differ."""

    def __init__(
        self,
        client: Client,
        config: SentinelConfig,
        settings: Settings,
        *,
        clock: Clock,
        random: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._changed = changed
        self._routes: dict[str, GatewayRoute] = {}
        self._policies: dict[str, GatewayPolicy] = {}
        self._tls: dict[str, TlsSecret] = {}
        self._keys: dict[str, KeySet] = {}
        self._endpoints: dict[ServiceKey, ServiceEndpoints] = {}
        self._peers: tuple[PeerGateway, ...] = ()
        self._issuers: Mapping[str, str] = {}
        self._current = Inputs(settings=settings)
        self._stale: set[str] = set()  # parts of ``_current``

        def informer(type_: ResourceType, scope: Scope, handler: Callable[[Change], None]) -> Informer:
            made = Informer(client.of(type_), clock=clock, random=random, scope=scope, config=_REFLECTOR)
            made.cache.add_handler(handler)
            return made

        ours = ENVIRONMENT if config.everything else f"{ENVIRONMENT}={config.environment}"
        here = Scope(namespace=config.namespace, label_selector="" if config.everything else ours)
        peers = Scope(namespace=config.namespace, field_selector=f"metadata.name=peers-{config.name}")
        slices = builtin("endpointslices", "discovery.k8s.io")
        self.routes = informer(ROUTE_TYPE, here, self._on_route)
        self._slices = [informer(slices, Scope(label_selector=ours), self._on_slice)]
        self._peers_map = informer(builtin("configmaps"), peers, self._on_peers)
        self.informers = [
            self.routes,
            informer(POLICY_TYPE, here, self._on_policy),
            informer(builtin("secrets"), here, self._on_secret),
            self._peers_map,
        ]
        if config.entry_secret and not config.everything:
            named = Scope(namespace=config.namespace, field_selector=f"metadata.name={config.entry_secret}")
            self.informers.append(informer(builtin("secrets"), named, self._on_secret))
        if settings.replicas is not None and config.everything:
            own = Scope(namespace=config.namespace, label_selector=f"{SERVICE_NAME}={config.name}")
            self._slices.append(informer(slices, own, self._on_slice))
        for each in self._slices:
            each.cache.add_index(_BY_SERVICE, _services_of)
        self.informers += self._slices

    @property
    def synced(self) -> bool:
        """Whether everything has been read at least once."""
        return all(one.synced for one in self.informers)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for one in self.informers:
                group.create_task(one.run(), name=f"informer/{one.name}")
            group.create_task(self._say_synced(), name="informers/synced")

    async def _say_synced(self) -> None:
        for one in self.informers:
            await one.cache.synced.wait()
        log.info("first read of the cluster complete", routes=len(self._routes), services=len(self._endpoints))
        self._changed()

    def current(self) -> Inputs:
        """The current inputs. Unchanged parts are the same objects as in the last call."""
        if not self._stale:
            return self._current
        before = self._current

        def part(name: str, fresh: Mapping[Any, Any]) -> Any:
            return dict(fresh) if name in self._stale else getattr(before, name)

        self._current = Inputs(
            settings=self._settings,
            routes=part("routes", self._routes),
            policies=part("policies", self._policies),
            endpoints=part("endpoints", self._endpoints),
            tls=part("tls", self._tls),
            keys=part("keys", self._keys),
            peers=self._peers,
            issuers=self._issuers,
        )
        self._stale.clear()
        return self._current

    def set_issuers(self, found: Mapping[str, str]) -> None:
        """Set the key URLs of token issuers, which do not come from the cluster."""
        self._issuers = found
        self._touch("issuers")

    # changes

    def _on_route(self, change: Change) -> None:
        self._put("routes", self._routes, change.key.name, route_of(change.new) if change.new else None)

    def _on_policy(self, change: Change) -> None:
        self._put("policies", self._policies, change.key.name, policy_of(change.new) if change.new else None)

    def _on_secret(self, change: Change) -> None:
        is_certificate = change.object.get("type") == _TLS
        found = tls_secret_of(change.new) if change.new and is_certificate else None
        before = self._tls.get(change.key.name)
        if found is not None and found.fault and before is not None and before.usable:
            found = replace(before, fault=found.fault)  # the last good one stays
        self._put("tls", self._tls, change.key.name, found)
        if change.key.name.startswith(_KEYS):
            keys = key_set_of(change.object)
            self._put("keys", self._keys, keys.environment, keys if change.new else None)

    def _on_peers(self, change: Change) -> None:
        data = (change.new or {}).get("data") or {}
        found = peers_of(data.get(PEERS_ENTRY) or "[]")
        if found != self._peers:
            self._peers = found
            self._touch("peers")

    def _on_slice(self, change: Change) -> None:
        for one in {name for obj in (change.old, change.new) if obj for name in _services_of(obj)}:
            namespace, _, name = one.partition("/")
            slices = [each for informer in self._slices for each in informer.cache.by_index(_BY_SERVICE, one)]
            found = service_endpoints(slices) if slices else None
            self._put("endpoints", self._endpoints, ServiceKey(namespace, name), found)

    def _put(self, part: str, into: dict[Any, Any], key: Any, value: Any) -> None:
        if into.get(key) == value:
            return
        if value is None:
            del into[key]
        else:
            into[key] = value
        self._touch(part)

    def _touch(self, part: str) -> None:
        self._stale.add(part)
        self._changed()

    def peers_map(self) -> Obj | None:
        """The ConfigMap of the peers; its labels and owner identify this gateway."""
        return next(iter(self._peers_map.cache), None)


def _services_of(piece: Obj) -> tuple[str, ...]:
    about = piece["metadata"]
    name = (about.get("labels") or {}).get(SERVICE_NAME)
    return (f"{about.get('namespace') or ''}/{name}",) if name else ()
