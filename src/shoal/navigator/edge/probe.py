"""Notices an API server that hangs. It breaks no watch, so nothing else would say that what is known grows old."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.client import Client, TransportError
from shoal.client.reach import Outage
from shoal.errors import ApiError

PROBE_S = 10.0  # without an answer to any request before one is asked for, and for that answer


class HangProbe:
    """``hangs`` is called with the reason as often as there is no answer, ``answers`` when there is one again."""

    def __init__(
        self,
        client: Client,
        outage: Outage,
        *,
        clock: Clock,
        hangs: Callable[[str], None],
        answers: Callable[[], None],
    ) -> None:
        self._client = client
        self._outage = outage
        self._clock = clock
        self._hangs = hangs
        self._answers = answers

    async def run(self) -> None:
        """Until cancelled."""
        hanging = False
        while True:
            await self._clock.sleep(PROBE_S)
            if not hanging and (self._outage.unheard_s < PROBE_S or self._outage.problem()):
                continue
            try:
                async with within(self._clock, PROBE_S):
                    await self._client.request("GET", "/version", retry=False)
            except TimeoutError:
                hanging = True
                self._hangs(f"the API server has not answered for {PROBE_S:g} s")
            except (ApiError, TransportError):  # which the watches have seen too
                hanging = False
            else:
                if hanging:
                    hanging = False
                    self._answers()
