"""Metrics in Prometheus' format; loads its library only at the first scrape.

A counter or gauge is a plain number that code adds to; ``render`` loads prometheus-client and formats the values,
at the first scrape. So a process starts without it, and counting costs one addition. Label values come from closed
sets, never from object names: a metric refuses to grow past ``MAX_SERIES``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 1000  # a metric with more label combinations than this has an object's name for a label
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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


class _Family:
    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(labels)

    def _check(self, values: tuple[str, ...], count: int) -> None:
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
        if count >= MAX_SERIES:
            raise ValueError(f"{self.name} has over {MAX_SERIES} series; its labels must come from closed sets")


class Counter(_Family):
    """Only rises. ``labels`` gives the number to add to."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._series: dict[tuple[str, ...], Value] = {}

    def labels(self, *values: str) -> Value:
        series = self._series.get(values)
        if series is None:
            self._check(values, len(self._series))
            series = self._series[values] = Value()
        return series

    def inc(self, amount: float = 1.0) -> None:
        """Add to the one series of a counter without labels."""
        self.labels().inc(amount)

    def collect(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.text, labels=self.label_names)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        return family


class Gauge(_Family):
    """Goes up and down. A gauge can also read its value when asked: see ``follow``."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, text, labels)
        self._series: dict[tuple[str, ...], Value] = {}
        self._sources: dict[tuple[str, ...], Callable[[], float]] = {}

    def labels(self, *values: str) -> Value:
        series = self._series.get(values)
        if series is None:
            self._check(values, len(self._series))
            series = self._series[values] = Value()
        return series

    def set(self, value: float) -> None:
        """Set the one series of a gauge without labels."""
        self.labels().set(value)

    def follow(self, source: Callable[[], float], *values: str) -> None:
        """Call ``source`` at each scrape instead of keeping a number."""
        self._check(values, len(self._sources))
        self._sources[values] = source

    def collect(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=self.label_names)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        for values, source in self._sources.items():
            family.add_metric(values, source())
        return family


class Histogram(_Family):
    """How observations are spread. Durations are in seconds."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = LATENCY_S
    ) -> None:
        super().__init__(name, text, labels)
        self._bounds = tuple(sorted(bounds))
        self._series: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        series = self._series.get(values)
        if series is None:
            self._check(values, len(self._series))
            series = self._series[values] = Distribution(self._bounds)
        return series

    def observe(self, value: float) -> None:
        """Observe on the one series of a histogram without labels."""
        self.labels().observe(value)

    def collect(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.text, labels=self.label_names)
        for values, series in self._series.items():
            family.add_metric(values, list(_cumulative(series)), series.total)
        return family


def _cumulative(series: Distribution) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip((*series.bounds, float("inf")), series.counts, strict=True):
        seen += count
        yield ("+Inf" if bound == float("inf") else str(bound)), seen


F = TypeVar("F", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one process or one part; made where the object graph is built and handed to the parts."""

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
        if family.name in self._families:
            raise ValueError(f"the metric {family.name} already exists")
        self._families[family.name] = family
        return family

    def collect(self) -> Iterator[Metric]:
        for family in self._families.values():
            yield family.collect()

    def render(self) -> bytes:
        """Everything, as the body of ``/metrics``; its content type is ``CONTENT_TYPE``."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self)


PROCESS = Metrics()  # of this process; parts that are not handed a Metrics use this one


def exposition() -> bytes:
    """The metrics of this process, with its memory, processor time and open files."""
    from prometheus_client import ProcessCollector
    from prometheus_client.exposition import generate_latest

    class Everything:
        def collect(self) -> Iterator[Metric]:
            yield from PROCESS.collect()
            yield from ProcessCollector(registry=None).collect()

    return generate_latest(Everything())
