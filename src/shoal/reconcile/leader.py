"""Leader election: one of several candidates leads, as long as it renews a lease.

The leader counts from *sending* a renewal, on its own monotonic clock, and stops when ``renew_deadline_s`` pass without
a successful one. A candidate counts from when it *saw* the record change, and takes over when ``lease_s`` pass without
a change. No process reads another's clock, so skew does no harm: as long as ``renew_deadline_s`` is below ``lease_s``,
the leader has stopped before the next one starts. Each term has a number (``leaseTransitions``) that only rises: with
holder and lease it forms the fence that writes carry.

``Lock`` is the interface: a record with compare-and-swap. ``LeaseLock`` keeps it in a Lease object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.settings import setting
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import Client, Fence, LostLease, TransportError, builtin
from shoal.errors import AlreadyExists, ApiError, ConfigError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time

Lead = Callable[[], Coroutine[Any, Any, None]]

log = get_logger("reconcile.leader")

_JITTER = 0.2  # candidates do not all try at the same moment
_AFTER_FAILURE_S = 1.0  # retry delay of a failed renewal: the deadline is near
_RELEASE_BUDGET_S = 3.0
_RELEASED_S = 1  # duration of a released lease, for clients that look only at the duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """The content of a lock. ``version`` is the lock's token for compare-and-swap."""

    holder: str = ""  # empty: released
    lease_s: int = 0
    acquired_at: str = ""
    renewed_at: str = ""
    transitions: int = 0
    version: str = ""


class Lock(Protocol):
    """A record that one candidate at a time can change. Errors are ``ApiError`` or ``TransportError``."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def get(self) -> LockRecord | None:
        """The current record; None if there is none."""

    async def create(self, record: LockRecord) -> LockRecord:
        """Raises ``AlreadyExists`` if another candidate was faster."""

    async def update(self, record: LockRecord) -> LockRecord:
        """Raises ``Conflict`` if the record is no longer at ``record.version``."""


class LeaseLock:
    """The record in a Lease. Give it a client without a fence."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._leases = client.of(builtin("leases", "coordination.k8s.io"))
        self.namespace = namespace
        self.name = name
        self._seen: Obj = {}  # the object last read or written, to keep fields of other writers

    async def get(self) -> LockRecord | None:
        try:
            return self._record(await self._leases.get(self.name, self.namespace))
        except NotFound:
            return None

    async def create(self, record: LockRecord) -> LockRecord:
        about = {"name": self.name, "namespace": self.namespace}
        return self._record(await self._leases.create({"metadata": about, "spec": _spec(record)}))

    async def update(self, record: LockRecord) -> LockRecord:
        about = {**self._seen.get("metadata", {}), "name": self.name, "namespace": self.namespace}
        about["resourceVersion"] = record.version
        spec = {**self._seen.get("spec", {}), **_spec(record)}
        return self._record(await self._leases.replace({**self._seen, "metadata": about, "spec": spec}))

    def _record(self, lease: Obj) -> LockRecord:
        self._seen = lease
        spec = lease.get("spec") or {}
        return LockRecord(
            holder=spec.get("holderIdentity") or "",
            lease_s=spec.get("leaseDurationSeconds") or 0,
            acquired_at=spec.get("acquireTime") or "",
            renewed_at=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
            version=lease["metadata"]["resourceVersion"],
        )


def _spec(record: LockRecord) -> Obj:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.lease_s,
        "acquireTime": record.acquired_at,
        "renewTime": record.renewed_at,
        "leaseTransitions": record.transitions,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionConfig:
    """The timings of an election. All candidates of a lock should use the same."""

    lease_s: int = setting(15, doc="seconds without a renewal after which another candidate takes over")
    renew_deadline_s: float = setting(10.0, doc="seconds without a renewal after which the leader stops")
    retry_s: float = setting(5.0, doc="seconds between renewals, and between attempts of candidates")

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * (1 + _JITTER) < self.renew_deadline_s < self.lease_s:
            raise ConfigError(
                f"leader election: lease_s ({self.lease_s}) must exceed renew_deadline_s ({self.renew_deadline_s}), "
                f"which must exceed retry_s ({self.retry_s}) by more than a fifth"
            )


