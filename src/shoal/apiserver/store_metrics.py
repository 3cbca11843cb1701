"""Metrics of the store, with the names that Kubernetes uses for etcd where it has them. Read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.apiserver.context import Core
from shoal.base.metrics import Distribution, LabelValues, Metrics
from shoal.store.figures import BATCH_SIZES, COMMIT_S

MAX_RESOURCES = 1000  # users can define any number of them; the rest are counted together as ``other``

Table = dict[LabelValues, float]


def define_store_metrics(metrics: Metrics, core: Core) -> None:
    """The metrics of one server's store."""
    store, gauge, histogram = core.store, metrics.gauge, metrics.histogram
    read = StoreTables(core)
    gauge(
        "apiserver_storage_size_bytes", "Size of the store on disk; 0 for a store in memory.", ("storage_cluster_id",)
    ).follow(lambda: float(store.size_bytes), "store-0")
    gauge("apiserver_storage_objects", "Stored objects, by resource and group.", ("resource",)).follow_each(read.named)
    gauge("apiserver_resource_objects", "Stored objects.", ("group", "resource")).follow_each(read.objects)
    histogram(
        "etcd_request_duration_seconds",
        "Writes to the store, from the request until it is durable and visible.",
        ("operation", "group", "resource"),
        bounds=COMMIT_S,
    ).follow_each(read.requests)
    histogram(
        "shoal_store_commit_duration_seconds", "Making one batch of writes durable.", bounds=COMMIT_S
    ).follow_each(lambda: (((), store.figures.batch_s),))
    histogram("shoal_store_commit_batch_size", "Writes that were committed together.", bounds=BATCH_SIZES).follow_each(
        lambda: (((), store.figures.batch_sizes),)
    )
    gauge("shoal_store_history_bytes", "History for watches, in memory.").follow(lambda: float(store.history_bytes))
    gauge("shoal_store_revision", "The newest revision.").follow(lambda: float(store.revision))


class StoreTables:
    """Reads the series of one server's store."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def named(self) -> Table:
        return {(resource if not group else f"{resource}.{group}",): n for (group, resource), n in self._counts()}

    def objects(self) -> Table:
        return dict(self._counts())

    def requests(self) -> Iterator[tuple[LabelValues, Distribution]]:
        found = self._core.store.figures.requests
        for (operation, key), durations in list(found.items())[:MAX_RESOURCES]:
            resource, _, group = key.partition(".")
            yield (operation, group, resource), durations

    def _counts(self) -> Iterator[tuple[tuple[str, str], float]]:
        others = 0
        for number, served in enumerate(self._core.registry.storages()):
            if not served.resource.stored:
                continue
            count = self._core.store.count(served.key)
            if number < MAX_RESOURCES:
                yield (served.resource.group, served.resource.plural), count
            else:
                others += count
        if others:
            yield ("", "other"), others
