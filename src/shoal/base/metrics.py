"""Metrics: numbers that code adds to, and ``shoal.base.exposition`` formats at each scrape.

Counting costs one addition. Label values come from closed sets, never from object names: a metric refuses to grow past
``MAX_SERIES``.

Numbers that a component keeps anyway are not copied: a family can ``follow`` a function, or a whole table of series
with ``follow_each``, which is called at each scrape.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from shoal.base import exposition
from shoal.base.exposition import ExposedFamily, Spread, fine_bounds

MAX_SERIES = 1000  # a metric with more label combinations than this has an object's name for a label
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LabelValues = tuple[str, ...]


class Value:
    """A number. Keep a reference in hot code: ``value.inc()`` needs no look-up."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


class Distribution:
    """Counts of observations per bucket, their number and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for values over every bound
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What a metric is, without its values; ``name`` as Prometheus stores it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


S = TypeVar("S", Value, Distribution)


class _Family(Generic[S]):
    """One metric with all its series."""

    kind: ClassVar[str]

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(labels)
        self._series: dict[LabelValues, S] = {}

    def labels(self, *values: str) -> S:
        series = self._series.get(values)
        if series is None:
            self._check(values, len(self._series))
            series = self._series[values] = self._new()
        return series

    def _new(self) -> S:
        raise NotImplementedError

    def describe(self) -> MetricDescription:
        return MetricDescription(self.name, self.kind, self.label_names, self.text)

    def same_as(self, other: _Family[Value] | _Family[Distribution]) -> bool:
        """Whether both are defined alike; then they are one metric."""
        return self.describe() == other.describe()

    def _check(self, values: LabelValues, count: int) -> None:
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
        if count >= MAX_SERIES:
            raise ValueError(f"{self.name} has over {MAX_SERIES} series; its labels must come from closed sets")


class _Numbers(_Family[Value]):
    """A family whose series are single numbers. A series can also be read when asked: see ``follow``."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._sources: dict[LabelValues, Callable[[], float]] = {}
        self._tables: dict[str, Callable[[], Mapping[LabelValues, float]]] = {}

    def _new(self) -> Value:
        return Value()

    def follow(self, source: Callable[[], float], *values: str) -> None:
        """Call ``source`` at each scrape instead of keeping a number. A later call for the same labels replaces it."""
        self._check(values, len(self._sources))
        self._sources[values] = source

    def follow_each(self, source: Callable[[], Mapping[LabelValues, float]], *, by: str = "") -> None:
        """Call ``source`` at each scrape for any number of series. A later call with the same ``by`` replaces it."""
        self._tables[by] = source

    def values(self) -> Iterator[tuple[LabelValues, float]]:
        for labels, series in self._series.items():
            yield labels, series.value
        for labels, source in self._sources.items():
            yield labels, source()
        for table in self._tables.values():
            yield from table().items()

    def expose(self) -> ExposedFamily:
        about = self.describe()
        return ExposedFamily(about.name, self.kind, self.text, self.label_names, numbers=self.values())


class Counter(_Numbers):
    """Only rises. ``labels`` gives the number to add to."""

    kind = "counter"

    def inc(self, amount: float = 1.0) -> None:
        """Add to the one series of a counter without labels."""
        self.labels().inc(amount)

    def describe(self) -> MetricDescription:
        return MetricDescription(f"{self.name.removesuffix('_total')}_total", self.kind, self.label_names, self.text)


class Gauge(_Numbers):
    """Goes up and down."""

    kind = "gauge"

    def set(self, value: float) -> None:
        """Set the one series of a gauge without labels."""
        self.labels().set(value)


