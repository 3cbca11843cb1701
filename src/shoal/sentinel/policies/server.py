"""Runs the rate-limit service on a Unix socket for Envoy. The first request connects to Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from envoy.service.ratelimit.v3 import rls_pb2_grpc
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.sentinel.policies.limits_service import REDIS_S, Counters, LimitsService, StrictLimits

_STOP_S = 1.0
_CONNECTIONS = 16
_OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", 10_000)]


def strict_redis(url: str) -> Redis:
    """A client for strict limits. If all connections are in use, a request waits for one within its timeout. A dead
    connection is replaced once, without delay."""
    retry = Retry(NoBackoff(), 1)
    pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=None, retry=retry)
    return Redis.from_pool(pool)


@asynccontextmanager
async def serving_limits(
    socket: str, redis: Counters | None, *, clock: Clock, metrics: Metrics, timeout_s: float = REDIS_S
) -> AsyncIterator[None]:
    """Entered when Envoy can connect."""
    server = grpc.aio.server(options=_OPTIONS)
    service = LimitsService(StrictLimits(redis, clock=clock, timeout_s=timeout_s), metrics=metrics)
    rls_pb2_grpc.add_RateLimitServiceServicer_to_server(service, server)
    async with _started(server, socket):
        yield


@asynccontextmanager
async def _started(server: grpc.aio.Server, socket: str) -> AsyncIterator[None]:
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_S)
