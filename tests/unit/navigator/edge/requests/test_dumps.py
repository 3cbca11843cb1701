"""Configuration dumps of Istio's proxies: dynamic, with warming and failed parts."""

from __future__ import annotations

from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.edge.requests.dumps import endpoints, health_of, parsed, service_of

HOST = "reviews.shop.svc.cluster.local"
NAME = f"outbound|9080||{HOST}"


def part(kind: str, **fields: Any) -> Obj:
    return {"@type": f"type.googleapis.com/envoy.admin.v3.{kind}", **fields}


def socket(address: str, port: int) -> Obj:
    return {"socket_address": {"address": address, "port_value": port}}


def test_endpoints_keep_priority_locality_weight_and_health() -> None:
    locality = {"region": "eu", "zone": "eu-1", "sub_zone": "rack-7"}
    assignment = {
        "cluster_name": NAME,
        "endpoints": [
            {"locality": locality, "lb_endpoints": [
                {"endpoint": {"address": socket("10.0.0.1", 80)}, "load_balancing_weight": 3, "health_status": "HEALTHY"}
            ]},
            {"locality": {"region": "us"}, "priority": 1, "lb_endpoints": [
                {"endpoint": {"address": socket("10.0.0.2", 80)}, "health_status": "UNHEALTHY"}
            ]},
        ],
    }  # fmt: skip
    configured = {"dynamic_endpoint_configs": [{"endpoint_config": assignment}]}
    first, second = endpoints(configured, {})
    assert first == {
        "cluster": NAME, "address": "10.0.0.1", "port": 80, "priority": 0, "weight": 3, "health": "healthy",
        "locality": {"region": "eu", "zone": "eu-1", "subZone": "rack-7"},
    }  # fmt: skip
    assert (second["priority"], second["health"], second["locality"]) == (1, "unhealthy", {"region": "us"})


def test_the_live_view_wins_and_adds_what_was_not_configured() -> None:
    configured = {"static_endpoint_configs": [{"endpoint_config": {"cluster_name": "a", "endpoints": [
        {"priority": 2, "lb_endpoints": [{"endpoint": {"address": socket("1.1.1.1", 1)}}]}
    ]}}]}  # fmt: skip
    live = {"cluster_statuses": [{"name": "a", "host_statuses": [
        {"address": socket("1.1.1.1", 1), "priority": 2, "health_status": {"failed_outlier_check": True}},
        {"address": socket("2.2.2.2", 1), "health_status": {"eds_health_status": "DRAINING"}},
    ]}]}  # fmt: skip
    found = {each["address"]: (each["priority"], each["health"]) for each in endpoints(configured, live)}
    assert found == {"1.1.1.1": (2, "failed_outlier_check"), "2.2.2.2": (0, "draining")}
    assert health_of({}) == "healthy"


def test_listeners_in_every_state_are_distinguished() -> None:
    listener = {"name": "virtualInbound", "address": socket("0.0.0.0", 15006), "traffic_direction": "INBOUND"}
    tcp = {"name": "tcp", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "weighted_clusters": {"clusters": [{"name": "a", "weight": 80}, {"name": "b", "weight": 20}]},
    }}  # fmt: skip
    http = {"name": "http", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "rds": {"route_config_name": "9080"}, "http_filters": [{"name": "envoy.filters.http.router"}],
    }}  # fmt: skip
    outbound = {
        "name": "0.0.0.0_9080", "address": socket("0.0.0.0", 9080), "traffic_direction": "OUTBOUND",
        "filter_chains": [{"filters": [http], "transport_socket": {}, "filter_chain_match": {"server_names": ["x"]}}],
        "default_filter_chain": {"name": "PassthroughFilterChain", "filters": [tcp]},
    }  # fmt: skip
    dump = {"configs": [part("ListenersConfigDump", dynamic_listeners=[
        {"name": "virtualInbound", "active_state": {"version_info": "v7", "listener": listener},
         "draining_state": {"listener": listener}},
        {"name": "0.0.0.0_9080", "warming_state": {"listener": outbound}},
        {"name": "broken", "error_state": {"details": "no such filter"}},
    ])]}  # fmt: skip
    found = parsed(dump)["listeners"]
    assert [(each["name"], each["status"]) for each in found] == [
        ("virtualInbound", "active"), ("virtualInbound", "draining"), ("0.0.0.0_9080", "warming"), ("broken", "error")
    ]  # fmt: skip
    assert (found[0]["direction"], found[0]["version"], found[0]["port"]) == ("inbound", "v7", 15006)
    chain, default = found[2]["filterChains"]
    assert chain["routeConfig"] == "9080" and chain["tls"] and chain["httpFilters"] == ["envoy.filters.http.router"]
    assert default["default"] and default["clusters"] == [{"name": "a", "weight": 80}, {"name": "b", "weight": 20}]
    assert found[3]["error"] == "no such filter"


def test_routes_and_clusters_are_read() -> None:
    routes = [
        {"match": {"prefix": "/a"}, "route": {"cluster": NAME, "timeout": "0s"}},
        {"match": {"path": "/b"}, "redirect": {"path_redirect": "/c"}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
        {"route": {"weighted_clusters": {"clusters": [{"name": "v1", "weight": 1}]}}},
    ]
    config = {"name": "9080", "virtual_hosts": [{"name": HOST, "domains": [HOST, "reviews"], "routes": routes}]}
    dump = {"configs": [
        part("RoutesConfigDump", dynamic_route_configs=[{"version_info": "v1", "route_config": config}]),
        part("ClustersConfigDump", static_clusters=[{"cluster": {"name": "xds", "type": "STATIC"}}],
             dynamic_active_clusters=[{"cluster": {"name": NAME, "type": "EDS", "transport_socket_matches": []}}],
             dynamic_warming_clusters=[{"cluster": {"name": "warm"}}]),
    ]}  # fmt: skip
    found = parsed(dump, None, {"version": "1.34", "node": {"id": "sidecar~1"}})
    (host,) = found["routes"][0]["virtualHosts"]
    assert host["domains"] == [HOST, "reviews"]
    assert [set(route) - {"match"} for route in host["routes"]] == [
        {"clusters", "timeout"}, {"clusters", "redirect"}, {"clusters", "directResponse"}, {"clusters"}
    ]  # fmt: skip
    static, active, warming = found["clusters"]
    assert (static["status"], active["status"], warming["status"]) == ("static", "active", "warming")
    assert (active["host"], active["port"], active["direction"], active["tls"]) == (HOST, 9080, "outbound", True)
    assert found["version"] == "1.34" and found["node"] == {"id": "sidecar~1"}


def test_names_of_clusters_are_read_only_where_they_are_istios() -> None:
    assert service_of("outbound|80|v2|a.b") == {"direction": "outbound", "port": 80, "subset": "v2", "host": "a.b"}
    assert service_of("inbound|8080||") == {"direction": "inbound", "port": 8080}
    assert service_of("BlackHoleCluster") == service_of("a|b|c|d") == {}


def test_empty_and_unknown_dumps_give_an_empty_configuration() -> None:
    assert parsed({})["listeners"] == []
    assert parsed({"configs": [{}, part("SecretsConfigDump")]}, {}, {})["endpoints"] == []
