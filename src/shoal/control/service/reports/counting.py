"""What gateways counted between two reports, and when: pure.

An entry of a gateway has counters since its start. A report adds their differences to the last ones, per pod, so that
what was added stays when the pod goes. Counters that are missing in a report (their pod has gone, or there was no room)
are remembered, so that they are not counted again when they are back. Another start, or a smaller number,
counts from zero.

A difference belongs to the time between two samplings. Gateways say when they took their counters by their own clock;
the shortest way of a report of theirs so far, over which both clocks were compared, corrects it to the database's. What
was counted while no report came for longer is spread evenly over that time: as if it were new, it would be judged as if
it were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.control.database.traffic import SAMPLE_MS, read_origins
from shoal.sync.counters import NOTHING, Counts, piece, since

UNROUTED = ""  # in place of a deployment: requests that the gateway failed itself before it knew one
_APART_MS = 20_000  # samplings further apart are spread
_PIECES = 12
_REMEMBERED_MS = 3_600_000  # a pod that has gone
_REST = 500  # deployments of a pod that its newest reports had no room for
_DRIFT = 0.01  # how fast a clock may go wrong, or be set back and be believed again
_USED = ("entry", "peer")  # what instances answered to users; copies are not missed when they fail


class CountedPart(NamedTuple):
    """Requests of a deployment and origin that belong into a span of 5 s."""

    from_ms: int
    deployment: str
    origin: str
    counts: Counts
    revision: int = 0  # of the gateway's pod, while that revision is rolled out; 0: of the stable one


@dataclass(frozen=True, slots=True)
class Counted:
    parts: tuple[CountedPart, ...]
    memory: dict[str, Any]  # by pod, for the next report: {until, skew, since, seen, revision, rest}

    def answers(self) -> dict[str, tuple[int, int]]:
        """By deployment, the number of requests, and how many of them were answered with 5xx."""
        found: dict[str, tuple[int, int]] = {}
        for part in self.parts:
            if part.deployment and part.origin in _USED and any(part.counts.codes):
                requests, failed = found.get(part.deployment, (0, 0))
                codes = part.counts.codes
                found[part.deployment] = (requests + sum(codes), failed + codes[-1])
        return found


class _Pod(NamedTuple):
    """What is known of a pod from earlier reports; times in the database's."""

    since: Any  # of its counters, as it said; None: not known
    until: int  # its newest sampling
    skew: int  # of the database's clock ahead of its own
    seen: int
    deployments: Mapping[str, Any]  # its last counters, as it wrote them
    bounds: Any
    revision: int = 0


def count(before: Mapping[str, Any] | None, stats: Any, now_ms: int) -> Counted:
    """``before`` is ``observed`` of the gateway's last report, ``stats`` the counters in the new one."""
    parts: list[CountedPart] = []
    memory: dict[str, Any] = {}
    known = _known(before or {})
    entries = _entries(stats)
    for name, entry in entries.items():
        pod = known.pop(name, None)
        made = _count_pod(pod, entry, now_ms)
        parts += made.parts
        memory[name] = made.memory
    for name, pod in known.items():  # gone, or without room in this report
        if now_ms - pod.seen <= _REMEMBERED_MS:
            memory[name] = _memory(pod, len(pod.deployments))
    return Counted(tuple(parts), memory)


def _entries(stats: Any) -> dict[str, dict[str, Any]]:
    found = (stats.get("gateways") if isinstance(stats, dict) else None) or {}
    entries = found.items() if isinstance(found, dict) else ()
    return {
        name: {**entry, "deployments": _with_unrouted(entry)}
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("deployments"), dict)
    }


