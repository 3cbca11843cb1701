"""Settings of a cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shoal.app.config import (
    ClusterConfig,
    ClusterOptions,
    StoreUrl,
    checked_config,
    opened_config,
    without_password,
)
from shoal.app.settings import CLUSTER, read_settings
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.errors import ConfigError
from shoal.node.config import NodeSettings


def test_without_flags_it_is_a_whole_cluster_on_sqlite_in_the_directory(tmp_path: Path) -> None:
    config = checked_config(ClusterOptions(dir=tmp_path))
    assert config.components == ("apiserver", "scheduler", "controllers", "nodes")
    assert config.store == StoreUrl("sqlite", tmp_path / "store.db")
    assert config.url == "https://127.0.0.1:6443"
    assert config.service_ip == "10.96.0.1"


def test_the_certificate_covers_every_name_clients_use(tmp_path: Path) -> None:
    config = checked_config(ClusterOptions(dir=tmp_path, host="10.1.2.3", tls_san=("shoal.example", "localhost")))
    assert config.certificate_hosts == (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.96.0.1",
        "10.1.2.3",
        "shoal.example",
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", StoreUrl("sqlite", Path("/d/store.db"))),
        ("sqlite", StoreUrl("sqlite", Path("/d/store.db"))),
        ("sqlite:x.db", StoreUrl("sqlite", Path("/d/x.db"))),
        ("sqlite:/var/x.db", StoreUrl("sqlite", Path("/var/x.db"))),
        ("sqlite:///x.db", StoreUrl("sqlite", Path("/d/x.db"))),
        ("sqlite:////var/x.db", StoreUrl("sqlite", Path("/var/x.db"))),
        ("memory", StoreUrl("memory")),
        ("postgresql://me@db/x", StoreUrl("postgresql", None, "postgresql://me@db/x")),
        ("memory:", StoreUrl("memory")),
        ("memory://", StoreUrl("memory")),
    ],
)
def test_store_urls(url: str, expected: StoreUrl) -> None:
    assert StoreUrl.parse(url, Path("/d")) == expected


def test_the_long_form_of_a_store_url_means_the_same_store() -> None:
    for store in (
        StoreUrl("memory"),
        StoreUrl("postgresql", None, "postgresql://db/x"),
        StoreUrl("sqlite", Path("/var/x.db")),
    ):
        assert StoreUrl.parse(store.url, Path("/d")) == store


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"nodes": -1}, "nodes is -1: use 0 or more"),
        ({"docker_socket": "/run/d.sock"}, "docker_socket is '/run/d.sock': it needs --runtime docker"),
        ({"pause_image": "p", "runtime": "process"}, "pause_image is 'p': it needs --runtime docker"),
        ({"runtime": "docker", "docker_socket": "tcp://h"}, "docker_socket is 'tcp://h': use /PATH or unix:///PATH"),
        ({"runtime": "magic"}, "runtime is 'magic': choose from process, sandbox, docker, simulated"),
        ({"events": "redis://me:hunter2@r"}, r"events is 'redis://me:\*\*\*@r': only servers that share a store"),
        ({"credentials": "/nowhere"}, "credentials is '/nowhere': it has no pki/ca.crt"),
        ({"server": "https://x"}, "server and kubeconfig are only for a process without an API server"),
        ({"kubeconfig": "f"}, "server and kubeconfig are only for a process without an API server"),
        ({"components": "scheduler"}, "kubeconfig is empty: components without an API server need --kubeconfig FILE"),
        ({"components": "apiserver,kubelet"}, "components has 'kubelet': choose from apiserver, scheduler"),
        ({"components": ","}, "components is empty: use apiserver"),
        ({"store": "postgresql:db"}, "store is 'postgresql:db': use sqlite:///PATH, postgresql://USER@HOST/DATABASE"),
        ({"store": "mysql://me:hunter2@db"}, r"store is 'mysql://me:\*\*\*@db': use sqlite:///PATH"),
        ({"port": 70000}, "port is 70000: use 1 to 65535"),
    ],
)
def test_invalid_settings_are_refused_before_any_change(tmp_path: Path, flags: dict, message: str) -> None:
    directory = tmp_path / "d"
    with pytest.raises(ConfigError, match=message), opened_config(ClusterOptions(dir=directory, **flags)):
        pass
    assert not directory.exists()


def test_a_service_range_must_be_a_range_with_room(tmp_path: Path) -> None:
    store = StoreUrl("memory")
    with pytest.raises(ConfigError, match="service_cidr is 'x'"):
        ClusterConfig(dir=tmp_path, store=store, service_cidr="x")
    with pytest.raises(ConfigError, match="too small"):
        ClusterConfig(dir=tmp_path, store=store, service_cidr="10.0.0.0/30")


def test_an_open_config_owns_the_directory_until_it_is_left(tmp_path: Path) -> None:
    options = ClusterOptions(dir=tmp_path / "d", port=0)
    with opened_config(options) as config:
        assert config.dir.stat().st_mode & 0o777 == 0o700
        with pytest.raises(ConfigError, match="already in use by process"), opened_config(options):
            pass
    with opened_config(options):
        pass


def test_an_address_that_means_all_is_reached_by_the_loopback(tmp_path: Path) -> None:
    store = StoreUrl("memory")
    assert ClusterConfig(dir=tmp_path, store=store, host="0.0.0.0", port=1).url == "https://127.0.0.1:1"
    assert ClusterConfig(dir=tmp_path, store=store, host="::1", port=1).url == "https://[::1]:1"


def test_passwords_are_removed_from_urls() -> None:
    assert without_password("redis://:p@h:1/0") == "redis://:***@h:1/0"
    assert without_password("redis://h:1/0") == "redis://h:1/0"
    assert without_password("postgresql://u@h/d") == "postgresql://u@h/d"


def test_resyncs_can_be_set_and_turned_off(tmp_path: Path) -> None:
    assert checked_config(ClusterOptions(dir=tmp_path)).resync_s == 600
    assert checked_config(ClusterOptions(dir=tmp_path, resync_s=0)).resync_s == 0
    with pytest.raises(ConfigError, match=r"resync_s is -1: use seconds, or 0"):
        checked_config(ClusterOptions(dir=tmp_path, resync_s=-1))


@pytest.mark.parametrize("url", ["redis://h", "redis://:p@h:6379/0", "rediss://h:1", "unix:///run/redis.sock"])
def test_a_redis_can_elect_scheduler_and_controllers(tmp_path: Path, url: str) -> None:
    assert checked_config(ClusterOptions(dir=tmp_path, lock=url)).lock == url
    assert checked_config(ClusterOptions(dir=tmp_path)).lock == ""


@pytest.mark.parametrize("url", ["redis://", "http://h:1", "h:6379", "redis://h:port", "unix://", "redis://u:geheim@"])
def test_a_lock_that_is_not_a_redis_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"lock is .*: use redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH"
    ) as e:
        checked_config(ClusterOptions(dir=tmp_path, lock=url))
    assert "geheim" not in str(e.value)


def test_service_range_event_retention_and_node_lifecycle_can_be_set(tmp_path: Path) -> None:
    lifecycle = NodeLifecycleConfig(grace_s=20.0)
    options = ClusterOptions(
        dir=tmp_path, runtime="simulated", service_cidr="10.50.0.0/24", event_ttl_s=60.0, node_lifecycle=lifecycle
    )
    config = checked_config(options)
    assert (config.service_ip, config.event_ttl_s, config.node_lifecycle) == ("10.50.0.1", 60.0, lifecycle)
    with pytest.raises(ConfigError, match=r"event_ttl_s is 0: use more than 0"):
        checked_config(ClusterOptions(dir=tmp_path, event_ttl_s=0))


def test_nodes_and_scheduler_profiles_come_from_file_variables_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text('scheduler_profiles: ["batch -ImageLocality"]\nnode: {labels: [disk=ssd], cpu: "2", pods: 30}\n')
    environ = {"SHOAL_CLUSTER_NODE__TAINTS": "gpu=yes:NoSchedule,old:NoExecute", "SHOAL_CLUSTER_NODE__CPU": "3"}
    flags = {"dir": tmp_path, "node.memory": "4Gi"}
    config = checked_config(read_settings(CLUSTER, flags, file=file, home=tmp_path, environ=environ))
    assert [profile.name for profile in config.profiles] == ["default-scheduler", "batch"]
    assert config.node == NodeSettings(
        labels=("disk=ssd",), taints=("gpu=yes:NoSchedule", "old:NoExecute"), cpu="3", memory="4Gi", pods=30
    )


def test_a_label_that_nodes_may_not_set_is_refused(tmp_path: Path) -> None:
    def labelled(text: str) -> ClusterOptions:
        return ClusterOptions(dir=tmp_path, node=NodeSettings(labels=(text,)))

    with pytest.raises(ConfigError, match=r"node.labels has 'kubernetes.io/role': a node may not give itself"):
        checked_config(labelled("kubernetes.io/role=db"))
    assert checked_config(labelled("topology.kubernetes.io/zone=a")).node.labels


def test_nodes_on_this_machine_refuse_a_service_range_that_is_not_theirs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"service_cidr is '10.50.0.0/24': nodes on this machine .* simulated"):
        checked_config(ClusterOptions(dir=tmp_path, service_cidr="10.50.0.0/24"))
    assert checked_config(ClusterOptions(dir=tmp_path, nodes=0, service_cidr="10.50.0.0/24")).service_ip == "10.50.0.1"


def test_a_health_port_is_only_for_processes_without_an_api_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="health_port is 9000: leave it out; the API server of this process answers"):
        checked_config(ClusterOptions(dir=tmp_path, health_port=9000))
    with pytest.raises(ConfigError, match="health_port is 70000: use 1 to 65535, or 0 for none"):
        checked_config(ClusterOptions(dir=tmp_path, health_port=70000))
    alone = ClusterOptions(dir=tmp_path, components="scheduler", kubeconfig="k", health_port=9000)
    assert checked_config(alone).health_port == 9000


@pytest.mark.parametrize(("text", "offered"), [("auto", True), ("on", True), ("off", False), ('"off"', False)])
def test_http2_comes_from_file_variables_and_flags(tmp_path: Path, text: str, offered: bool) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"http2: {text}\n")
    flags = {"dir": tmp_path}
    read = partial(read_settings, CLUSTER, home=tmp_path)
    assert checked_config(read(flags, file=file, environ={})).offers_http2 is offered
    assert not checked_config(read(flags, file=file, environ={"SHOAL_CLUSTER_HTTP2": "off"})).offers_http2
    assert checked_config(
        read({**flags, "http2": "on"}, file=file, environ={"SHOAL_CLUSTER_HTTP2": "off"})
    ).offers_http2
    with pytest.raises(ConfigError, match=r"http2 is 'maybe': choose from auto, on, off"):
        checked_config(ClusterOptions(dir=tmp_path, http2="maybe"))
