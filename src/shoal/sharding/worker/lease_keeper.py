"""The worker's Lease: acquired, renewed with every heartbeat, released in the end.

One write renews the Lease, reports load and health, and acknowledges moves. The worker counts its time from sending the
write, so that it stops before the manager may reassign its slots.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.client import Client, Fence, TransportError, builtin
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time
from shoal.sharding.leases import (
    ACKS,
    LEAVING,
    MANAGER,
    REPORT,
    Ack,
    WorkerReport,
    WorkTime,
    encode_acks,
    encode_report,
)
from shoal.sharding.model import CONFIG_LABEL, SHARD_LABEL, lease_name

log = get_logger("shard.worker")

_AFTER_FAILURE = 0.25  # of the heartbeat: a renewal that failed is tried again this soon
_RELEASE_S = 3.0


class TermEnded(Exception):
    """The Lease has another holder or has expired: everything stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Duration and renewal interval of the Lease; both follow the ShardConfig."""

    lease_s: float = 15.0
    heartbeat_s: float = 3.0


class LeaseKeeper:
    """``acquire`` begins a term, ``renew`` keeps it until it is lost, ``release`` ends it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        config: str,
        shard: str,
        identity: str,
        clock: Clock,
        report: Callable[[], WorkerReport],
        acks: Callable[[], Mapping[int, Ack]],
    ) -> None:
        self._leases = client.of(builtin("leases", "coordination.k8s.io"))
        self._namespace = namespace
        self._config = config
        self._shard = shard
        self._identity = identity
        self._clock = clock
        self._report = report
        self._acks = acks
        self._lease: Obj = {}
        self._seen: tuple[object, float] = (
            None,
            0.0,
        )  # content of another holder's Lease, and since when
        self._due = asyncio.Event()
        self.fence = Fence(namespace, self.name, identity, clock=clock)  # for every write of this worker
        self.timing = LeaseTiming()
        self.leaving = False
        self.term = -1
        self.time = WorkTime(0.0, 0.0)

    @property
    def name(self) -> str:
        return lease_name(self._shard)

    def renew_soon(self) -> None:
        """Renew before the next heartbeat, to report a change."""
        self._due.set()

    async def acquire(self) -> None:
        """Return when a term has begun."""
        while True:
            try:
                async with within(self._clock, self.timing.lease_s):
                    if await self._try():
                        log.info("holding the lease", shard=self._shard, term=self.term)
                        return
            except (AlreadyExists, Conflict):
                log.debug("another worker took the lease first")
            except (ApiError, TransportError, TimeoutError) as error:
                log.warning("acquiring the lease failed", reason=str(error) or type(error).__name__)
            await self._clock.sleep(self.timing.heartbeat_s)

    async def _try(self) -> bool:
        try:
            found = await self._leases.get(self.name, self._namespace)
        except NotFound:
            sent_s = self._clock.monotonic()
            self._begin(await self._leases.create(self._said({}, term=1, begin=True)), sent_s)
            return True
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", MANAGER, self._identity) and not self._expired(found):
            return False
        sent_s = self._clock.monotonic()
        term = (spec.get("leaseTransitions") or 0) + 1
        self._begin(await self._leases.replace(self._said(found, term=term, begin=True)), sent_s)
        return True

    def _expired(self, lease: Obj) -> bool:
        """Whether a whole lease has passed since this worker saw the Lease change, on its own clock."""
        spec = lease["spec"]
        said = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        now_s = self._clock.monotonic()
        if self._seen[0] != said:
            self._seen = said, now_s
        return now_s - self._seen[1] >= (spec.get("leaseDurationSeconds") or self.timing.lease_s)

    def _begin(self, lease: Obj, sent_s: float) -> None:
        self._lease = lease
        self.term = lease["spec"]["leaseTransitions"]
        self.time = WorkTime(sent_s, self._granted_s)
        self.fence.begin(self.term, self.time.cancel_at_s)

    async def renew(self) -> None:
        """Renew until the term is over; then raise ``TermEnded``."""
        pause_s = self.timing.heartbeat_s
        while True:
            left_s = self.time.cancel_at_s - self._clock.monotonic()
            await self._pause(min(pause_s, left_s))
            if not self.time.may_run(self._clock.monotonic()):
                self._end()
                raise TermEnded("the lease could not be renewed in time")
            pause_s = self.timing.heartbeat_s
            try:
                await self._renew()
            except (ApiError, TransportError, TimeoutError) as error:
                pause_s *= _AFTER_FAILURE
                self._due.clear()
                log.warning("renewing the lease failed", reason=str(error) or type(error).__name__)

    async def _pause(self, seconds: float) -> None:
        timer = self._clock.call_later(max(0.0, seconds), self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()
        self._due.clear()

    async def _renew(self) -> None:
        async with within(self._clock, max(0.01, self.time.cancel_at_s - self._clock.monotonic())):
            sent_s = self._clock.monotonic()
            try:
                renewed = await self._leases.replace(self._said(self._lease, term=self.term))
            except (Conflict, NotFound):
                # another writer: the manager that took it, a user, or an earlier renewal whose answer was lost
                current = await self._leases.get(self.name, self._namespace)
                if not self._is_mine(current, self.term):
                    self._end()
                    holder = (current.get("spec") or {}).get("holderIdentity")
                    raise TermEnded(f"the lease is held by {holder or 'no worker'}") from None
                sent_s = self._clock.monotonic()
                renewed = await self._leases.replace(self._said(current, term=self.term))
        self._lease = renewed
        self.time = WorkTime(sent_s, self._granted_s)
        self.fence.extend(self.time.cancel_at_s)

    def _is_mine(self, lease: Obj, term: int) -> bool:
        spec = lease.get("spec") or {}
        return (spec.get("holderIdentity"), spec.get("leaseTransitions")) == (self._identity, term)

    def _end(self) -> None:
        self.term = -1
        self.fence.end()

    @property
    def _granted_s(self) -> float:
        """The duration in the Lease, which the manager uses, even if the config has changed since."""
        return float(self._lease["spec"]["leaseDurationSeconds"])

    async def release(self) -> None:
        """Release the Lease, so that its slots are reassigned at once. Call it only when no handler runs. The last
        acknowledgements stay in it: the next owners still need the saved states."""
        term = self.term
        self._end()
        if term < 0:
            return
        try:
            async with within(self._clock, _RELEASE_S):
                try:
                    await self._leases.replace(_released(self._lease))
                except Conflict:  # a cancelled renewal has reached the server
                    current = await self._leases.get(self.name, self._namespace)
                    if self._is_mine(current, term):
                        await self._leases.replace(_released(current))
        except (ApiError, TransportError, TimeoutError) as error:
            log.warning("releasing the lease failed; it will expire", reason=str(error) or type(error).__name__)

    def _said(self, lease: Obj, *, term: int, begin: bool = False) -> Obj:
        """The Lease with the current report. Fields of other writers are kept."""
        about, spec = dict(lease.get("metadata") or {}), dict(lease.get("spec") or {})
        about |= {"name": self.name, "namespace": self._namespace}
        about["labels"] = {**(about.get("labels") or {}), CONFIG_LABEL: self._config, SHARD_LABEL: self._shard}
        notes = {**(about.get("annotations") or {}), REPORT: encode_report(self._report())}
        notes[ACKS] = "{}" if begin else encode_acks(self._acks())
        notes.pop(LEAVING, None)
        if self.leaving:
            notes[LEAVING] = "true"
        now = format_micro_time(self._clock.wall_s())
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self.timing.lease_s),
            "renewTime": now,
            "leaseTransitions": term,
        }
        if begin:
            spec["acquireTime"] = now
        return {**lease, "metadata": {**about, "annotations": notes}, "spec": spec}


def _released(lease: Obj) -> Obj:
    return {**lease, "spec": {**lease["spec"], "holderIdentity": ""}}
