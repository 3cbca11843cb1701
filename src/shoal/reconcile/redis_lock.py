"""The lock of an election in Redis: expiry by Redis' own clock, no write to the cluster for a renewal, and a fencing
number that the API server checks.

Redis says who may lead; it cannot keep a leader that was paused from writing after its time. The API server can: it
compares the fence of each write with a Lease, in the transaction of the write. So whoever wins in Redis first writes
its name and its number into that Lease, by compare-and-swap, and leads only when this is done. From that commit on
nothing of the leader before it gets through, and nothing of the new one can have happened earlier.

The number rises with every term and is at least one above the Lease's, so it goes on rising when Redis has lost its
memory; a leader of before is then fenced off like any other. What is not held in Redis any more cannot be turned into a
term: each step of taking over asks Redis again whether the lock is still ours.

The Lease shows who leads and since when, not each renewal. All candidates of a lock must use the same kind of lock.
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

# A record is a hash with a time to live; the number of the last term stays. ARGV: the version it must have (empty: it
# must not exist), holder, the number of the Lease, milliseconds to live, then the fields to set. 0 when it is not so.
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
_TRIES = 3  # of writing the Lease, when others write to it at the same moment


class RedisLock:
    """A ``Lock``. Give it a client without a fence. ``scope`` names the cluster: several may share one Redis.
    ``new_id`` makes text that never comes again."""

    def __init__(
        self, redis: Redis, client: Client, namespace: str, name: str, *, scope: str, new_id: Callable[[], str]
    ) -> None:
        self.namespace = namespace
        self.name = name
        self._redis = redis
        self._lease = LeaseLock(client, namespace, name)
        self._new_id = new_id
        record = f"shoal:lock:{{{scope}/{namespace}/{name}}}"  # braces: one node of a Redis cluster has both
        self._keys = (record, f"{record}:number")
        self._take = redis.register_script(_TAKE)
        self._renew = redis.register_script(_RENEW)
        self._release = redis.register_script(_RELEASE)
        self._term = ("", 0)  # holder and number of the term that this lock has begun and not ended

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
        """Win in Redis, then make it so in the Lease."""
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
                continue  # by a leader that was faster, or by someone who changed a label: asking again tells
            except (ApiError, TransportError):
                await self._drop(expected)
                raise
            self._term = (taken.holder, number)
            return taken
        await self._drop(expected)
        raise Conflict(f"the lease {self.namespace}/{self.name} is being written by others")

    async def _extend(self, record: LockRecord) -> LockRecord:
        # Reading is cheap. A leader whose name is not in the Lease any more could hold the lock and write nothing.
        lease = await self._lease.get()
        if lease is None or (lease.holder, lease.transitions) != self._term:
            raise Conflict(f"the lease {self.namespace}/{self.name} does not say that {record.holder} leads")
        renewed = replace(record, version=self._new_id())
        if not await self._ask(self._renew, record.version, record.lease_s * 1000, *_fields(renewed)):
            raise self._refused(record.version)
        return renewed

    async def _end(self, record: LockRecord) -> LockRecord:
        """The Lease first: who takes over then finds nobody writing to it."""
        ended, self._term = self._term, ("", 0)
        lease = await self._lease.get()
        if lease is not None and (lease.holder, lease.transitions) == ended:
            with suppress(Conflict):  # then it is someone else's already
                await self._lease.update(replace(record, version=lease.version))
        if not await self._ask(self._release, record.version):
            raise self._refused(record.version)
        return replace(record, version="")

    async def _drop(self, version: str) -> None:
        """Give back what could not be used; it runs out by itself otherwise."""
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
        return Conflict(f"the lock {self._keys[0]} has run out or is held by another")

    def _away(self, error: RedisError) -> TransportError:
        return TransportError(f"Redis did not answer for the lock {self._keys[0]}: {error}")


def _fields(record: LockRecord) -> tuple[str | int, ...]:
    """All but the number, which Redis gives."""
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
