"""The queue of a controller, from its metrics."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.sharding.proxy.load import QueueSource, read_queue_source, total

METRICS = """\
# HELP workqueue_depth Current depth of workqueue
# TYPE workqueue_depth gauge
workqueue_depth{name="web site",controller="{odd}"} 3
workqueue_depth{name="b"} 4.5e+01 1700000000000
workqueue_depth_total{name="b"} 1000
workqueue_depth broken
"""


def test_a_metric_is_summed_over_its_labels() -> None:
    assert total(METRICS, "workqueue_depth") == 48.0
    assert total("queue 7\nqueued 8\n", "queue") == 7.0
    assert total(METRICS, "absent") == 0.0


def test_only_plain_http_urls_are_sources() -> None:
    assert read_queue_source("", "q") is None
    assert read_queue_source("http://127.0.0.1:8080", "q") == QueueSource("127.0.0.1", 8080, "/metrics", "q")
    for url in ("https://127.0.0.1/metrics", "127.0.0.1:8080", "http://127.0.0.1:99999/metrics"):
        with pytest.raises(ConfigError, match="use http://HOST:PORT/PATH"):
            read_queue_source(url, "q")
