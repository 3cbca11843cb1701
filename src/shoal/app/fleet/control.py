"""The control plane as a process: database, REST API and cluster service on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from random import Random

from shoal import __version__
from shoal.app.certificates import CertificateKeeper
from shoal.app.config import LOOPBACK
from shoal.app.fleet.config import ControlConfig, ControlOptions
from shoal.app.fleet.context_file import note_url
from shoal.app.fleet.navigator_folder import NavigatorFolder
from shoal.app.fleet.reloading import Reloading
from shoal.app.processes import hand_over_often
from shoal.app.public_address import warn
from shoal.base.asgi import Application, Receive, Scope, Send, serving
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.grants import grant_key
from shoal.base.ids import Ids
from shoal.base.logs import get_logger
from shoal.base.metrics import PROCESS
from shoal.base.outbound import OutboundCaller
from shoal.base.supervision import supervise
from shoal.base.tasks import beside, wait_first
from shoal.control.api.access import from_this_machine
from shoal.control.api.wiring import make_api
from shoal.control.checks.asking import CheckAsker
from shoal.control.checks.calls import WorkspaceCalls
from shoal.control.checks.delivery import NotificationSender
from shoal.control.checks.jobs import CheckJobs
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.checks.navigator import NavigatorQueries
from shoal.control.checks.runner import CheckRunner
from shoal.control.database.engine import Databases
from shoal.control.database.retention import Retention, run_retention
from shoal.control.database.sessions import Sessions
from shoal.control.database.tokens import ApiTokens
from shoal.control.domain.access import DEFAULT_WORKSPACE
from shoal.control.domain.fleet import Fleet
from shoal.control.secrets.wiring import open_sealer
from shoal.control.service.wiring import PATHS, ClusterServer
from shoal.dashboard.gate import PageGate
from shoal.dashboard.page import FleetPage
from shoal.dashboard.wiring import Dashboard
from shoal.errors import AlreadyExists, ServiceUnavailable

log = get_logger("control")

ADMIN = "admin"
_ROLLOUTS_S = 1.0  # for steps that are due by time
_FORGET_S = 600.0  # sessions that are over
_SWEEP_S = 5.0  # for deadlines, and for instances that wait for a placement


async def run_control(
    config: ControlConfig,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    reloading: Reloading[ControlOptions] | None = None,
) -> None:
    """Serve until ``stop``."""
    hand_over_often()
    clock, ids, random = RealClock(), Ids(), Random()
    async with AsyncExitStack() as stack:
        keeper = CertificateKeeper(config.pki_dir, clock=clock, metrics=PROCESS)
        tls = keeper.keep_tls("server", lambda pki: pki.ensure_server(config.certificate_hosts))
        authorities = config.pki_dir / "ca.crt"
        databases = await Databases.open(
            config.databases, clock=clock, ids=ids, workspaces=config.workspaces, events=config.events
        )
        stack.push_async_callback(databases.close)
        tokens = ApiTokens(databases, clock)
        sessions = Sessions(databases, tokens, clock)
        sealer = await open_sealer(config.master_key, config.dir, clock=clock)
        stack.push_async_callback(sealer.close)
        fleet = Fleet(databases, ids, sealer)
        await ensure_admin(config, fleet, tokens)
        note_url(config.dir, config.public_url, config.url)
        service = ClusterServer(databases, tokens, sealer, clock=clock, random=random.random, config=config.service)
        if reloading is not None:
            reloading.apply = lambda options: service.use(options.service)
        calls = OutboundCaller(clock=clock, agent="shoal-control")
        counts = CheckMetrics(PROCESS)
        outside = WorkspaceCalls(databases, sealer, calls)
        navigator = NavigatorFolder(config.navigator, config.navigator_beside)
        asker = CheckAsker(outside, NavigatorQueries(navigator, calls), CheckJobs(databases, ids))
        checks = CheckRunner(databases, asker, _after_check, clock=clock, metrics=counts)
        notifications = NotificationSender(databases, outside, clock=clock, metrics=counts)
        gate = PageGate(config.certificate_hosts)
        api = make_api(
            fleet, tokens, databases, clock=clock, metrics=PROCESS, urls=config.join_urls, ca=authorities.read_text,
            version=__version__, sealer=sealer, sessions=sessions, credential=gate.credential,
            page_url=lambda request: config.page_url if from_this_machine(request) else "",
        )  # fmt: skip
        key = grant_key(databases.fleet.signing_key)  # all control planes of the fleet have the same
        write_private(config.grant_key_path, f"{key.hex()}\n".encode())
        dashboard = Dashboard(
            fleet, tokens, sessions, databases, clock=clock, metrics=PROCESS, gate=gate, navigator=navigator,
            grant_key=key, new_id=ids.new_uid, version=__version__, broken=lambda: service.hub.broken,
        )  # fmt: skip
        page = dashboard.page

        async def served() -> None:
            await service.ready()
            async with AsyncExitStack() as served:
                await served.enter_async_context(
                    serving(
                        by_path(service.app, with_page(page, api)), host=config.host, port=config.port, clock=clock,
                        tls=tls, listening=config.listening,
                    )
                )  # fmt: skip
                if config.page is not None:
                    apart = serving(
                        with_page(page, api), host=LOOPBACK, port=config.page_port, clock=clock,
                        listening=config.page,
                    )  # fmt: skip
                    await served.enter_async_context(apart)
                on_ready()
                about = warn(config.host, config.join_urls, config.advertise_urls, authorities.read_text(), clock=clock)
                async with beside(about, name="public-address"):
                    await stop.wait()
                page.end_streams()
                api.end_streams()

        await wait_first(
            served(), service.run(),
            supervise("collector", service.freeze_kept_objects, clock=clock),
            supervise("retention", partial(run_retention, databases, Retention(), clock), clock=clock),
            supervise("sweep", partial(sweep_forever, fleet, tokens, sessions, clock), clock=clock),
            dashboard.run(),
            supervise("rollouts", partial(keep_rollouts, fleet, clock), clock=clock),
            supervise("certificates", keeper.run, clock=clock),
            supervise("control-checks", checks.run, clock=clock),
            supervise("control-notifications", notifications.run, clock=clock),
        )  # fmt: skip


async def _after_check(rollout_id: str) -> None:
    """Nothing more: the transaction of the answer has made the rollout due."""


async def sweep_forever(fleet: Fleet, tokens: ApiTokens, sessions: Sessions, clock: Clock) -> None:
    """Do periodic work until cancelled."""
    forgotten_s = float("-inf")
    while True:
        try:
            await tokens.save_used()
            await sessions.save_used()
            if clock.monotonic() - forgotten_s >= _FORGET_S:
                forgotten_s = clock.monotonic()
                await sessions.forget_old()
            await fleet.sweep()
        except ServiceUnavailable as error:
            log.warning("the sweep is delayed: the database is unavailable", reason=str(error))
        await clock.sleep(_SWEEP_S)


async def keep_rollouts(fleet: Fleet, clock: Clock) -> None:
    """Take the steps of rollouts that are due, until cancelled."""
    while True:
        try:
            await fleet.keep_rollouts()
        except ServiceUnavailable as error:
            log.warning("rollouts wait: the database is unavailable", reason=str(error))
        await clock.sleep(_ROLLOUTS_S)


def by_path(cluster: Application, others: Application) -> Application:
    """Route calls of agents and relays to ``cluster`` by path, all others to ``others``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PATHS):
            await cluster(scope, receive, send)
        else:
            await others(scope, receive, send)

    return app


def with_page(page: FleetPage, api: Application) -> Application:
    """The page, and the API for those who have logged in to it. Without TLS this is all that is served: no agent and
    no token comes in."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and page.serves(scope["path"]):
            await page(scope, receive, send)
        else:
            await api(scope, receive, send)

    return app


async def ensure_admin(config: ControlConfig, fleet: Fleet, tokens: ApiTokens) -> None:
    """A workspace to begin with, and a token of its administrator, whose only copy is in the directory."""
    await fleet.ensure_workspace(DEFAULT_WORKSPACE)
    path = config.admin_token_path
    if path.exists() and await tokens.authenticate(path.read_text().strip()) is not None:
        return
    try:
        text, _ = await tokens.create(kind="user", name=ADMIN, workspace_id=DEFAULT_WORKSPACE, role="admin")
    except AlreadyExists:
        row = await tokens.find("user", ADMIN, workspace_id=DEFAULT_WORKSPACE)
        text, _ = await tokens.rotate(row.id)
        log.warning("the administrator's token was missing; created a new one", path=str(path))
    write_private(path, f"{text}\n".encode())
