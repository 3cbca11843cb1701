"""The lock of an election in Redis: expiry by Redis' own clock, no write to the cluster for a renewal, and a fencing
number that the API server checks.

Redis decides which candidate leads, but cannot stop a paused leader from writing after its lease. The API server can:
it compares the fence of each write with a Lease, in the transaction of the write. So the winner in Redis first writes
its identity and number into that Lease, by compare-and-swap, and leads only after that. From that commit on, writes of
the previous leader are refused, and the new leader has written nothing before.

The number rises with every term and is at least one above the Lease's, so it keeps rising when Redis has lost its data;
the previous leader is then fenced off as usual. A lock that is no longer held in Redis cannot become a term: each step
of taking over checks with Redis that the lock is still held.

The Lease shows the leader and the start of its term, not each renewal. All candidates of a lock must use the same kind
of lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from shoal.client import Client, TransportError
from shoal.errors import AlreadyExists, ApiError, Conflict
from shoal.reconcile.leader import LeaseLock, LockRecord

# A record is a hash with a time to live; the number of the last term stays. ARGV: the expected version (empty: it must
# not exist), holder, the number of the Lease, milliseconds to live, then the fields to set. Returns 0 on a mismatch.
_TAKE = """
local version = redis.call('HGET', KEYS[1], 'version')
if (version or '') ~= ARGV[1] then return 0 end
if version and redis.call('HGET', KEYS[1], 'holder') ~= ARGV[2] then return 0 end
local number = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[3])) + 1
redis.call('SET', KEYS[2], number)
redis.call('HSET', KEYS[1], 'transitions', number, unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return number
"""
_RENEW = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_TRIES = 3  # attempts to write the Lease against concurrent writers


class RedisLock:
    """A ``Lock``. Needs a client without a fence. ``scope`` names the cluster: several may share one Redis. ``new_id``
    returns unique text."""

    def __init__(
        self, redis: Redis, client: Client, namespace: str, name: str, *, scope: str, new_id: Callable[[], str]
    ) -> None:
        self.namespace = namespace
        self.name = name
        self._redis = redis
        self._lease = LeaseLock(client, namespace, name)
        self._new_id = new_id
        record = f"shoal:lock:{{{scope}/{namespace}/{name}}}"  # braces: a Redis cluster keeps both on one node
        self._keys = (record, f"{record}:number")
        self._take = redis.register_script(_TAKE)
        self._renew = redis.register_script(_RENEW)
        self._release = redis.register_script(_RELEASE)
        self._term = ("", 0)  # holder and number of the current term of this lock

    async def get(self) -> LockRecord | None:
        try:
            fields: Mapping[Any, Any] = await self._redis.hgetall(self._keys[0])
        except RedisError as error:
            raise self._away(error) from error
        return _record({_text(name): _text(value) for name, value in fields.items()}) if fields else None

    async def create(self, record: LockRecord) -> LockRecord:
        return await self._begin(record, expected="")

    async def update(self, record: LockRecord) -> LockRecord:
        if not record.holder:
            return await self._end(record)
        if (record.holder, record.transitions) == self._term:
            return await self._extend(record)
        return await self._begin(record, expected=record.version)

    async def _begin(self, record: LockRecord, *, expected: str) -> LockRecord:
        """Win in Redis, then write the term into the Lease."""
        for _ in range(_TRIES):
            lease = await self._lease.get()
            taken = replace(record, version=self._new_id())
            floor = -1 if lease is None else lease.transitions
            lives_ms = record.lease_s * 1000
            number = await self._ask(self._take, expected, record.holder, floor, lives_ms, *_fields(taken))
            if not number:
                raise self._refused(expected)
            expected, taken = taken.version, replace(taken, transitions=number)
            try:
                if lease is None:
                    await self._lease.create(replace(taken, version=""))
                else:
                    await self._lease.update(replace(taken, version=lease.version))
            except (AlreadyExists, Conflict):
                continue  # by a faster leader, or by a label change: reading again shows which
            except (ApiError, TransportError):
                await self._drop(expected)
                raise
            self._term = (taken.holder, number)
            return taken
        await self._drop(expected)
        raise Conflict(f"the lease {self.namespace}/{self.name} is being written by other candidates; try again")

    async def _extend(self, record: LockRecord) -> LockRecord:
        # Reading is cheap, and a leader whose identity is no longer in the Lease would hold the lock but could not
        # write.
        lease = await self._lease.get()
        if lease is None or (lease.holder, lease.transitions) != self._term:
            raise Conflict(f"the lease {self.namespace}/{self.name} does not name {record.holder} as the leader")
        renewed = replace(record, version=self._new_id())
        if not await self._ask(self._renew, record.version, record.lease_s * 1000, *_fields(renewed)):
            raise self._refused(record.version)
        return renewed

    async def _end(self, record: LockRecord) -> LockRecord:
        """Release the Lease first, so that the next leader finds no concurrent writer."""
        ended, self._term = self._term, ("", 0)
        lease = await self._lease.get()
        if lease is not None and (lease.holder, lease.transitions) == ended:
            with suppress(Conflict):  # another candidate already holds it
                await self._lease.update(replace(record, version=lease.version))
        if not await self._ask(self._release, record.version):
            raise self._refused(record.version)
        return replace(record, version="")

    async def _drop(self, version: str) -> None:
        """Release a lock that could not be used; otherwise it expires."""
        with suppress(TransportError):
            await self._ask(self._release, version)

    async def _ask(self, script: Callable[..., Any], *arguments: str | int) -> int:
        try:
            return int(await script(keys=self._keys, args=arguments))
        except RedisError as error:
            raise self._away(error) from error

    def _refused(self, expected: str) -> ApiError:
        if not expected:
            return AlreadyExists(f"the lock {self._keys[0]} is held")
        return Conflict(f"the lock {self._keys[0]} has expired or is held by another candidate")

    def _away(self, error: RedisError) -> TransportError:
        return TransportError(f"Redis did not respond for the lock {self._keys[0]}: {error}")


def _fields(record: LockRecord) -> tuple[str | int, ...]:
    """All fields but the number, which Redis assigns."""
    return (
        "holder", record.holder, "lease_s", record.lease_s, "acquired_at", record.acquired_at,
        "renewed_at", record.renewed_at, "version", record.version,
    )  # fmt: skip


def _record(fields: Mapping[str, str]) -> LockRecord:
    return LockRecord(
        holder=fields["holder"],
        lease_s=int(fields["lease_s"]),
        acquired_at=fields["acquired_at"],
        renewed_at=fields["renewed_at"],
        transitions=int(fields["transitions"]),
        version=fields["version"],
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
