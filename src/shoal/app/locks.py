"""The locks of elected components: Leases, or keys in Redis that are fenced by Leases (decision 0014)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.client import Client, builtin
from shoal.errors import ConfigError
from shoal.reconcile import LeaseLock, Lock

if TYPE_CHECKING:
    from redis.asyncio import Redis

_SCHEMES = ("redis", "rediss", "unix")
_ANSWER_S = 2.0  # a Redis that takes longer counts as away; the elector tries again until its deadline


def check_lock_url(url: str, shown: str) -> None:
    """Raise ``ConfigError`` unless it is a Redis URL; ``shown`` is the URL without its password."""
    try:
        parts = urlsplit(url)
        place = parts.path if parts.scheme == "unix" else parts.hostname
        valid = parts.scheme in _SCHEMES and bool(place) and (parts.port is None or parts.port > 0)
    except ValueError:  # the port is not a number
        valid = False
    if not valid:
        raise ConfigError(f"lock is {shown!r}: use redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH")


class ClusterLocks:
    """Makes the locks of one process. All candidates of a cluster must use the same kind."""

    def __init__(self, url: str, namespace: str, *, new_id: Callable[[], str]) -> None:
        """``url`` is that of a Redis; empty: Leases alone."""
        self._namespace = namespace
        self._new_id = new_id
        self._redis: Redis | None = _connected(url) if url else None

    async def lock(self, client: Client, name: str) -> Lock:
        """The lock of a component. ``client`` has no fence."""
        if self._redis is None:
            return LeaseLock(client, self._namespace, name)
        from shoal.reconcile.redis_lock import RedisLock

        # clusters that share a Redis differ in the uid of this namespace, which all candidates of one cluster read
        found = await client.of(builtin("namespaces")).get(self._namespace)
        scope = found["metadata"]["uid"]
        return RedisLock(self._redis, client, self._namespace, name, scope=scope, new_id=self._new_id)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()


def _connected(url: str) -> Redis:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # no retries here: a repeated script would not find the version that it expects, and the elector tries again
    return Redis.from_url(
        url, socket_connect_timeout=_ANSWER_S, socket_timeout=_ANSWER_S, retry=Retry(NoBackoff(), 0), protocol=2
    )
