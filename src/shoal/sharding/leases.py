"""Leases of shards, pure: their content, their state, and until when worker and manager may act.

The worker counts from *sending* a renewal, on its monotonic clock: it starts no handler after 0.6 of the lease and
cancels running handlers at 0.8. The manager counts from when it *saw* the Lease change, on its own monotonic clock: it
takes the Lease a full lease and a margin later, and reassigns the slots only after that. So neither depends on the
other's clock.

The annotations of the Lease hold the worker's *report* (load and health) and its *acknowledgements* of moves. One write
updates all of it, and a worker that has lost its Lease cannot acknowledge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import orjson

from shoal.kube.objects import Obj
from shoal.sharding.model import CONFIG_LABEL

REPORT = "shard.io/report"
ACKS = "shard.io/acks"
LEAVING = "shard.io/leaving"  # "true": the worker wants to hand over its slots and stop
MANAGER = "shard-manager"  # the holder of a Lease that the manager has taken

START_UNTIL = 0.6  # of the lease: a worker starts no handler later
CANCEL_AT = 0.8  # of the lease: running handlers are cancelled
MARGIN = 0.1  # of the lease: the manager waits this much longer than the lease
_MARGIN_AT_LEAST_S = 0.25
_ORPHANED_S = 60.0  # a Lease that was released or taken this long ago can be deleted


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A worker's report, sent with each heartbeat."""

    load: float | None = None  # 0 to 1; None: computed from the other fields
    queue_depth: int = 0
    objects: int = 0
    cpu: float = 0.0  # of what it may use, 0 to 1
    memory: float = 0.0
    busy: float = 0.0  # of the handlers that it may run at once, 0 to 1
    latency_s: float = 0.0  # of a handler, the 99th percentile
    metrics: dict[str, float] = {}  # custom ones
    healthy: bool = True
    message: str = ""

    @property
    def effective_load(self) -> float:
        if self.load is not None:
            return min(1.0, max(0.0, self.load))
        # handlers that wait for other systems use no CPU but still occupy the worker
        return max(load_of(self.objects, self.cpu, self.memory, self.queue_depth), min(1.0, self.busy))


def load_of(objects: int, cpu: float, memory: float, queue_depth: int) -> float:
    """The load of a shard, 0 to 1, from objects (1000 are full load), CPU, memory and queue (100 are full load)."""
    parts = ((0.3, objects / 1000), (0.3, cpu), (0.2, memory), (0.2, queue_depth / 100))
    return sum(weight * min(1.0, max(0.0, value)) for weight, value in parts)


class AckKind(StrEnum):
    PREPARED = "prepared"  # target: ready to own the slot
    DRAINED = "drained"  # source: no handler runs or will start; the state is saved
    RESTORED = "restored"  # target: has loaded the state and works
    FAILED = "failed"  # target: cannot take the slot


