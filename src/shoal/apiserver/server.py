"""The API server put together: store, registry, verbs, watches, housekeeping; and its listener."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Mapping

from shoal.apiserver.allocation import ServiceEffects
from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authn.tokens import TokenIssuer, TokenReader
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.boot import create_boot_objects
from shoal.apiserver.context import Core, ServerConfig, User
from shoal.apiserver.custom import Definitions
from shoal.apiserver.effects import CRDS
from shoal.apiserver.handler import Handler
from shoal.apiserver.housekeeping import Housekeeping, NamespaceEffects
from shoal.apiserver.http import HttpLimits, HttpServer
from shoal.apiserver.registry import Registry
from shoal.apiserver.watch import WatchHub
from shoal.apiserver.write import Writer
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.store import Store

_HEADERS = ((b"Cache-Control", b"no-cache, private"),)
_BACKLOG = 4096
_GC_EVERY = 10_000
_TLS_GOODBYE_S = 0.5


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
        tokens: Mapping[str, User],
        signing_key: bytes = b"",
    ) -> None:
        self.core = Core(store, registry, clock, ids, config)
        self.writer = Writer(self.core)
        self.handler = Handler(self.core, self.writer, Authenticator(tokens), Authorizer())
        self.definitions = Definitions(self.core)
        self.writer.effects.update(
            {
                "services": ServiceEffects(self.core),
                "namespaces": NamespaceEffects(self.writer),
                CRDS: self.definitions,
            }
        )
        if signing_key:
            self.handler.subresources.issue_token = TokenIssuer(self.core, signing_key).issue
            self.handler.authenticator.account_of = TokenReader(self.core, signing_key).user_of
        self.housekeeping = Housekeeping(self.core, self.writer, self.handler.deleter)
        self._tasks: list[asyncio.Task[None]] = []
        self._http: HttpServer | None = None
        self._listeners: list[asyncio.Server] = []

    async def start(self) -> None:
        """The store must be started. Ready to answer when this returns."""
        self.core.hub = WatchHub(self.core)
        self.core.store.subscribe(CRDS, self.definitions.on_events)
        self.definitions.load()
        self.housekeeping.start()
        self._tasks.append(asyncio.create_task(self.housekeeping.run(), name="housekeeping"))
        await create_boot_objects(self.core, self.writer)
        await self.housekeeping.idle.wait()  # the first client finds the default service accounts
        self.handler.pages.ready = True
        # what exists now lives as long as the process: keep the collector from walking it again and again
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_EVERY, 20, 20)  # requests make no cycles: look for them less often

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, limits: HttpLimits | None = None
    ) -> int:
        """Accept connections; the port that was bound."""
        loop = asyncio.get_running_loop()
        if self._http is None:
            self._http = HttpServer(
                self.handler.handle, self.handler.on_error, loop=loop, limits=limits, common_headers=_HEADERS
            )
        # an idle client does not answer a TLS goodbye: without a bound of its own it would hold up every stop
        goodbye_s = None if tls is None else _TLS_GOODBYE_S
        listener = await loop.create_server(
            self._http, host, port, ssl=tls, backlog=_BACKLOG, ssl_shutdown_timeout=goodbye_s
        )
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening, end watches, finish what is being answered. The store is the caller's to stop."""
        self.handler.pages.ready = False
        for listener in self._listeners:
            listener.close()
        self.core.hub.stop()
        if self._http is not None:
            await self._http.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
