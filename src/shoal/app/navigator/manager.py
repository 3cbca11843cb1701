"""The navigator's manager as a process: rows, edges' streams and the REST API on one port."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack

from shoal import __version__
from shoal.app.certificates import CertificateKeeper
from shoal.app.fleet.context_file import note_url
from shoal.app.grant_file import GrantFile
from shoal.app.health import HEALTH_PATHS, health_app, mostly_local
from shoal.app.navigator.config import ManagerProcessConfig
from shoal.app.navigator.fleet import ControlFleet
from shoal.app.processes import hand_over_often
from shoal.app.public_address import warn
from shoal.base import grants
from shoal.base.access import EVERYTHING, Access
from shoal.base.asgi import Application, Receive, Scope, Send, serving
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.grants import Grant
from shoal.base.ids import Ids
from shoal.base.metrics import PROCESS
from shoal.base.supervision import supervise
from shoal.base.tasks import beside, wait_first
from shoal.navigator.answers.api import Caller, make_api
from shoal.navigator.answers.checks import FileChecks
from shoal.navigator.manager.databases import rows_for
from shoal.navigator.manager.service import PATH
from shoal.navigator.manager.tokens import ADMIN, EDGE, NavigatorTokens
from shoal.navigator.manager.wiring import Manager

_THRESHOLDS = (50_000, 50, 100)
_ASIDE_ROWS = 10_000


async def run_manager(config: ManagerProcessConfig, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
    """Serve until ``stop``."""
    hand_over_often()
    gc.set_threshold(*_THRESHOLDS)
    clock, ids = RealClock(), Ids()
    async with AsyncExitStack() as stack:
        keeper = CertificateKeeper(config.pki_dir, clock=clock, metrics=PROCESS)
        tls = keeper.keep_tls("server", lambda pki: pki.ensure_server(config.certificate_hosts))
        manager = Manager(
            rows_for(config.database), clock=clock, new_id=ids.new_uid, config=config.settings, name=config.url,
            grown=CollectorFreeze().grown,
        )  # fmt: skip
        await manager.open()
        stack.push_async_callback(manager.close)
        await ensure_admin(config, manager.tokens)
        note_url(config.dir, config.public_url, config.url)
        fleet = ControlFleet(config.control, clock=clock)
        stack.push_async_callback(fleet.close)

        callers = Callers(manager.tokens, GrantFile(config.grant_key, clock))
        authenticate = callers.authenticate
        api = make_api(
            lambda: manager.view, manager.history, manager.edges, fleet, authenticate=authenticate,
            goes_on=callers.goes_on, clock=clock, changes=manager.changes, admin=manager.admin, options=manager.options,
            checks=FileChecks(config.dir / "checks.json"), metrics=PROCESS, new_id=ids.new_uid, version=__version__,
        )  # fmt: skip

        async def may_read(text: str) -> bool:
            caller = await authenticate(text)
            return caller is not None and caller.access.is_everything

        health = mostly_local(health_app(lambda: (True, {}), lambda: manager.ready, PROCESS), may_read)

        async def served() -> None:
            app = by_path(manager.app, health, api)
            async with serving(
                app, host=config.host, port=config.port, clock=clock, tls=tls, listening=config.listening
            ):
                on_ready()
                authorities = (config.pki_dir / "ca.crt").read_text()
                about = warn(config.host, (config.public_url,), config.advertise_urls, authorities, clock=clock)
                async with beside(about, name="public-address"):
                    await stop.wait()
                manager.calls.end_all()
                api.end_streams()

        await wait_first(
            served(), manager.run(), supervise("navigator-fleet", fleet.run, clock=clock),
            supervise("certificates", keeper.run, clock=clock),
        )  # fmt: skip


class CollectorFreeze:
    """Freezes long-lived objects, so that the garbage collector does not walk a million of them again and again."""

    def __init__(self) -> None:
        self._rows = 0

    def grown(self, count: int) -> None:
        self._rows += count
        if self._rows >= _ASIDE_ROWS:
            self._rows = 0
            gc.collect(0)
            gc.freeze()


class Callers:
    """Who asks: the owner of a token, or a user of the control plane's page, for whom it has signed a grant."""

    def __init__(self, tokens: NavigatorTokens, granted: GrantFile) -> None:
        self._tokens = tokens
        self._granted = granted

    async def authenticate(self, text: str) -> Caller | None:
        if grants.is_grant(text):
            return _granted(self._granted.read(text))
        token = await self._tokens.authenticate(text)
        if token is None or token.kind == EDGE:
            return None
        return Caller(token.id, may_write=token.kind == ADMIN, access=Access.parse(token.scopes))

    async def goes_on(self, text: str) -> Caller | None:
        """For streams: one that a grant has begun is held open by the control plane, which knows when to end it."""
        if grants.is_grant(text):
            return _granted(self._granted.read(text, however_old=True))
        return await self.authenticate(text)


def _granted(grant: Grant | None) -> Caller | None:
    return Caller(grant.user, may_write=grant.may_write, access=grant.access) if grant is not None else None


def by_path(edges: Application, health: Application, api: Application) -> Application:
    """Route streams of edges and health checks by path, all other requests to the API."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.startswith(PATH):
            await edges(scope, receive, send)
        elif path in HEALTH_PATHS or path == "/metrics":
            await health(scope, receive, send)
        else:
            await api(scope, receive, send)

    return app


async def ensure_admin(config: ManagerProcessConfig, tokens: NavigatorTokens) -> None:
    """Create the first token; its only copy is in the directory."""
    path = config.admin_token_path
    if path.exists() and tokens.find(path.read_text().strip()) is not None:
        return
    text, _ = await tokens.create(kind=ADMIN, access=EVERYTHING)
    write_private(path, f"{text}\n".encode())
