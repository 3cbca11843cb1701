"""A few requests to the demo app, through the gateway of each region, so that views of traffic show some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from shoal.app.demo.load import LoadTarget
from shoal.base.clock import Clock

INTERVAL_S = 1.0  # between two requests to a region
REQUESTS = 30  # to a region, before the addresses are asked for again: gateways come and go

Addresses = Callable[[], Awaitable[Mapping[str, str]]]
"""The addresses of the demo's gateways by region; none while it has none."""


async def send_trickle(addresses: Addresses, host: str, clock: Clock) -> None:
    """Send requests for ``host`` until cancelled. What comes of them is for the gateways to count."""
    while True:
        targets = [LoadTarget(address, host, clock) for address in (await addresses()).values()]
        try:
            for _ in range(REQUESTS):
                for target in targets:
                    await target.ask()
                await clock.sleep(INTERVAL_S)
        finally:
            for target in targets:
                await target.close()
