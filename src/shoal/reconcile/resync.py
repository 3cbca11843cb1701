"""The periodic resync of an informer: finds what its watch has missed, and puts it into the cache.

    metadata of all ─▶ keys that differ ─▶ time for the watch ─▶ still differ ─▶ read them ─▶ cache ─▶ requeue

A watch that loses an event leaves the cache wrong until the object changes again, which may be never. The resync lists
keys and resourceVersions (PartialObjectMetadata) and compares them with the cache. A list may be ahead of the watch, so
a difference counts only if it is still there after ``settle_s``. Handlers see a corrected object like any other change,
and every correction is counted: in a healthy cluster the counter stays at 0. Afterwards the handlers of
``Informer.on_resync`` run, which make controllers reconcile every object once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.client import EVERYTHING, ResourceClient, Scope, TransportError
from shoal.errors import ApiError, ConfigError, Expired
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import ObjectKey, is_older, key_of, version_of
from shoal.reconcile.reflector import Reflector

_JITTER = 0.25  # a period is shorter or longer by up to this part, so that informers do not list at the same time
_FEW = 50  # up to this many objects are read one by one, more with one list

log = get_logger("reconcile.resync")


class Difference(StrEnum):
    """How a cached object differed from the server's."""

    MISSING = "missing"  # from the cache
    OUTDATED = "outdated"
    DELETED = "deleted"  # on the server, and still in the cache


class ResyncMetrics:
    """One per process; shared by all its informers."""

    def __init__(self, metrics: Metrics) -> None:
        self.rounds = metrics.counter(
            "shoal_resync_total", "Comparisons of an informer's cache with the server, by resource.", ("resource",)
        )
        self.corrections = metrics.counter(
            "shoal_resync_corrections_total",
            "Cached objects that a watch had left wrong and a resync corrected, by resource and difference.",
            ("resource", "difference"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncConfig:
    """Settings of resyncs; ``metrics`` counts them."""

    metrics: ResyncMetrics
    period_s: float = 600.0
    settle_s: float = 5.0  # how long a watch may take to deliver what a list already shows
    page: int = 500

    def __post_init__(self) -> None:
        if self.period_s <= 0 or self.settle_s < 0 or self.page < 0:
            raise ConfigError("resync: period_s must be more than 0, settle_s and page 0 or more")


class Resync:
    """Compares one cache with one resource. The owner runs ``run`` as a task, beside the reflector."""

    def __init__(
        self,
        resource: ResourceClient,
        cache: Cache,
        reflector: Reflector,
        *,
        clock: Clock,
        random: Callable[[], float],
        config: ResyncConfig,
        scope: Scope = EVERYTHING,
        resynced: Callable[[], None],
    ) -> None:
        self._resource = resource
        self._metadata = resource.metadata
        self._cache = cache
        self._reflector = reflector
        self._clock = clock
        self._random = random
        self._config = config
        self._scope = scope
        self._resynced = resynced  # called after each comparison
        self._log = log.bind(resource=resource.type.qualified)

    async def run(self) -> None:
        """Compare at every period. Runs until cancelled."""
        while True:
            await self._clock.sleep(self._config.period_s * (1.0 + _JITTER * (2.0 * self._random() - 1.0)))
            if not self._reflector.watching:
                continue  # the reflector lists or retries, and reports its errors
            try:
                await self.compare()
            except (ApiError, TransportError) as error:
                self._log.warning("resync failed; trying again at the next period", reason=str(error))
            else:
                self._resynced()

    async def compare(self) -> None:
        """Compare the cache with the server once, and correct it."""
        self._config.metrics.rounds.labels(self._resource.type.qualified).inc()
        suspects = await self._suspects()
        if not suspects:
            return
        await self._clock.sleep(self._config.settle_s)
        wrong = {key for key, listed in suspects.items() if self._differs(key, listed)}
        corrected = await self._correct(wrong)
        if any(corrected.values()):
            counts = {difference.value: count for difference, count in corrected.items() if count}
            self._log.warning("the watch had missed changes; corrected the cache", **counts)

    # comparing

    async def _suspects(self) -> dict[ObjectKey, tuple[str, str]]:
        """The keys that differ, each with the version in the list (empty: not in it) and the list's revision."""
        try:
            return await self._compared(self._config.page)
        except Expired:  # between two parts of the list, on a server that cannot go on at a later revision
            return await self._compared(0)

    async def _compared(self, limit: int) -> dict[ObjectKey, tuple[str, str]]:
        seen: set[ObjectKey] = set()
        suspects: dict[ObjectKey, tuple[str, str]] = {}
        revision = ""
        # Parts of a later revision do no harm: what they show too early is looked at again after ``settle_s``.
        async for page in self._metadata.pages(self._scope, limit=limit, may_move=True):
            revision = revision or page.resource_version
            for item in page.items:
                key, listed = key_of(item), (version_of(item), revision)
                seen.add(key)
                if self._differs(key, listed):
                    suspects[key] = listed
        for key in self._cache.keys():
            if key not in seen and self._differs(key, ("", revision)):
                suspects[key] = "", revision
        return suspects

    def _differs(self, key: ObjectKey, listed: tuple[str, str]) -> bool:
        """Whether the cache is behind what a list showed; being ahead of it is normal."""
        version, revision = listed
        cached = self._cache.get(key)
        if not version:
            return cached is not None and is_older(version_of(cached), revision)
        return cached is None or not is_older(version, version_of(cached))

    # correcting

    async def _correct(self, wrong: set[ObjectKey]) -> dict[Difference, int]:
        corrected = dict.fromkeys(Difference, 0)
        if len(wrong) > _FEW:
            listed = await self._resource.list(self._scope, limit=self._config.page)
            self._take(wrong, listed.items, listed.resource_version, corrected)
            return corrected
        for key in sorted(wrong):
            # a list of one: it applies the informer's selectors, needs no more rights, and has a revision
            named = ",".join(part for part in (f"metadata.name={key.name}", self._scope.field_selector) if part)
            scope = replace(self._scope, namespace=key.namespace or self._scope.namespace, field_selector=named)
            page = await self._resource.page(scope, limit=0)
            self._take({key}, page.items, page.resource_version, corrected)
        return corrected

    def _take(
        self, wrong: set[ObjectKey], items: Iterable[Obj], revision: str, corrected: dict[Difference, int]
    ) -> None:
        """Put the server's state of ``wrong`` into the cache. The cache refuses what the watch has overtaken."""
        found = {key: item for item in items if (key := key_of(item)) in wrong}
        for key in wrong:
            item, cached = found.get(key), self._cache.get(key)
            if item is None:
                difference, applied = Difference.DELETED, self._cache.remove_missed(key, revision)
            else:
                difference = Difference.OUTDATED if cached is not None else Difference.MISSING
                applied = self._cache.upsert(item)
            if applied:
                corrected[difference] += 1
                self._config.metrics.corrections.labels(self._resource.type.qualified, difference.value).inc()
