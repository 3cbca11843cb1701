"""Builds a relay and its ASGI application.

relay = RelayServer(url=…, ca=…, token=…, name=…, clock=…, random=…)
app = relay.app
await relay.run()                     # until cancelled; agents' streams end with the listener
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.base.clock import Clock
from shoal.base.metrics import PROCESS, Metrics
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import run_all
from shoal.control.relay.config import RelayConfig
from shoal.control.relay.forwarding import Forwarding
from shoal.control.relay.link import Link
from shoal.control.relay.metrics import RelayMetrics
from shoal.control.relay.outbox import Outbox
from shoal.control.relay.roster import Roster
from shoal.control.relay.service import CredentialsInterceptor, RelayCalls
from shoal.control.relay.upstream import Upstream
from shoal.control.service.wiring import make_cluster_app
from shoal.sync.keys import Place, StreamKind

DEFAULTS = RelayConfig()


class RelayServer:
    """One per process. ``token`` is asked for each call."""

    def __init__(
        self,
        *,
        url: str,
        ca: str,
        token: Callable[[], str],
        name: str,
        software: str = "",
        clock: Clock,
        random: Callable[[], float],
        config: RelayConfig = DEFAULTS,
        metrics: Metrics = PROCESS,
    ) -> None:
        counts, roster = RelayMetrics(metrics), Roster()
        self._outbox = Outbox(config.reports)
        self._clock = clock
        self._link = Link(url, ca, token, call_s=config.call_s, correlation=name)
        self.upstreams = {
            stream: Upstream(
                stream, self._link, roster, config, counts, name=name, software=software, clock=clock, random=random
            )
            for stream in StreamKind
        }
        self._forwarding = Forwarding(
            self._link, roster, self._outbox, counts, connected=lambda: self.connected, joined=self._fence, clock=clock
        )
        for upstream in self.upstreams.values():
            upstream.changed = self._forwarding.look
        calls = RelayCalls(self.upstreams, self._forwarding, config, counts, clock=clock, random=random)
        self.app = make_cluster_app(calls, CredentialsInterceptor(), read_max_bytes=config.read_max_bytes)

    @property
    def connected(self) -> bool:
        """Whether the control plane is there, as far as known."""
        return any(upstream.connected for upstream in self.upstreams.values())

    async def run(self) -> None:
        loops: dict[str, Run] = {f"relay/{stream}": upstream.run for stream, upstream in self.upstreams.items()}
        loops |= {f"relay-prune/{stream}": upstream.prune for stream, upstream in self.upstreams.items()}
        loops["relay-forward"] = self._forwarding.run
        try:
            await run_all({name: supervise(name, loop, clock=self._clock) for name, loop in loops.items()})
        finally:
            await self._link.close()

    def livez(self) -> tuple[bool, dict[str, str]]:
        return True, {"process": "ok"}

    def readyz(self) -> tuple[bool, dict[str, str]]:
        """Ready once connected for the first time; later outages do not matter, a relay exists to bridge them."""
        seen = all(upstream.region for upstream in self.upstreams.values())
        checks = {str(stream): upstream.reason or "ok" for stream, upstream in self.upstreams.items()}
        return seen, checks

    def status(self) -> dict[str, Any]:
        """Everything about this relay, for people."""
        return {
            "region": next((one.region for one in self.upstreams.values() if one.region), ""),
            "reportsWaiting": len(self._outbox),
            "streams": {
                str(stream): {"connected": upstream.connected, "reason": upstream.reason, **upstream.counts}
                for stream, upstream in self.upstreams.items()
            },
        }

    def _fence(self, place: Place, epoch: int) -> None:
        for upstream in self.upstreams.values():
            upstream.fence(place, epoch)
