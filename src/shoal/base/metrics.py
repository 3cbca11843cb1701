"""Metrics in Prometheus' format; loads its library only at the first scrape.

A counter or gauge is a plain number that code adds to; ``render`` loads prometheus-client and formats the values,
at the first scrape. So a process starts without it, and counting costs one addition. Label values come from closed
sets, never from object names: a metric refuses to grow past ``MAX_SERIES``.

Numbers that a component keeps anyway are not copied: a family can ``follow`` a function, or a whole table of series
with ``follow_each``, which is called at each scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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


class Counter(_Numbers):
    """Only rises. ``labels`` gives the number to add to."""

    kind = "counter"

    def inc(self, amount: float = 1.0) -> None:
        """Add to the one series of a counter without labels."""
        self.labels().inc(amount)

    def describe(self) -> MetricDescription:
        return MetricDescription(f"{self.name.removesuffix('_total')}_total", self.kind, self.label_names, self.text)

    def collect(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.text, labels=self.label_names)
        for values, value in self.values():
            family.add_metric(values, value)
        return family


class Gauge(_Numbers):
    """Goes up and down."""

    kind = "gauge"

    def set(self, value: float) -> None:
        """Set the one series of a gauge without labels."""
        self.labels().set(value)

    def collect(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=self.label_names)
        for values, value in self.values():
            family.add_metric(values, value)
        return family


class Histogram(_Family[Distribution]):
    """How observations are spread. Durations are in seconds."""

    kind = "histogram"

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = LATENCY_S
    ) -> None:
        super().__init__(name, text, labels)
        self.bounds = tuple(sorted(bounds))
        self._tables: dict[str, Callable[[], Iterable[tuple[LabelValues, Distribution]]]] = {}

    def _new(self) -> Distribution:
        return Distribution(self.bounds)

    def same_as(self, other: _Family[Value] | _Family[Distribution]) -> bool:
        return super().same_as(other) and isinstance(other, Histogram) and self.bounds == other.bounds

    def observe(self, value: float) -> None:
        """Observe on the one series of a histogram without labels."""
        self.labels().observe(value)

    def follow_each(self, source: Callable[[], Iterable[tuple[LabelValues, Distribution]]], *, by: str = "") -> None:
        """Call ``source`` at each scrape for any number of series. A later call with the same ``by`` replaces it."""
        self._tables[by] = source

    def collect(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.text, labels=self.label_names)
        for values, series in self._series.items():
            family.add_metric(values, list(_cumulative(series)), series.total)
        for table in self._tables.values():
            for values, series in table():
                family.add_metric(values, list(_cumulative(series)), series.total)
        return family


def _cumulative(series: Distribution) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip((*series.bounds, float("inf")), series.counts, strict=True):
        seen += count
        yield ("+Inf" if bound == float("inf") else str(bound)), seen


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
        self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = LATENCY_S
    ) -> Histogram:
        return self._add(Histogram(name, text, labels, bounds=bounds))

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

    def collect(self) -> Iterator[Metric]:
        for family in self._families.values():
            yield family.collect()

    def render(self) -> bytes:
        """Everything, as the body of ``/metrics``; its content type is ``CONTENT_TYPE``."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self)


PROCESS = Metrics()  # of this process; parts that are not handed a Metrics use this one


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterator[Metric]: ...


def exposition(*more: Collector) -> bytes:
    """The metrics of this process, with its memory, processor time and open files, and ``more``."""
    from prometheus_client import ProcessCollector
    from prometheus_client.exposition import generate_latest

    class Everything:
        def collect(self) -> Iterator[Metric]:
            for metrics in dict.fromkeys((PROCESS, *more)):
                yield from metrics.collect()
            yield from ProcessCollector(registry=None).collect()

    return generate_latest(Everything())
