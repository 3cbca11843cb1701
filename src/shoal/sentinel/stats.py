"""Counters of Envoy per deployment, and how they reach the control plane.

Every ``stats_s`` Envoy is asked for a short list of its stats: of its clusters, and of requests by cluster, code and
number of tries, which the connection manager counts (``translate.connection``). Its counters restart with
Envoy; they are added up here, so that they only rise while this process lives.

Requests are counted by *origin*: ``entry`` came from users, to the listeners for them. ``peer`` were passed on by a
gateway of another region, which counts them as its entries; they go to instances of this region only (``local_``).
``mirror`` are copies, which never leave the region and are no requests of users; routers count them, as
``requests.copies``.

They are written to the ConfigMap ``stats-<gateway>`` in the gateways' namespace, where each replica owns one entry,
named as its pod (server-side apply, one field manager per pod, written only when it changed, and before it ends). It
has the labels of the gateway's ConfigMap of peers, except the component (``sentinel-stats``) and the manager, and is
deleted with it. krane's observer of sentinels finds it by these labels and copies the entries into
``SentinelReport.stats``. An entry is JSON:

    {"v": 2, "at": time of these counters, in seconds since 1970, "since": of this process's start, "region": "eu",
     "refused": [{"type": "route", "name": NAME, "reason": Envoy's reason}], unless empty,
     "unrouted": {COUNTS of requests that were failed before a deployment was chosen}, unless empty,
     "deployments": {ID: {COUNTS of entries, "peer": {COUNTS}, "mirror": {COUNTS}, unless empty,
                          "timeouts": n, "retries": n,
                          "connectFailures": n, "overflows": n, "active": n, "healthy": n, "total": n}}}

COUNTS are those of ``shoal.sync.counters``, since ``since``; a reader subtracts its last values; a smaller number means
a restart. krane removes the entries of deleted replicas once it has reported them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import orjson

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.metrics import Distribution, LabelValues, Metrics
from shoal.client import Client, TransportError, builtin
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.sentinel.admin import Admin
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.translate.envoy import REQUESTS
from shoal.sync.counters import LATENCY_MS, ORIGINS, Counts, as_json, sparse

log = get_logger("sentinel.stats")


VERSION = 2
COMPONENT = "sentinel-stats"
_OURS, _COMPONENT = "shoal.dev/", "app.kubernetes.io/component"
_STATS = f"/stats?format=json&usedonly&histogram_buckets=disjoint&filter=%5E(cluster%7C{REQUESTS}%7Cserver.days)"
_CODES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_LOCAL = "local_"
UNROUTED = ""  # in place of a deployment: requests that were failed before one was chosen
_NO_CLUSTER = "-"  # as Envoy writes it
_PREFIXES = ("deployment_", "sticky_", _LOCAL)  # of the clusters of one deployment
_LOCAL_MEMBERS = re.compile(r"cluster\.local_([^.]+)\.membership_(healthy|total)")
_COUNTERS = {
    "upstream_rq_timeout": "timeouts",
    "upstream_rq_retry": "retries",
    "upstream_cx_connect_fail": "connect_failures",
    "upstream_rq_pending_overflow": "overflows",
}
_ENTRY_BYTES = 256 * 1024
_EXPIRING = "server.days_until_first_cert_expiring"
_NO_CERTIFICATE_DAYS = 2**31  # more than any certificate has: Envoy's value without certificates
_DAY_S = 86_400.0
_WARN_DAYS = 30
_REFRESH_S = 15.0  # an unchanged entry is written this often: a replica that is silent for 30 s counts as stale
_MERGE_S = 0.1  # Envoy's histograms take this long to be merged
_LAST_S = 3.0  # for the last entry, when the process ends
_REFUSED_MAX = 20
_SHOWN_MS = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)  # in /metrics
_SHOWN_S = tuple(bound / 1000 for bound in _SHOWN_MS)
_SHOWN_AT = tuple(bisect_right(_SHOWN_MS, lower) for lower in (0.0, *LATENCY_MS))  # of each bucket, by whole ms
_LABELLED = 500  # deployments that have series of their own in /metrics

Table = dict[LabelValues, float]


def stats_name(gateway: str) -> str:
    return f"stats-{gateway}"


@dataclass(slots=True)
class RequestStats:
    """Of one deployment and origin."""

    codes: list[int] = field(default_factory=lambda: [0] * len(_CODES))
    latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_MS) + 1))
    latency_ms: float = 0.0
    retried: int = 0  # answered without 5xx after more than one try

    def plus(self, other: RequestStats) -> RequestStats:
        return RequestStats(
            codes=[a + b for a, b in zip(self.codes, other.codes, strict=True)],
            latency=[a + b for a, b in zip(self.latency, other.latency, strict=True)],
            latency_ms=self.latency_ms + other.latency_ms,
            retried=self.retried + other.retried,
        )

    def counts(self) -> Counts:
        return Counts(tuple(self.codes), sparse(self.latency), round(self.latency_ms), self.retried)


@dataclass(slots=True)
class DeploymentStats:
    requests: dict[str, RequestStats] = field(default_factory=lambda: {origin: RequestStats() for origin in ORIGINS})
    timeouts: int = 0
    retries: int = 0
    connect_failures: int = 0
    overflows: int = 0
    active: int = 0
    healthy: int = 0
    total: int = 0

    @property
    def everything(self) -> RequestStats:
        """Requests of all origins, as the instances see them."""
        return reduce(RequestStats.plus, self.requests.values())

    def plus(self, other: DeploymentStats) -> DeploymentStats:
        """The sum of the counters; gauges are those of ``other``."""
        return DeploymentStats(
            requests={origin: self.requests[origin].plus(other.requests[origin]) for origin in ORIGINS},
            timeouts=self.timeouts + other.timeouts,
            retries=self.retries + other.retries,
            connect_failures=self.connect_failures + other.connect_failures,
            overflows=self.overflows + other.overflows,
            active=other.active,
            healthy=other.healthy,
            total=other.total,
        )

    def shown(self) -> dict[str, Any]:
        counted = {origin: requests.counts() for origin, requests in self.requests.items()}
        apart = {origin: as_json(counts) for origin, counts in counted.items() if not counts.is_empty}
        apart.pop("entry", None)
        return {
            **as_json(counted["entry"]), **apart,
            "timeouts": self.timeouts, "retries": self.retries, "connectFailures": self.connect_failures,
            "overflows": self.overflows, "active": self.active, "healthy": self.healthy, "total": self.total,
        }  # fmt: skip


Stats = dict[str, DeploymentStats]


def read_stats(body: bytes) -> Stats:
    """Envoy's counters per deployment; the clusters of one deployment are added up.

    The number of instances is taken from clusters without peers, if there are any: the others count peers too."""
    found: Stats = {}
    here: dict[str, dict[str, int]] = {}
    for entry in orjson.loads(body).get("stats") or ():
        if "histograms" in entry:
            for one in entry["histograms"]:
                _read_histogram(found, one)
        elif "name" in entry:
            _read_number(found, entry["name"], int(entry.get("value") or 0))
            if known := _LOCAL_MEMBERS.fullmatch(entry["name"]):
                here.setdefault(known[1], {})[known[2]] = int(entry.get("value") or 0)
    if here:
        for name, stats in found.items():
            members = here.get(name, {})
            stats.healthy, stats.total = members.get("healthy", 0), members.get("total", 0)
    return found


def _place(found: Stats, name: str) -> tuple[DeploymentStats, str, str] | None:
    """Split a stat's name into the deployment, its cluster and the counter."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] != "cluster":
        return None
    for prefix in _PREFIXES:
        if parts[1].startswith(prefix):
            return found.setdefault(parts[1].removeprefix(prefix), DeploymentStats()), prefix, parts[2]
    return None