class Histogram(_Family[Distribution]):
    """How observations are spread. Durations are in seconds."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float] = LATENCY_S,
        native: bool = False,
    ) -> None:
        super().__init__(name, text, labels)
        self.bounds = tuple(sorted(bounds))
        self.native = native  # whether it is also a native histogram, in protobuf; for durations in seconds
        self._cells = fine_bounds(self.bounds) if native else self.bounds
        self._tables: dict[str, Callable[[], Iterable[tuple[LabelValues, Distribution]]]] = {}

    def _new(self) -> Distribution:
        return Distribution(self._cells)

    def same_as(self, other: _Family[Value] | _Family[Distribution]) -> bool:
        same = isinstance(other, Histogram) and (self.bounds, self.native) == (other.bounds, other.native)
        return super().same_as(other) and same

    def observe(self, value: float) -> None:
        """Observe on the one series of a histogram without labels."""
        self.labels().observe(value)

    def follow_each(self, source: Callable[[], Iterable[tuple[LabelValues, Distribution]]], *, by: str = "") -> None:
        """Call ``source`` at each scrape for any number of series. A later call with the same ``by`` replaces it."""
        self._tables[by] = source

    def expose(self) -> ExposedFamily:
        return ExposedFamily(
            self.name, self.kind, self.text, self.label_names, spreads=self._spreads(), bounds=self.bounds,
            native=self.native,
        )  # fmt: skip

    def _spreads(self) -> Iterator[tuple[LabelValues, Spread]]:
        for values, series in self._series.items():
            yield values, Spread(series.bounds, series.counts, series.total)
        for table in self._tables.values():
            for values, series in table():
                yield values, Spread(series.bounds, series.counts, series.total)


F = TypeVar("F", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one process; made where the object graph is built and handed to the parts.

    Parts of a process share one: a metric that is defined a second time, in the same way, is the one that exists. So
    a part that is started again goes on with its numbers, and all controllers of a process count into one family.
    """

    def __init__(self) -> None:
        self._families: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return self._add(Counter(name, text, labels))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return self._add(Gauge(name, text, labels))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float] = LATENCY_S,
        native: bool = False,
    ) -> Histogram:
        """``native``: also a native histogram. Series that it follows then count in the cells of ``fine_bounds``."""
        return self._add(Histogram(name, text, labels, bounds=bounds, native=native))

    def _add(self, family: F) -> F:
        known = self._families.get(family.name)
        if known is None:
            self._families[family.name] = family
            return family
        if isinstance(known, type(family)) and known.same_as(family):
            return known
        raise ValueError(f"the metric {family.name} already exists, with another kind, text, labels or buckets")

    def describe(self) -> list[MetricDescription]:
        """What there is, in the order of definition."""
        return [family.describe() for family in self._families.values()]

    def expose(self) -> Iterator[ExposedFamily]:
        for family in self._families.values():
            yield family.expose()

    def render(self) -> bytes:
        """Everything, in the text format."""
        return exposition.text(self.expose())


PROCESS = Metrics()  # of this process; parts that are not handed a Metrics use this one


def process_metrics() -> Metrics:
    """Memory, processor time, open files and asyncio tasks of this process, now."""
    from prometheus_client import ProcessCollector

    made = Metrics()
    for family in ProcessCollector(registry=None).collect():
        define = made.counter if family.type == "counter" else made.gauge
        define(family.name, family.documentation).labels().value = family.samples[0].value
    made.gauge("shoal_process_tasks", "asyncio tasks of the event loop that answers").labels().value = _tasks()
    return made


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no event loop runs here
        return 0


def metrics_page(*more: Metrics, accept: str = "") -> tuple[bytes, str]:
    """The metrics of this process and ``more``, in the format that ``accept`` prefers, and their content type."""
    families = (family for metrics in dict.fromkeys((PROCESS, *more, process_metrics())) for family in metrics.expose())
    return formatted(families, accept)


def formatted(families: Iterable[ExposedFamily], accept: str) -> tuple[bytes, str]:
    if exposition.wants_protobuf(accept):
        return exposition.protobuf(families), exposition.PROTOBUF
    return exposition.text(families), exposition.TEXT
