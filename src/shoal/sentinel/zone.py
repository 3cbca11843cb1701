"""In which zone of its region a gateway stands: what its node is labelled with."""

from __future__ import annotations

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.client import Client, TransportError, builtin
from shoal.errors import ApiError
from shoal.sentinel.config import SentinelConfig

log = get_logger("sentinel")

LABEL = "topology.kubernetes.io/zone"
_WAIT_S = 3.0


async def find_zone(client: Client, config: SentinelConfig, *, known: str, clock: Clock) -> str:
    """As configured, else as its node says, else as it was ``known``; empty where zones are not looked at."""
    if config.zone or not config.node:
        return config.zone
    try:
        async with within(clock, _WAIT_S):
            node = await client.of(builtin("nodes")).get(config.node)
    except (ApiError, TransportError, TimeoutError) as error:
        log.warning("the zone of the node is not known now", node=config.node, reason=str(error) or "no answer")
        return known
    return str((node["metadata"].get("labels") or {}).get(LABEL) or "")