def _read_number(found: Stats, name: str, value: int) -> None:
    place = _place(found, name)
    if place is None:
        return
    stats, prefix, what = place
    if what in _COUNTERS:
        setattr(stats, _COUNTERS[what], getattr(stats, _COUNTERS[what]) + value)
    elif what == "upstream_rq_active":
        stats.active += value
    elif what == "membership_healthy" and prefix == _PREFIXES[0]:
        stats.healthy = value
    elif what == "membership_total" and prefix == _PREFIXES[0]:
        stats.total = value


def _read_histogram(found: Stats, one: Mapping[str, Any]) -> None:
    """Of requests or of copies, by cluster, code and number of tries."""
    begin, _, told = str(one["name"]).partition(".of.")
    if begin not in (f"{REQUESTS}.ms", f"{REQUESTS}.copies"):
        return
    cluster, code, tries = told.rsplit(".", 2)
    group = f"{code[:1]}xx"
    if cluster == _NO_CLUSTER and begin == f"{REQUESTS}.ms" and code >= "500":
        failed = found.setdefault(UNROUTED, DeploymentStats()).requests["entry"]
        failed.codes[_CODES.index(group)] += sum(bucket["cumulative"] for bucket in one["buckets"])
        return
    place = _place(found, f"cluster.{cluster}.{REQUESTS}")
    # Without a code the client has left, without a try we have refused it: neither says something about a deployment.
    if place is None or group not in _CODES or (tries == "0" and code < "500"):
        return
    origin = "mirror" if begin == f"{REQUESTS}.copies" else "peer" if place[1] == _LOCAL else "entry"
    requests = place[0].requests[origin]
    count = sum(bucket["cumulative"] for bucket in one["buckets"])
    requests.codes[_CODES.index(group)] += count
    if tries not in ("0", "1") and code < "500":
        requests.retried += count
    if tries != "0":
        _add_times(requests, one["buckets"])


