"""Client of Envoy's admin interface on its Unix socket: HTTP/1.1, one connection per request."""

from __future__ import annotations

from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.http1.dial import HttpAddress, fetch
from shoal.base.http1.errors import TransportError
from shoal.base.http1.limits import AnswerLimits, Deadlines
from shoal.base.http1.messages import request_bytes

_CONNECT_S = 5.0
_TIME = Deadlines(total_s=5.0)
_LIMITS = AnswerLimits(body_bytes=256 * 1024 * 1024)  # a dump of the whole configuration
_ACTIVE = r"^http\.[^.]+\.downstream_rq_active$"


class Admin:
    def __init__(self, socket: Path, *, clock: Clock) -> None:
        self._address = HttpAddress(socket_path=str(socket))
        self._clock = clock

    async def get(self, target: str) -> bytes | None:
        """The body of a good answer; None when Envoy is not there or refuses."""
        return await self._ask("GET", target)

    async def post(self, target: str) -> bool:
        return await self._ask("POST", target) is not None

    async def active_requests(self) -> int:
        """The number of active requests; 0 also if Envoy does not answer."""
        body = await self.get(f"/stats?filter={_ACTIVE}") or b""
        return sum(int(line.rpartition(b":")[2]) for line in body.splitlines() if b":" in line)

    async def _ask(self, method: str, target: str) -> bytes | None:
        data = request_bytes(method, target, [("host", "admin"), ("connection", "close")], b"")
        try:
            reply = await fetch(
                self._address, data, clock=self._clock, connect_s=_CONNECT_S, deadlines=_TIME, limits=_LIMITS
            )
        except TransportError:
            return None
        return reply.body if reply.status == 200 else None