class Elector:
    """One candidate. ``identity`` must be unique to this process and run, not to the machine."""

    def __init__(
        self,
        lock: Lock,
        identity: str,
        *,
        clock: Clock,
        random: Callable[[], float],
        config: ElectionConfig | None = None,
    ) -> None:
        if not identity or ";" in identity:
            raise ConfigError(f"leader election: identity is {identity!r}: use text without semicolons")
        self._lock = lock
        self._identity = identity
        self._clock = clock
        self._random = random
        self._config = config or ElectionConfig()
        self._record: LockRecord | None = None  # as last seen
        self.failure = ""  # why the last attempt failed; empty: it did not
        self._observed_s = 0.0  # monotonic time at which this content of _record was first seen
        self._log = log.bind(lease=f"{lock.namespace}/{lock.name}", identity=identity)
        self.fence = Fence(lock.namespace, lock.name, identity, clock=clock)
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()  # set when a term ended by losing the lease, not by releasing it

    @property
    def leader(self) -> str:
        """The identity of the leader that this candidate last saw."""
        return self._record.holder if self._record is not None else ""

    async def run(self, lead: Lead) -> None:
        """Wait to be elected, then ``keep`` the lease while ``lead`` runs."""
        await self.acquire()
        await self.keep(lead)

    async def keep(self, lead: Lead) -> None:
        """Run ``lead`` while leading and release the lease when it has ended. If the lease is lost, cancel ``lead`` and
        raise ``LostLease`` once it has stopped."""
        tasks = OwnedTasks()
        try:
            work = tasks.start(lead(), name="leader/work", awaited=True)
            hold = tasks.start(self.hold(), name="leader/hold", awaited=True)
            try:
                await asyncio.wait({work, hold}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_all(work)  # the lease is held until all work has stopped
                await cancel_all(hold)
            if not work.cancelled():
                work.result()
            else:
                hold.result()
        finally:
            await self.release()

    async def acquire(self) -> None:
        """Return when this candidate leads."""
        while not await self._attempt():
            await self._clock.sleep(self._retry_s())

    async def hold(self) -> None:
        """Renew until the lease is lost; then raise ``LostLease``."""
        pause_s = self._retry_s()
        while True:
            await self._clock.sleep(min(pause_s, self.fence.remaining_s))
            if not self.fence.held:
                break
            pause_s = self._retry_s()
            try:
                await self._renew()
            except (ApiError, TransportError, TimeoutError) as error:
                pause_s = min(pause_s, _AFTER_FAILURE_S)
                self._tell("renewing the lease failed", error)
        self._end_term()
        self.lost.set()
        self._log.warning("lost the lease", leader=self.leader)
        raise LostLease(f"the lease {self._lock.namespace}/{self._lock.name} was lost")

    async def release(self) -> None:
        """Release the lease, if it is held, so that the next candidate need not wait. Call it when all work that needs
        the lease has stopped."""
        held, record = self.fence.held, self._record
        self._end_term()
        if not held or record is None:
            return
        gone = replace(record, holder="", lease_s=_RELEASED_S, renewed_at=self._now())
        try:
            async with within(self._clock, _RELEASE_BUDGET_S):
                self._observe(await self._lock.update(gone))
            self._log.info("released the lease")
        except (ApiError, TransportError, TimeoutError) as error:
            self._log.warning("releasing the lease failed; it will expire", reason=str(error))

    # single attempts

    async def _attempt(self) -> bool:
        """Try to become leader once."""
        try:
            async with within(self._clock, self._config.renew_deadline_s):
                return await self._try_acquire()
        except (AlreadyExists, Conflict):
            self._log.debug("another candidate was faster")
        except (ApiError, TransportError, TimeoutError) as error:
            self._tell("acquiring the lease failed", error)
        return False

    def _tell(self, what: str, error: Exception) -> None:
        """Once for each reason; of an outage only the end of the term, where the client has logged it."""
        reason = str(error) or type(error).__name__
        known = reason == self.failure or (isinstance(error, TransportError) and error.told)
        (self._log.debug if known else self._log.warning)(what, reason=reason)
        self.failure = reason

    async def _try_acquire(self) -> bool:
        record = await self._lock.get()
        if record is not None:
            self._observe(record)
            # our own identity: an attempt of this run whose response was lost or too late
            if record.holder not in ("", self._identity) and not self._expired(record):
                return False
        sent_s = self._clock.monotonic()
        now = self._now()
        wanted = LockRecord(
            holder=self._identity,
            lease_s=self._config.lease_s,
            acquired_at=now,
            renewed_at=now,
            # a new term, even after our own: writes of the previous term must not pass as this one's
            transitions=record.transitions + 1 if record is not None else 0,
            version=record.version if record is not None else "",
        )
        taken = await (self._lock.create(wanted) if record is None else self._lock.update(wanted))
        self._observe(taken)
        self.fence.begin(taken.transitions, sent_s + self._config.renew_deadline_s)
        if not self.fence.held:
            return False  # the response took too long: the lease may be about to expire
        self.lost.clear()
        self.leading.set()
        self._log.info("leading", term=taken.transitions)
        return True

    def _expired(self, record: LockRecord) -> bool:
        """Whether the lease has expired, counted from when we first saw the current record."""
        lease_s = max(record.lease_s, self._config.lease_s)
        return self._clock.monotonic() >= self._observed_s + lease_s

    async def _renew(self) -> None:
        """Try to renew once. If another candidate holds the lease, the term ends."""
        assert self._record is not None
        async with within(self._clock, self.fence.remaining_s):
            sent_s = self._clock.monotonic()
            try:
                renewed = await self._lock.update(replace(self._record, renewed_at=self._now()))
            except (Conflict, NotFound):
                # written by another candidate, a user, or our own renewal whose response was lost
                current = await self._lock.get()
                if current is None or (current.holder, current.transitions) != (self._identity, self._term):
                    if current is not None:
                        self._observe(current)
                    self.fence.end()
                    return
                self._observe(current)
                sent_s = self._clock.monotonic()
                renewed = await self._lock.update(replace(current, renewed_at=self._now()))
        self._observe(renewed)
        self.fence.extend(sent_s + self._config.renew_deadline_s)

    @property
    def _term(self) -> int:
        return self._record.transitions if self._record is not None else -1

    def _observe(self, record: LockRecord) -> None:
        self.failure = ""
        known, self._record = self._record, record
        # a new version alone may be a label or annotation, not a renewal by the holder
        if known is None or replace(record, version="") != replace(known, version=""):
            self._observed_s = self._clock.monotonic()

    def _end_term(self) -> None:
        self.fence.end()
        self.leading.clear()

    def _now(self) -> str:
        return format_micro_time(self._clock.wall_s())

    def _retry_s(self) -> float:
        return self._config.retry_s * (1.0 + _JITTER * self._random())
