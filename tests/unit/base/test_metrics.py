"""Guarantees of the metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal.base.metrics import MAX_SERIES, Distribution, Metrics, metrics_page


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_counters_and_gauges_render_what_was_counted() -> None:
    metrics = Metrics()
    requests = metrics.counter("shoal_requests_total", "Requests.", ["verb"])
    requests.labels("get").inc()
    requests.labels("get").inc(2)
    requests.labels("list").inc()
    metrics.gauge("shoal_watchers", "Watchers.").set(7)
    metrics.gauge("shoal_revision", "Revision.").follow(lambda: 42)
    assert samples(metrics) == {
        ("shoal_requests_total", ("get",)): 3,
        ("shoal_requests_total", ("list",)): 1,
        ("shoal_watchers", ()): 7,
        ("shoal_revision", ()): 42,
    }


def test_histograms_count_each_observation_in_every_bucket_that_holds_it() -> None:
    metrics = Metrics()
    latency = metrics.histogram("shoal_latency_seconds", "Latency.", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        latency.observe(value)
    assert samples(metrics) == {
        ("shoal_latency_seconds_bucket", ("0.1",)): 2,
        ("shoal_latency_seconds_bucket", ("1.0",)): 3,
        ("shoal_latency_seconds_bucket", ("+Inf",)): 4,
        ("shoal_latency_seconds_count", ()): 4,
        ("shoal_latency_seconds_sum", ()): pytest.approx(3.65),
    }


def test_label_values_from_an_open_set_are_refused() -> None:
    counter = Metrics().counter("c_total", "C.", ["name"])
    with pytest.raises(ValueError, match="closed sets"):
        for n in range(MAX_SERIES + 1):
            counter.labels(f"pod-{n}")


def test_wrong_labels_and_repeated_names_are_refused() -> None:
    metrics = Metrics()
    counter = metrics.counter("c_total", "C.", ["verb"])
    with pytest.raises(ValueError, match="has the labels"):
        counter.labels("a", "b")
    with pytest.raises(ValueError, match="already exists"):
        metrics.gauge("c_total", "C.")


def test_a_part_that_defines_its_metrics_again_goes_on_with_their_values() -> None:
    metrics = Metrics()
    metrics.counter("c_total", "C.", ["verb"]).labels("get").inc()
    metrics.counter("c_total", "C.", ["verb"]).labels("get").inc()
    assert samples(metrics) == {("c_total", ("get",)): 2}
    metrics.histogram("h_seconds", "H.", bounds=(1.0,))
    with pytest.raises(ValueError, match="already exists, with another kind, text, labels or buckets"):
        metrics.histogram("h_seconds", "H.", bounds=(2.0,))


def test_followed_series_are_read_at_each_scrape_and_replaced_by_a_later_source() -> None:
    metrics = Metrics()
    adds = metrics.counter("adds_total", "Adds.", ["name"])
    adds.follow(lambda: 1.0, "pods")
    adds.follow(lambda: 5.0, "pods")
    objects = {("a",): 1.0}
    gauge = metrics.gauge("objects", "Objects.", ["resource"])
    gauge.follow_each(lambda: {("gone",): 9.0})
    gauge.follow_each(lambda: objects)
    spread = Distribution((0.1,))
    spread.observe(0.05)
    metrics.histogram("h_seconds", "H.", ["verb"], bounds=(0.1,)).follow_each(lambda: [(("get",), spread)])
    objects["b",] = 2.0
    assert samples(metrics) == {
        ("adds_total", ("pods",)): 5,
        ("objects", ("a",)): 1,
        ("objects", ("b",)): 2,
        ("h_seconds_bucket", ("0.1", "get")): 1,
        ("h_seconds_bucket", ("+Inf", "get")): 1,
        ("h_seconds_count", ("get",)): 1,
        ("h_seconds_sum", ("get",)): pytest.approx(0.05),
    }


def test_counting_and_formatting_do_not_load_the_prometheus_library() -> None:
    code = (
        "import sys; from shoal.base.metrics import Metrics; m = Metrics(); m.counter('a_total', 'A.').inc();"
        "m.render(); assert 'prometheus_client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_exposition_of_a_process_includes_its_memory() -> None:
    assert b"process_resident_memory_bytes " in metrics_page()[0]


async def test_the_exposition_of_a_process_counts_its_tasks() -> None:
    def shown() -> float:
        families = text_string_to_metric_families(metrics_page()[0].decode())
        return next(each.samples[0].value for each in families if each.name == "shoal_process_tasks")

    before = shown()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(asyncio.Event().wait(), name=f"waiting/{at}") for at in range(3)]
        assert shown() == before + 3
        for task in waiting:
            task.cancel()
    assert shown() == before


def test_a_process_without_an_event_loop_has_no_tasks() -> None:
    assert b"\nshoal_process_tasks 0" in metrics_page()[0]
