"""The settings of an edge: where they come from, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.base.settings import load
from shoal.errors import ConfigError
from shoal.navigator.edge.config import (
    ConnectionConfig,
    EdgeConfig,
    EdgeJoinFile,
    EventsConfig,
    NamespaceConfig,
    RequestConfig,
    SyncConfig,
    read_join_file,
)


def test_settings_come_from_file_environment_and_flags_in_that_order(tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"
    file.write_text("sync: {interval_s: 20}\nconnection: {send_queue: 7, keep_alive_s: 9}\nport: 1\n")
    environ = {"SHOAL_EDGE_CONNECTION__KEEP_ALIVE_S": "8", "SHOAL_EDGE_NAMESPACES__EXCLUDE": "a, b-*"}
    flags: dict[str, Any] = {"join": tmp_path / "join", "port": 3}
    config = load(EdgeConfig, file=file, environ=environ, prefix="SHOAL_EDGE_", flags=flags)
    assert (config.sync.interval_s, config.connection.send_queue, config.connection.keep_alive_s) == (20.0, 7, 8.0)
    assert config.namespaces.exclude == ("a", "b-*") and config.port == 3
    assert config.connection.max_message_bytes == 4 * 1024 * 1024 and config.sync.max_interval_s == 60.0


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: SyncConfig(interval_s=0), "interval_s"),
        (lambda: SyncConfig(min_interval_s=31), "min_interval_s"),
        (lambda: SyncConfig(max_interval_s=1), "max_interval_s"),
        (lambda: SyncConfig(busy_changes=0), "busy_changes"),
        (lambda: EventsConfig(most=-1), "events.most"),
        (lambda: ConnectionConfig(connect_timeout_s=0), "connect_timeout_s"),
        (lambda: ConnectionConfig(request_timeout_s=-1), "request_timeout_s"),
        (lambda: ConnectionConfig(retry_count=-1), "retry_count"),
        (lambda: ConnectionConfig(retry_base_s=40), "retry_cap_s"),
        (lambda: ConnectionConfig(send_queue=0), "send_queue"),
        (lambda: ConnectionConfig(keep_alive_s=0), "keep_alive_s"),
        (lambda: ConnectionConfig(keep_alive_timeout_s=0), "keep_alive_timeout_s"),
        (lambda: ConnectionConfig(max_message_bytes=100), "max_message_bytes"),
        (lambda: RequestConfig(workers=0), "workers"),
        (lambda: RequestConfig(waiting=0), "waiting"),
        (lambda: RequestConfig(followers=0), "followers"),
        (lambda: RequestConfig(longest_s=0), "longest_s"),
        (lambda: RequestConfig(prometheus="here"), "prometheus"),
        (lambda: RequestConfig(prometheus_cluster_label="x"), "prometheus_cluster_label"),
        (lambda: EdgeConfig(join=Path(), discovery_s=0), "discovery_s"),
        (lambda: EdgeConfig(join=Path(), connection=ConnectionConfig(keep_alive_s=91)), "keep_alive_s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(make: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()


def test_a_join_file_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "join.yaml"
    path.write_text("url: https://h:1\ntoken: t\nca: PEM\ncluster: east\n")
    assert read_join_file(path) == EdgeJoinFile(url="https://h:1", token="t", ca="PEM", cluster="east")
    for text, fix in (
        ("url: https://h:1\ntoken: t\n", "ca is not set"),
        ("url: h:1\ntoken: t\n", "https://HOST:PORT"),
        ("url: http://h:1\n", "token"),
        ("url: http://h:1\ntoken: ''\n", "shoal navigator token create"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=fix):
            read_join_file(path)


def test_no_namespace_is_left_out_by_default() -> None:
    assert NamespaceConfig() == NamespaceConfig(include=(), exclude=())