def _with_unrouted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the gateway answered itself, for no deployment, stands beside those of deployments."""
    unrouted = entry.get("unrouted")
    return {**entry["deployments"], **({UNROUTED: unrouted} if isinstance(unrouted, dict) else {})}


def _known(before: Mapping[str, Any]) -> dict[str, _Pod]:
    remembered = before.get("counted") or {}
    entries = _entries(before.get("stats"))
    found: dict[str, _Pod] = {}
    for name in {*remembered, *entries}:
        kept, entry = remembered.get(name) or {}, entries.get(name) or {}
        # What left comes before what was there last, so that the former is forgotten first.
        found[name] = _Pod(
            since=entry.get("since", kept.get("since")),
            until=kept.get("until", 0),
            skew=kept.get("skew", 0),
            seen=kept.get("seen", 0),
            deployments={**dict(kept.get("rest") or ()), **(entry.get("deployments") or {})},
            bounds=entry.get("bounds", kept.get("bounds")),
            revision=_revision(entry) or _revision(kept),  # one that has gone is reported without it
        )
    return found


def _count_pod(pod: _Pod | None, entry: Mapping[str, Any], now_ms: int) -> Counted:
    known = pod or _Pod(None, 0, 0, 0, {}, None)
    started, at_ms = entry.get("since"), _ms(entry.get("at"))
    is_new = pod is None or known.since != started
    skew = _skew(known, at_ms, now_ms)
    until = now_ms if at_ms is None else at_ms + skew
    if known.until <= now_ms:  # it is not, once the database's clock was set back
        until = max(until, known.until)
    begin, began = known.until, _ms(started)
    if is_new and began is not None:
        begin = max(begin, began + skew)
    begin = min(begin or until, until)
    last = {} if is_new else dict(known.deployments)
    revision = _revision(entry) or known.revision
    parts: list[CountedPart] = []
    for deployment, told in entry["deployments"].items():
        past = read_origins(last.pop(deployment, {}), known.bounds)
        counted = _count_deployment(deployment, read_origins(told, entry.get("bounds")), past, (begin, until))
        parts += [part._replace(revision=revision) for part in counted]
    made = _Pod(started, until, skew, now_ms, last, known.bounds, revision)
    return Counted(tuple(parts), _memory(made))


def _count_deployment(
    deployment: str, told: Mapping[str, Counts], past: Mapping[str, Counts], span: tuple[int, int]
) -> Iterator[CountedPart]:
    for origin, counts in told.items():
        more = since(counts, past.get(origin, NOTHING))
        for from_ms, part in _spread(more, *span):
            if not part.is_empty:
                yield CountedPart(from_ms, deployment, origin, part)


def _spread(counts: Counts, begin: int, until: int) -> Iterator[tuple[int, Counts]]:
    apart = until - begin
    if apart <= _APART_MS:
        yield _from(until - 1), counts
        return
    pieces = min(-(-apart // SAMPLE_MS), _PIECES)
    for at in range(pieces):  # at its middle: of a long time, nothing is as new as the report
        yield _from(begin + apart * (2 * at + 1) // (2 * pieces)), piece(counts, at, pieces)


def _from(ms: int) -> int:
    return ms - ms % SAMPLE_MS


def _skew(pod: _Pod, at_ms: int | None, now_ms: int) -> int:
    if at_ms is None:
        return 0
    if not pod.seen:
        return now_ms - at_ms
    return min(now_ms - at_ms, pod.skew + max(0, round((now_ms - pod.seen) * _DRIFT)))


def _revision(told: Mapping[str, Any]) -> int:
    found = told.get("revision")
    return found if isinstance(found, int) and found > 0 else 0


def _ms(seconds: Any) -> int | None:
    return round(seconds * 1000) if isinstance(seconds, int | float) and 0 <= seconds < 1e11 else None


def _memory(pod: _Pod, most: int = _REST) -> dict[str, Any]:
    """As it is stored; a list, because PostgreSQL forgets the order of keys."""
    made = {"until": pod.until, "skew": pod.skew, "since": pod.since, "seen": pod.seen}
    made |= {"revision": pod.revision} if pod.revision else {}
    if not pod.deployments:
        return made
    return made | {"rest": [*map(list, pod.deployments.items())][-most:], "bounds": pod.bounds}
