"""Builds the API server: store, registry, verbs, watches, housekeeping; and its listener."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shoal.apiserver.admission.builtin import builtin_chain
from shoal.apiserver.admission.builtin.node_restriction import NodeRestriction
from shoal.apiserver.admission.chain import Chain, Plans
from shoal.apiserver.admission.policies.model import VALIDATING
from shoal.apiserver.admission.policies.service import Policies
from shoal.apiserver.admission.policies.type_checking import TypeChecks
from shoal.apiserver.admission.webhooks.client import HookClient
from shoal.apiserver.admission.webhooks.service import Webhooks
from shoal.apiserver.advertising import Advertising
from shoal.apiserver.aggregator.plan import API_SERVICES
from shoal.apiserver.aggregator.registration import ApiServiceEffects
from shoal.apiserver.allocation import ServiceEffects
from shoal.apiserver.authn.certificate_rules import (
    POD_CERTIFICATES,
    TRUST_BUNDLES,
    certificate_guard,
    pod_certificate_guard,
    trust_bundle_guard,
)
from shoal.apiserver.authn.credential import Credential
from shoal.apiserver.authn.service import Authentication, Authority
from shoal.apiserver.authn.signer import REQUESTS
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.authz.escalation import EscalationCheck
from shoal.apiserver.boot import check_same_cluster, create_boot_objects
from shoal.apiserver.context import Core, ServerConfig
from shoal.apiserver.custom import Definitions
from shoal.apiserver.effects import CRDS
from shoal.apiserver.handler import Handler
from shoal.apiserver.housekeeping import Housekeeping, NamespaceEffects
from shoal.apiserver.http import HttpLimits, HttpServer
from shoal.apiserver.nodes.service import hands_on
from shoal.apiserver.quota_status import QuotaEffects, QuotaStatus
from shoal.apiserver.registry import Registry
from shoal.apiserver.roles.aggregation import Aggregation
from shoal.apiserver.user import User
from shoal.apiserver.watch import WatchHub
from shoal.apiserver.write import Writer
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.store import Store

_HEADERS = ((b"Cache-Control", b"no-cache, private"), (b"X-Content-Type-Options", b"nosniff"))
_BACKLOG = 4096
_GC_EVERY = 10_000
_TLS_SHUTDOWN_S = 0.5


class ApiServer:
    """One API server over one store. ``start`` makes it ready to answer; ``listen`` opens a port for it."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock,
        ids: Ids,
        config: ServerConfig,
        tokens: Mapping[str, User | Credential],
        signing_key: bytes = b"",
        verification_keys: Sequence[bytes] = (),
        authority: Authority | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Builds the parts in order of dependency: admission and authorization, the writer, its users. ``metrics``
        belong to the process and may hold those of other components; without them the server has its own."""
        core = self.core = Core(store, registry, clock, ids, config)
        authorizer = Authorizer(store)
        self.hub = WatchHub(core)
        self.hooks = HookClient(store, clock)
        self.definitions = Definitions(core, self.hooks, self.hub.end_resource)
        plans: Plans = {}
        self.webhooks = Webhooks(core, plans.clear, self.hooks, decide=authorizer.decide)
        self.policies = Policies(core, plans.clear, authorizer_decide=authorizer.decide)
        self.builtin = builtin_chain(core)
        self.writer = Writer(
            core,
            admission=Chain(
                plans=plans,
                mutators=self.builtin.mutators,
                validators=(NodeRestriction(core, authorizer), *self.builtin.validators),
                chargers=self.builtin.chargers,
                dynamic=[self.policies, self.webhooks],
                spec_context=self.builtin.spec_context,
            ),
            effects={
                "services": ServiceEffects(core),
                "namespaces": NamespaceEffects(core),
                "resourcequotas": QuotaEffects(core),
                CRDS: self.definitions,
                API_SERVICES: ApiServiceEffects(core),
                VALIDATING: TypeChecks(core),
            },
            guards={
                **EscalationCheck(authorizer).guards(),
                REQUESTS: certificate_guard(authorizer),
                TRUST_BUNDLES: trust_bundle_guard(authorizer),
                POD_CERTIFICATES: pod_certificate_guard(authorizer, clock.wall_s),
                CRDS: self.definitions.guard,
            },
            check_create=authorizer.check_create,
        )
        self.authentication = Authentication(
            core, self.writer, authorizer, tokens,
            signing_key=signing_key, verification_keys=verification_keys, authority=authority,
        )  # fmt: skip
        self.handler = Handler(
            core, self.hub, self.writer, self.authentication, authorizer, Metrics() if metrics is None else metrics
        )
        self.quotas = QuotaStatus(core, self.writer)
        self.aggregation = Aggregation(self.core, self.writer)
        self.housekeeping = Housekeeping(self.core, self.writer, self.handler.deleter)
        self.advertising = Advertising(self.core, self.writer)
        self._started = False
        self._http: HttpServer | None = None
        self._listeners: list[asyncio.Server] = []

    async def start(self) -> None:
        """The store must be started. Ready to answer when this returns."""
        check_same_cluster(self.core)
        self.hub.start()
        self.core.store.subscribe(CRDS, self.definitions.on_events)
        self.definitions.load()
        self._started = True
        self.housekeeping.start()
        self.authentication.start()
        self.handler.authorizer.start()
        self.builtin.start()
        self.quotas.start()
        self.policies.start()
        self.webhooks.start()
        self.handler.metrics.start()
        await create_boot_objects(self.core, self.writer, self.advertising)
        self.advertising.start()
        self.aggregation.start()
        await self.handler.aggregator.start()
        await self.housekeeping.idle.wait()  # the first client finds the default service accounts
        self.handler.protection.start()
        self.handler.pages.ready = True
        # current objects live as long as the process: keep the garbage collector from scanning them
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_EVERY, 20, 20)  # requests make no cycles: look for them less often

    async def listen(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
        listening: socket.socket | None = None,
    ) -> int:
        """Accept connections; the port that was bound. ``listening`` is a socket that has the port already."""
        loop = asyncio.get_running_loop()
        if self._http is None:
            self._http = HttpServer(
                self.handler.handle, self.handler.on_error, loop=loop, clock=self.core.clock, limits=limits,
                common_headers=_HEADERS, hands_on=hands_on,
            )  # fmt: skip
        # an idle client does not answer a TLS close: without this limit it would delay every stop
        shutdown_s, handshake_s = (None, None) if tls is None else (_TLS_SHUTDOWN_S, self._http.limits.handshake_s)
        place = {"host": host, "port": port} if listening is None else {"sock": listening}
        listener = await loop.create_server(
            self._http, **place, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=shutdown_s,
        )  # fmt: skip
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    def renew_certificates(self) -> None:
        """Show kubelets and aggregated servers the client certificates as the files have them now."""
        self.handler.nodes.credentials.forget()
        for route in self.handler.aggregator.routes.values():
            route.forget_certificate()

    def replace_authority(self, authority: Authority, trusted: str) -> None:
        """Sign certificates with ``authority`` and publish the authorities ``trusted``."""
        self.core.config = replace(self.core.config, ca_certificate=trusted)
        self.authentication.replace_authority(authority)
        self.housekeeping.authority_changed()

    async def stop(self) -> None:
        """Stop listening, end watches, finish running requests. The caller stops the store."""
        if not self._started:
            return
        self.handler.pages.ready = False
        for listener in self._listeners:
            listener.close()
        self.hub.stop()
        if self._http is not None:
            await self._http.stop()
        await self.handler.metrics.stop()
        await self.handler.aggregator.stop()
        await self.authentication.stop()
        await self.aggregation.stop()
        self.handler.authorizer.stop()
        await self.quotas.stop()
        self.policies.stop()
        self.webhooks.stop()
        self.hooks.close()
        await self.housekeeping.stop()
        await self.advertising.stop()
        self.handler.protection.stop()
        self.handler.compression.close()