def _add_times(stats: RequestStats, buckets: Iterable[Mapping[str, Any]]) -> None:
    lower_ms = 0.0
    for bucket in buckets:
        bound_ms, count = bucket["upper_bound"], bucket["cumulative"]
        if count:  # most are empty
            at = bisect_left(LATENCY_MS, bound_ms)
            stats.latency[at] += count
            stats.latency_ms += count * (lower_ms + bound_ms) / 2 if at < len(LATENCY_MS) else count * lower_ms
        lower_ms = bound_ms


def belonging(peers: Obj | None) -> Obj:
    """Labels and owner of the written ConfigMap, copied from the ConfigMap of the peers."""
    if peers is None:
        return {}
    about = peers["metadata"]
    labels = {name: text for name, text in (about.get("labels") or {}).items() if name.startswith(_OURS)}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": about["name"], "uid": about["uid"]}
    return {"labels": {**labels, _COMPONENT: COMPONENT}, "ownerReferences": [owner]}


class StatsKeeper:
    """``run`` it as a task."""

    def __init__(
        self,
        config: SentinelConfig,
        admin: Admin,
        client: Client,
        *,
        clock: Clock,
        starts: Callable[[], int],
        peers_map: Callable[[], Obj | None],
        refused: Callable[[], list[Obj]] = list,
        under_test: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._config = config
        self._admin = admin
        self._client = client
        self._clock = clock
        self._starts = starts  # how often Envoy was started
        self._peers_map = peers_map
        self._refused = refused
        self._under_test = under_test  # deployments that a rollout is judged by
        self._seen = 0
        self._base: Stats = {}  # of earlier Envoys of this process
        self._latest: Stats = {}  # of this one
        self._since = clock.wall_s()
        self._asked_s = self._since  # when Envoy was last asked, and began to merge its histograms
        self.sampled_s = self._since  # of what there is: the one before
        self._written: tuple[bytes, float] = (b"", clock.monotonic())
        self.certificate_days: int | None = None  # until the first certificate of Envoy expires; None: it has none
        self._warned_s = -_DAY_S

    @property
    def silent_s(self) -> float:
        """How long no entry could be written. An entry that stays the same is written every 15 s."""
        return self._clock.monotonic() - self._written[1]

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._config.stats_s)
            if await self.look():
                await self._write()

    async def look(self) -> bool:
        """Ask Envoy; False when it does not answer."""
        starts, asked_s = self._starts(), self._clock.wall_s()
        body = await self._admin.get(_STATS)
        if body is None or starts != self._starts():
            return False
        self.sampled_s, self._asked_s = self._asked_s, asked_s
        if starts != self._seen:
            self._base, self._seen = self.current(), starts
        self._latest = read_stats(body)
        self._look_at_certificates(body)
        return True

    async def look_last(self) -> None:
        """Before Envoy ends: with everything that it has counted until now."""
        try:
            async with within(self._clock, _LAST_S):
                if await self.look():
                    await self._clock.sleep(_MERGE_S)
                    await self.look()
        except TimeoutError:
            log.warning("envoy did not tell its last counters in time", seconds=_LAST_S)

    async def write_last(self) -> None:
        """Once Envoy has ended, for at most some seconds."""
        try:
            async with within(self._clock, _LAST_S):
                await self._write(refresh_s=0)
        except TimeoutError:
            log.warning("the last counters were not written in time", seconds=_LAST_S)

    def _look_at_certificates(self, body: bytes) -> None:
        """Those of routes and of the entrance, which are renewed elsewhere."""
        values = (one.get("value") for one in orjson.loads(body).get("stats") or () if one.get("name") == _EXPIRING)
        days = next(values, None)
        self.certificate_days = days if days is not None and days < _NO_CERTIFICATE_DAYS else None
        now_s = self._clock.monotonic()
        if self.certificate_days is not None and self.certificate_days < _WARN_DAYS:
            if now_s - self._warned_s >= _DAY_S:
                self._warned_s = now_s
                log.warning("a certificate of the gateway expires soon", days=self.certificate_days)

    def current(self) -> Stats:
        """The counters since this process started."""
        none = DeploymentStats()
        names = self._base.keys() | self._latest.keys()
        return {name: self._base.get(name, none).plus(self._latest.get(name, none)) for name in sorted(names)}

    def entry(self) -> bytes:
        """The entry for the control plane, without its time. If too large, it has the busiest deployments, and those
        that a rollout is judged by."""
        shown = {name: stats.shown() for name, stats in self.current().items()}
        unrouted = shown.pop(UNROUTED, None)
        about = {"v": VERSION, "since": round(self._since), "region": self._config.region}
        if refused := self._refused():
            about["refused"] = refused[:_REFUSED_MAX]
        if unrouted is not None:
            about["unrouted"] = {name: unrouted[name] for name in ("codes", "times", "latencyMs")}
        made = orjson.dumps(about | {"deployments": shown})
        kept = frozenset(self._under_test())
        while len(made) > _ENTRY_BYTES and not kept.issuperset(shown):
            busiest = sorted(shown, key=lambda name: (name not in kept, -sum(shown[name]["codes"])))
            at_least = len(kept.intersection(shown))
            shown = {name: shown[name] for name in busiest[: max(at_least, len(busiest) * 3 // 4)]}
            made = orjson.dumps(about | {"deployments": shown})
        return made

    async def _write(self, *, refresh_s: float = _REFRESH_S) -> None:
        made, now = self.entry(), self._clock.monotonic()
        if made == self._written[0] and now - self._written[1] < refresh_s and not self._under_test():
            return
        stamped = orjson.dumps({"at": round(self.sampled_s, 1), **orjson.loads(made)}).decode()
        about = {
            "name": stats_name(self._config.name),
            "namespace": self._config.namespace,
            **belonging(self._peers_map()),
        }
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {self._config.replica: stamped}}
        try:
            await self._client.of(builtin("configmaps")).apply(
                wanted, field_manager=f"sentinel-{self._config.replica}", force=True
            )
            self._written = (made, now)
        except (ApiError, TransportError) as error:
            log.debug("writing the counters failed", reason=str(error))

    def labelled(self) -> Stats:
        """For ``/metrics``: deployments beyond ``_LABELLED`` share one series."""
        everything = {name: one for name, one in self.current().items() if name != UNROUTED}
        if len(everything) <= _LABELLED:
            return everything
        busiest = sorted(everything, key=lambda name: (-sum(everything[name].everything.codes), name))
        shown = {name: everything[name] for name in busiest[:_LABELLED]}
        rest = DeploymentStats()
        for name in busiest[_LABELLED:]:
            one = everything[name]
            both = rest.plus(one)
            both.active, both.healthy, both.total = (
                rest.active + one.active, rest.healthy + one.healthy, rest.total + one.total,
            )  # fmt: skip
            rest = both
        return shown | {"other": rest}


def define_stats_metrics(metrics: Metrics, stats: StatsKeeper, region: str) -> None:
    """The metrics of a gateway's requests, by deployment; read at each scrape."""
    labels = ("deployment", "region")

    def requests() -> Table:
        return {
            (name, region, code): count
            for name, one in stats.labelled().items()
            for code, count in zip(_CODES, one.everything.codes, strict=True)
        }

    def latency() -> Iterator[tuple[LabelValues, Distribution]]:
        for name, one in stats.labelled().items():
            spread = Distribution(_SHOWN_S)
            answered = one.everything
            for at, count in zip(_SHOWN_AT, answered.latency, strict=True):
                spread.counts[at] += count
            spread.total = answered.latency_ms / 1000
            yield (name, region), spread

    def events() -> Table:
        return {
            (name, region, event): getattr(one, event)
            for name, one in stats.labelled().items()
            for event in _COUNTERS.values()
        }

    def instances() -> Table:
        return {
            (name, region, state): getattr(one, state)
            for name, one in stats.labelled().items()
            for state in ("healthy", "total")
        }

    metrics.counter(
        "shoal_sentinel_requests_total", "Answers of instances by class.", (*labels, "code")
    ).follow_each(requests)  # fmt: skip
    metrics.histogram(
        "shoal_sentinel_request_duration_seconds",
        "Time from the first byte of a request to the last of an instance's answer.",
        labels,
        bounds=_SHOWN_S,
    ).follow_each(latency)
    metrics.counter(
        "shoal_sentinel_upstream_events_total", "What went wrong towards instances.", (*labels, "event")
    ).follow_each(events)  # fmt: skip

    def expiry() -> Table:
        return {} if stats.certificate_days is None else {(): stats.certificate_days * _DAY_S}

    metrics.gauge(
        "shoal_sentinel_certificate_expiry_seconds",
        "Time until the first certificate of the gateway expires, in whole days.",
    ).follow_each(expiry)
    metrics.gauge(
        "shoal_sentinel_instances", "Instances by what Envoy thinks of them.", (*labels, "state")
    ).follow_each(instances)  # fmt: skip