@dataclass(frozen=True, slots=True)
class Ack:
    """``epoch`` is the target's after the move; ``digest`` that of the state, empty when there is none.
    Acknowledgements stay in the Lease until the entry no longer has that move."""

    slot: int
    epoch: int
    kind: AckKind
    digest: str = ""

    def encoded(self) -> str:
        return f"{self.epoch}:{self.kind.value}" + (f":{self.digest}" if self.digest else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLease:
    """The fields of a Lease that sharding uses."""

    shard: str
    config: str
    holder: str
    lease_s: float
    term: int
    renewed_at: str
    report: WorkerReport = WorkerReport()
    acks: Mapping[int, Ack] = field(default_factory=dict)
    leaving: bool = False
    reported: bool = False  # whether there is a report at all

    @property
    def held(self) -> bool:
        """Whether a worker holds it, not the manager."""
        return self.holder not in ("", MANAGER)


def read_lease(obj: Obj) -> ShardLease:
    """Invalid annotations are ignored, so that a broken worker cannot stop the manager."""
    about, spec = obj["metadata"], obj.get("spec") or {}
    annotations = about.get("annotations") or {}
    return ShardLease(
        shard=about["name"],
        config=(about.get("labels") or {}).get(CONFIG_LABEL, ""),
        holder=spec.get("holderIdentity") or "",
        lease_s=float(spec.get("leaseDurationSeconds") or 0),
        term=spec.get("leaseTransitions") or 0,
        renewed_at=spec.get("renewTime") or "",
        report=_report(annotations.get(REPORT, "")),
        acks=_acks(annotations.get(ACKS, "")),
        leaving=annotations.get(LEAVING) == "true",
        reported=REPORT in annotations,
    )


def _report(text: str) -> WorkerReport:
    try:
        return msgspec.json.decode(text or "{}", type=WorkerReport)
    except msgspec.MsgspecError:
        return WorkerReport()


def encode_report(report: WorkerReport) -> str:
    return msgspec.json.encode(report).decode()


def _acks(text: str) -> dict[int, Ack]:
    try:
        found = orjson.loads(text or "{}")
        made = {}
        for slot, said in found.items():
            epoch, kind, *digest = said.split(":", 2)
            made[int(slot)] = Ack(int(slot), int(epoch), AckKind(kind), digest[0] if digest else "")
        return made
    except (ValueError, AttributeError):
        return {}


def encode_acks(acks: Mapping[int, Ack]) -> str:
    return orjson.dumps({str(slot): acks[slot].encoded() for slot in sorted(acks)}).decode()


# the worker's time


@dataclass(frozen=True, slots=True)
class WorkTime:
    """Until when a worker may start and run handlers, from when it *sent* the last successful renewal (monotonic)."""

    sent_s: float
    lease_s: float

    @property
    def start_until_s(self) -> float:
        return self.sent_s + START_UNTIL * self.lease_s

    @property
    def cancel_at_s(self) -> float:
        return self.sent_s + CANCEL_AT * self.lease_s

    def may_start(self, now_s: float) -> bool:
        return now_s < self.start_until_s

    def may_run(self, now_s: float) -> bool:
        return now_s < self.cancel_at_s


# the manager's view


class LeaseState(StrEnum):
    READY = "Ready"  # held, and renewed in time
    EXPIRED = "Expired"  # not renewed for a lease: its worker has stopped; its slots stay
    UNCERTAIN = "Uncertain"  # nor for the margin: the manager may take the Lease
    DEAD = "Dead"  # released or taken: its slots may be reassigned
    ORPHANED = "Orphaned"  # dead for a minute: the Lease can be deleted


def take_after_s(lease_s: float) -> float:
    """How long after the last change that it saw the manager takes a Lease."""
    return lease_s + max(_MARGIN_AT_LEAST_S, MARGIN * lease_s)


def state_of(lease: ShardLease, observed_s: float, now_s: float) -> LeaseState:
    """``observed_s`` is when this manager first saw the Lease as it is, on the same monotonic clock as ``now_s``."""
    age_s = now_s - observed_s
    if not lease.held:
        return LeaseState.ORPHANED if age_s >= _ORPHANED_S else LeaseState.DEAD
    if age_s < lease.lease_s:
        return LeaseState.READY
    return LeaseState.UNCERTAIN if age_s >= take_after_s(lease.lease_s) else LeaseState.EXPIRED


def next_change_s(lease: ShardLease, observed_s: float, now_s: float) -> float:
    """Time until the state changes without a write; infinite if it does not."""
    age_s = now_s - observed_s
    limits = (lease.lease_s, take_after_s(lease.lease_s)) if lease.held else (_ORPHANED_S,)
    return min((limit - age_s for limit in limits if limit > age_s), default=float("inf"))


class LeaseObservations:
    """When this manager saw each Lease change. Standbys record it too, so that a new leader need not start counting."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[Any, ...], float]] = {}

    def saw(self, lease: ShardLease, now_s: float) -> float:
        """Record that the Lease was seen; returns when its current content was first seen. Only holder, term, renewal
        and duration count: an acknowledgement comes with a renewal."""
        said = (lease.holder, lease.term, lease.renewed_at, lease.lease_s)
        known = self._seen.get(lease.shard)
        if known is None or known[0] != said:
            known = self._seen[lease.shard] = said, now_s
        return known[1]

    def observed_s(self, shard: str) -> float:
        return self._seen[shard][1]

    def forget(self, shard: str) -> None:
        self._seen.pop(shard, None)


def taken(obj: Obj, now: str) -> Obj:
    """The Lease as taken by the manager: in a new term, so that nothing of the old term counts. It is written at the
    resourceVersion at which it was read."""
    about = dict(obj["metadata"])
    about["annotations"] = {
        key: value for key, value in (about.get("annotations") or {}).items() if key not in (ACKS, LEAVING)
    }
    spec = dict(obj.get("spec") or {})
    spec |= {
        "holderIdentity": MANAGER,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1,
    }
    return {**obj, "metadata": about, "spec": spec}
