"""The zone of a gateway, from the label of its node."""

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
    """The configured zone, else the label of the node, else ``known`` if the node cannot be read."""
    if config.zone or not config.node:
        return config.zone
    try:
        async with within(clock, _WAIT_S):
            node = await client.of(builtin("nodes")).get(config.node)
    except (ApiError, TransportError, TimeoutError) as error:
        log.warning("reading the node's zone failed", node=config.node, reason=str(error) or "no answer")
        return known
    return str((node["metadata"].get("labels") or {}).get(LABEL) or "")
