"""The settings of an edge that change while it runs: its own, when its process reads them again, and the options that
the manager stores for one edge or for all, which win over them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.base.settings import text_of, value_of, with_values
from shoal.errors import ConfigError
from shoal.navigator.edge.config import EdgeConfig

RUN_TIME: tuple[str, ...] = (
    "discovery_s",
    "sync.interval_s",
    "sync.min_interval_s",
    "sync.max_interval_s",
    "sync.busy_changes",
    "connection.connect_timeout_s",
    "connection.request_timeout_s",
    "connection.retry_count",
    "connection.retry_base_s",
    "connection.retry_cap_s",
    "connection.standby_s",
    "connection.send_queue",
    "connection.keep_alive_s",
    "connection.keep_alive_timeout_s",
    "kubernetes.retry_count",
    "kubernetes.retry_base_s",
    "kubernetes.retry_cap_s",
    "namespaces.include",
    "namespaces.exclude",
    "namespaces.one_by_one",
    "events.most",
    "requests.workers",
    "requests.waiting",
    "requests.followers",
    "requests.longest_s",
    "requests.envoy_admin_port",
    "calls.gateways",
    "calls.istio_proxies",
    "calls.interval_s",
    "calls.keep_s",
)
"""Dotted names. The others are read once: files, addresses, and what is agreed upon when a stream begins."""


def with_options(config: EdgeConfig, options: Mapping[str, str]) -> EdgeConfig:
    """The settings with the manager's options; ``ConfigError`` names the one that is wrong."""
    for name in options:
        if name not in RUN_TIME:
            raise ConfigError(f"{name} is not an option of edges; use one of: {', '.join(RUN_TIME)}")
    return with_values(config, options, "option of the manager")


def check_options(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` unless an edge whose own settings are the defaults would take them."""
    with_options(EdgeConfig(join=Path("unset")), options)


def shown_options(config: EdgeConfig) -> dict[str, str]:
    """The values of all settings that may change, as texts."""
    return {name: text_of(value_of(config, name)) for name in RUN_TIME}
