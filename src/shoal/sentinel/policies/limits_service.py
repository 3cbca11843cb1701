"""Counts strict limits for Envoy over a Unix socket: the rate-limit service.

Redis has a few milliseconds to answer. If it does not, this service returns an error and the filter fails open or
closed, as its policy defines; the same happens if this service is down. After a failure Redis is not used for a short
time, so that a hanging Redis delays only the first requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from redis.exceptions import RedisError

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.sentinel.metrics import LimitMetrics
from shoal.sentinel.policies.limits import (
    TAKE,
    LimitCheck,
    LimitDecision,
    judgements,
    limit_headers,
    read_descriptor,
    script_arguments,
    tightest,
)
from shoal.sentinel.policies.wire import BadRule

log = get_logger("sentinel.limits")

REDIS_S = 0.015  # below the 20 ms that Envoy waits
_REST_S = 0.5  # pause after Redis did not answer
_OK, _OVER = rls_pb2.RateLimitResponse.Code.OK, rls_pb2.RateLimitResponse.Code.OVER_LIMIT

_question = lru_cache(maxsize=10_000)(read_descriptor)


class Counters(Protocol):
    """The methods used of ``redis.asyncio.Redis``."""

    def register_script(self, script: str) -> Any: ...


class LimitsUnavailable(Exception):
    """Redis did not answer in time, or is not asked because it failed moments ago."""


class StrictLimits:
    """Counts strict limits in Redis. Without ``redis`` no strict limit can be checked."""

    def __init__(self, redis: Counters | None, *, clock: Clock, timeout_s: float = REDIS_S) -> None:
        self._take = redis.register_script(TAKE) if redis is not None else None
        self._clock = clock
        self._timeout_s = timeout_s
        self._rests_until = 0.0

    async def judge(self, questions: Sequence[LimitCheck], costs: Sequence[int]) -> list[LimitDecision]:
        """Decide all checks, or raise LimitsUnavailable. A check without a key (an unknown client) is refused."""
        unknown = [LimitDecision(one.limit, one.window_s, False, retry_s=-1.0) for one in questions if not one.key]
        if unknown:
            return unknown
        if self._take is None:
            raise LimitsUnavailable("redis_url is not set")
        if self._clock.monotonic() < self._rests_until:
            raise LimitsUnavailable("Redis failed moments ago")
        keys = [question.key for question in questions]
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._take(keys=keys, args=script_arguments(questions, costs))
        except (TimeoutError, RedisError, OSError) as error:
            self._rests_until = self._clock.monotonic() + _REST_S
            log.warning("counting strict limits failed", reason=repr(error))
            raise LimitsUnavailable(str(error)) from error
        return judgements(questions, answer)


class LimitsService(rls_pb2_grpc.RateLimitServiceServicer):  # type: ignore[misc]
    """``ShouldRateLimit`` of the rate-limit service."""

    def __init__(self, limits: StrictLimits, *, metrics: Metrics) -> None:
        self._limits = limits
        verdicts = LimitMetrics(metrics).verdicts
        self._allowed, self._limited, self._failed = map(verdicts.labels, ("allowed", "limited", "failed"))

    async def ShouldRateLimit(
        self, request: rls_pb2.RateLimitRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> rls_pb2.RateLimitResponse:
        try:
            asked = [
                _question(tuple((entry.key, entry.value) for entry in descriptor.entries))
                for descriptor in request.descriptors
            ]
            if not asked:
                raise BadRule("the request has no descriptors")
            judged = await self._limits.judge(asked, _costs(request))
        except BadRule as error:
            self._failed.inc()
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LimitsUnavailable as error:
            self._failed.inc()
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        told = tightest(judged)
        (self._allowed if told.allowed else self._limited).inc()
        return response(told)


def _costs(request: rls_pb2.RateLimitRequest) -> list[int]:
    usual = request.hits_addend or 1
    return [
        descriptor.hits_addend.value if descriptor.HasField("hits_addend") else usual
        for descriptor in request.descriptors
    ]


def response(told: LimitDecision) -> rls_pb2.RateLimitResponse:
    """The answer to Envoy; its headers show the tightest limit only."""
    return rls_pb2.RateLimitResponse(
        overall_code=_OK if told.allowed else _OVER,
        response_headers_to_add=[
            base_pb2.HeaderValue(key=name, value=value) for name, value in limit_headers(told).items()
        ],
    )
