"""Counts of requests as gateways report them: their form as JSON, and how they are added and subtracted.

A gateway counts per deployment and per *origin*: ``entry`` are requests that users sent to this gateway, ``peer`` those
that a gateway of another region passed on (that one has counted them as its entries), ``mirror`` copies. As JSON:

    {"codes": [1xx, 2xx, 3xx, 4xx, 5xx], "times": [bucket, requests, bucket, requests, ...], "latencyMs": sum,
     "retried": requests that were answered without 5xx after more than one try, unless 0}

``times`` has the buckets with requests only. Bucket n counts what took less than bound n and not less than the bound
before it; the last one is beyond all bounds. Gateways of earlier versions write ``latency``, a number for every bucket,
with the bounds in ``bounds`` of their entry; it is read too, into the buckets that hold these bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

_STEPS = (10, 12, 14, 16, 18, 20, 22, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90)
LATENCY_MS = tuple(
    float(bound)
    for bound in (*range(1, 10), *(step * scale for scale in (1, 10, 100, 1000) for step in _STEPS))
    if bound <= 60_000
)
"""Upper bounds of the buckets of times. Neighbours differ by a fifth at most (below 5 ms by the millisecond that Envoy
measures), and have two digits, as the bins of Envoy's histograms: none of them is cut."""

BUCKETS = len(LATENCY_MS) + 1
ORIGINS = ("entry", "peer", "mirror")
GROUPS = 5  # of codes: 1xx to 5xx
_MOST = 2**48  # a larger number is not a count, and sums of many must fit into 64 bits


class Counts(NamedTuple):
    """Of one deployment and origin. ``times``: requests by bucket."""

    codes: tuple[int, ...]
    times: Mapping[int, int]
    latency_ms: int
    retried: int = 0

    @property
    def is_empty(self) -> bool:
        return not any(self.codes) and not self.times and not self.latency_ms


NOTHING = Counts((0,) * GROUPS, {}, 0)


def plus(one: Counts, other: Counts) -> Counts:
    times = dict(one.times)
    for bucket, count in other.times.items():
        times[bucket] = times.get(bucket, 0) + count
    codes = tuple(a + b for a, b in zip(one.codes, other.codes, strict=True))
    return Counts(codes, times, one.latency_ms + other.latency_ms, one.retried + other.retried)


def since(now: Counts, before: Counts) -> Counts:
    """What was counted since ``before``. A number that is smaller than before says that the count began anew."""
    codes = tuple(a - b for a, b in zip(now.codes, before.codes, strict=True))
    times = {bucket: now.times.get(bucket, 0) - before.times.get(bucket, 0) for bucket in {*now.times, *before.times}}
    latency_ms, retried = now.latency_ms - before.latency_ms, now.retried - before.retried
    if latency_ms < 0 or retried < 0 or min(codes) < 0 or min(times.values(), default=0) < 0:
        return now
    return Counts(codes, {bucket: count for bucket, count in times.items() if count}, latency_ms, retried)


def piece(counts: Counts, at: int, of: int) -> Counts:
    """The part ``at`` (from 0) of ``of`` parts that are as equal as whole numbers can be. The parts add up to all."""

    def part(number: int) -> int:
        return number * (at + 1) // of - number * at // of

    times = {bucket: count for bucket, all_ in counts.times.items() if (count := part(all_))}
    return Counts(tuple(map(part, counts.codes)), times, part(counts.latency_ms), part(counts.retried))


def as_json(counts: Counts) -> dict[str, Any]:
    return {
        "codes": list(counts.codes),
        "times": [number for pair in sorted(counts.times.items()) for number in pair],
        "latencyMs": counts.latency_ms,
        **({"retried": counts.retried} if counts.retried else {}),
    }


def sparse(latency: Sequence[int]) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(latency) if count}


def read_counts(document: Any, bounds: Any = None) -> Counts | None:
    """The counts in a part of an entry; None when they cannot be read. ``bounds`` are those of the entry."""
    if not isinstance(document, Mapping):
        return None
    codes, latency_ms = document.get("codes"), document.get("latencyMs", 0)
    told = [latency_ms, document.get("retried", 0)]
    if not _are_counts(codes) or len(codes) != GROUPS or not _are_counts(told):
        return None
    times = _times(document, bounds)
    return None if times is None else Counts(tuple(codes), times, *told)


def _times(document: Mapping[str, Any], bounds: Any) -> dict[int, int] | None:
    if "times" in document:
        flat = document["times"]
        if not _are_counts(flat) or len(flat) % 2 or any(bucket >= BUCKETS for bucket in flat[::2]):
            return None
        return _added(flat[::2], flat[1::2])
    latency = document.get("latency") or []
    if not _are_counts(latency):
        return None
    if not isinstance(bounds, list) or len(latency) != len(bounds) + 1:
        return {}  # a gateway that says nothing of its times
    if not all(isinstance(bound, int | float) for bound in bounds):
        return None
    return _added([*(bisect_left(LATENCY_MS, bound) for bound in bounds), BUCKETS - 1], latency)


def _added(buckets: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
    times: dict[int, int] = {}
    for bucket, count in zip(buckets, counts, strict=True):
        if count:
            times[bucket] = times.get(bucket, 0) + count
    return times


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(each) is int and 0 <= each < _MOST for each in values)
