"""What is counted of the page."""

from __future__ import annotations

from shoal.base.metrics import Metrics


class PageMetrics:
    """``topic`` is the name of a topic, without its parameters."""

    def __init__(self, metrics: Metrics) -> None:
        self.streams = metrics.gauge("shoal_page_streams", "Open streams of pages in browsers", ("kind",))
        self.feeds = metrics.gauge("shoal_page_feeds", "Topics that are computed for open pages", ("topic",))
