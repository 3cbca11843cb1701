"""Closes the connections of clients while a gateway is cut off from its API server and others serve.

krane takes a gateway that is silent for 30 s out of its Service, and 30 s later routes wait for it no more, so
instances that only it leads to may go. Connections that stay open would go on using its old routes. So a gateway that
could not write its counters for that long, and knows of other replicas, has Envoy close each connection after its next
answer (GOAWAY with HTTP/2), for long enough that krane has noticed and waited. Requests under way are answered.

It ends after that time, and while there is no other replica it never begins: in an outage of the API server, which all
gateways are cut off by, clients connect anew once.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.sentinel.admin import Admin

SILENT_S = 30.0  # as krane has it
UNTIL_S = 75.0  # krane notices up to 10 s later, and waits 30 s for open connections
LOOK_S = 2.0

log = get_logger("sentinel.cut_off")


def closes_connections(silent_s: float, replicas: int) -> bool:
    """Whether connections are closed. ``replicas`` are those of this gateway, itself among them, as far as it knows."""
    return SILENT_S <= silent_s < UNTIL_S and replicas > 1


class CutOff:
    """``run`` it as a task. ``silent_s`` is how long no counters could be written."""

    def __init__(
        self, admin: Admin, *, clock: Clock, silent_s: Callable[[], float], replicas: Callable[[], int]
    ) -> None:
        self._admin = admin
        self._clock = clock
        self._silent_s = silent_s
        self._replicas = replicas
        self._closes = False

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        closes = closes_connections(self._silent_s(), self._replicas())
        if closes and not self._closes:
            log.warning("cut off from the API server: connections are closed, so that clients find other replicas")
        if closes:  # each time: Envoy may have been started again
            self._closes = True
            await self._admin.post("/healthcheck/fail")
        elif self._closes and await self._admin.post("/healthcheck/ok"):
            self._closes = False
