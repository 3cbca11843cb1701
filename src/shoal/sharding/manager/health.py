"""Checks the health of workers: by the probe of their ShardConfig and by their own reports.

The Lease shows whether a worker is alive; this check finds workers that are alive but cannot work. A shard is unhealthy
after ``failureThreshold`` failures in a row; one success resets the count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import TransportError
from shoal.base.http1.messages import request_bytes
from shoal.base.logs import get_logger
from shoal.crds.shard import ConfigSpec, ShardHealthCheck, read_config, seconds
from shoal.kube.labels import from_set
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.leases import read_lease
from shoal.sharding.manager.memory import ManagerMemory, ShardHealth
from shoal.sharding.manager.observed import ManagerInformers
from shoal.sharding.model import CONFIG_LABEL

log = get_logger("sharding.health")

Probe = Callable[[str, int, str, float], Awaitable[str]]  # host, port, path, seconds -> problem; empty: healthy

_AT_ONCE = 32
_PACE_S = 0.25


async def http_probe(host: str, port: int, path: str, timeout_s: float, *, clock: Clock) -> str:
    """GET; only the status of the response counts."""
    address = HttpAddress(host, port)
    try:
        request = request_bytes("GET", path, [("host", host), ("connection", "close"), ("user-agent", "shard-manager")])
        async with within(clock, timeout_s):
            connection = await dial(address, clock=clock)
            try:
                status = (await connection.stream(request)).status
            finally:
                connection.abort()
    except TimeoutError:
        return f"no answer: {address} did not answer within {timeout_s:g} s"
    except (TransportError, ValueError) as error:
        return f"no answer: {error}"
    return "" if 200 <= status < 300 else f"answered HTTP/1.1 {status}"


class HealthMonitor:
    """Runs while this manager leads. Calls ``wake`` with the config of a shard whose health changed."""

    name = "sharding/health"

    def __init__(
        self,
        sources: ManagerInformers,
        memory: dict[ObjectKey, ManagerMemory],
        *,
        clock: Clock,
        probe: Probe,
        wake: Callable[[ObjectKey], None],
    ) -> None:
        self._sources = sources
        self._memory = memory
        self._clock = clock
        self._probe = probe
        self._wake = wake
        self._due_s: dict[ObjectKey, float] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        while not self._stopping.is_set():
            now_s = self._clock.monotonic()
            for key in self._sources.configs.cache.keys():
                obj = self._sources.configs.cache.get(key)
                if obj is not None and self._due_s.get(key, 0.0) <= now_s:
                    spec = read_config(obj)
                    self._due_s[key] = now_s + seconds(spec.health_check_interval)
                    await self.check(key, spec)
            await self._clock.sleep(_PACE_S)

    def stop(self) -> None:
        self._stopping.set()

    async def check(self, key: ObjectKey, spec: ConfigSpec) -> None:
        """Check every shard of a config once."""
        limit = asyncio.Semaphore(_AT_ONCE)
        leases = self._sources.leases.cache.select(from_set({CONFIG_LABEL: key.name}), namespace=key.namespace)

        async def one(obj: Obj) -> None:
            async with limit:
                await self._check_one(key, spec, obj)

        await asyncio.gather(*map(one, leases))

    async def _check_one(self, key: ObjectKey, spec: ConfigSpec, obj: Obj) -> None:
        lease = read_lease(obj)
        if not lease.held:
            return
        wrong = "" if lease.report.healthy else lease.report.message or "its health check reports an error"
        if not wrong and spec.health_check is not None:
            wrong = await self._ask(key, lease.shard, spec.health_check)
        memory = self._memory.setdefault(key, ManagerMemory())
        health = memory.health.setdefault(lease.shard, ShardHealth())
        before = health.errors
        health.errors = health.errors + 1 if wrong else 0
        health.message = wrong
        health.checked_at = format_time(self._clock.wall_s())
        threshold = spec.health_check.failure_threshold if spec.health_check is not None else 3
        if (before >= threshold) != (health.errors >= threshold):
            log.info("the health of a shard changed", shard=lease.shard, wrong=wrong)
            self._wake(key)

    async def _ask(self, key: ObjectKey, shard: str, check: ShardHealthCheck) -> str:
        pod = self._sources.pods.cache.get(ObjectKey(key.namespace, shard))
        address = ((pod or {}).get("status") or {}).get("podIP", "")
        if not address:
            return ""  # not a pod of the manager: only its Lease is known
        return await self._probe(address, check.port, check.path, seconds(check.timeout))
