"""The bootstrap of Envoy has a collector of traces only if one is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.sentinel.bootstrap import Bootstrap, bootstrap


def clusters(url: str) -> dict[str, Any]:
    wanted = Bootstrap(
        node="n", cluster="c", region="eu", zone="", xds_socket=Path("/x"), admin_socket=Path("/a"), max_connections=1,
        max_heap_bytes=0, traces_url=url,
    )  # fmt: skip
    return {one["name"]: one for one in bootstrap(wanted)["static_resources"]["clusters"]}


def test_a_collector_is_a_cluster_with_the_machine_s_trust_where_it_has_tls() -> None:
    assert set(clusters("")) == {"xds", "replicas"}
    plain, secure = clusters("http://10.0.0.7:4318")["traces"], clusters("https://otlp.example")["traces"]
    address = {"socket_address": {"address": "10.0.0.7", "port_value": 4318}}
    assert plain["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] == address
    assert "transport_socket" not in plain
    assert secure["transport_socket"]["typed_config"]["sni"] == "otlp.example"
