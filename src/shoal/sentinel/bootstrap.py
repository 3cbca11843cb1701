"""Envoy's bootstrap configuration: its identity, its discovery server and its limits.

Discovery provides all configuration of traffic. Envoy's admin interface has no port, only a Unix socket in the
gateway's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shoal.kube.objects import Obj
from shoal.sentinel.headers import DEPLOYMENT_HEADER, PRINCIPAL_HEADER
from shoal.sentinel.translate.envoy import REPLICAS, REQUESTS, RUNTIME, TRACES
from shoal.sentinel.translate.rules import FIRST_VERDICT
from shoal.sync.counters import LATENCY_MS

XDS_CLUSTER = "xds"
_TRUSTED = "/etc/ssl/certs/ca-certificates.crt"  # what the machine trusts, for a collector with TLS
SOCKET_PATH_MAX = 100  # the kernel takes 107 bytes; Envoy adds some

BEYOND_MS = 1e12  # Envoy shows nothing above its last bound, so the last one is above all possible values

# The first lookup of a custom header makes Envoy index all headers of a request, so these are registered at start.
_OFTEN = (DEPLOYMENT_HEADER, FIRST_VERDICT, PRINCIPAL_HEADER)

# Every stat costs memory per cluster and time per read. These are read by ``shoal.sentinel.stats`` or describe Envoy.
_CLUSTER_STATS = (
    "upstream_rq_timeout|upstream_rq_retry|upstream_rq_active|"
    "upstream_cx_connect_fail|upstream_rq_pending_overflow|membership_healthy|membership_total"
)
_OWN_STATS = (
    r"^server\.(live|uptime|memory_allocated|total_connections|initialization_time_ms|days_until_first_cert_expiring)$",
    r"^http\.[^.]+\.(downstream_rq_(1|2|3|4|5)xx|downstream_cx_active|downstream_rq_active|no_route)$",
    r"^listener_manager\.(listener_create_failure|total_listeners_active|total_listeners_warming)$",
    r"^overload\..*",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    node: str
    cluster: str
    region: str
    zone: str
    xds_socket: Path
    admin_socket: Path
    max_connections: int
    max_heap_bytes: int  # 0: no limit
    traces_url: str = ""  # of the collector of traces; empty: none


def bootstrap(wanted: Bootstrap) -> Obj:
    return {
        "node": {
            "id": wanted.node,
            "cluster": wanted.cluster,
            "locality": {"region": wanted.region, "zone": wanted.zone},
        },
        "admin": {"address": _pipe(wanted.admin_socket)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER}}],
            },
            "cds_config": _ads(),
            "lds_config": _ads(),
        },
        "static_resources": {"clusters": [_xds(wanted.xds_socket), replicas(), *_collector(wanted.traces_url)]},
        "cluster_manager": {"local_cluster_name": REPLICAS},
        "inline_headers": [{"inline_header_name": name, "inline_header_type": "REQUEST_HEADER"} for name in _OFTEN],
        "overload_manager": _overload(wanted),
        "layered_runtime": {"layers": [{"name": "static", "static_layer": dict(RUNTIME)}]},
        "stats_config": _stats(),
        # Histograms are merged when they are asked for, after the answer: an answer has what there was at the last one.
        # By a timer of its own, Envoy would not say when it was.
        "stats_flush_on_admin": True,
    }


def _pipe(path: Path) -> Obj:
    return {"pipe": {"path": str(path), "mode": 0o600}}


def _ads() -> Obj:
    # Wait for the first configuration without a timeout: without routes, Envoy would answer 404 to every request.
    return {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}


def replicas() -> Obj:
    """The cluster of this gateway's replicas, for zone weights and shared limits. Envoy needs the cluster at start;
    discovery provides its endpoints."""
    return {
        "name": REPLICAS,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"eds_config": _ads(), "service_name": REPLICAS},
    }


def _xds(socket: Path) -> Obj:
    return {
        "name": XDS_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": XDS_CLUSTER,
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": str(socket)}}}}]},
            ],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }


def _collector(url: str) -> list[Obj]:
    """The collector of traces. It is here because a tracer's cluster must exist before the listener that uses it."""
    if not url:
        return []
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    address = {"socket_address": {"address": host, "port_value": port}}
    made: Obj = {
        "name": TRACES,
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": TRACES,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if secure:
        made["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": host,
                "common_tls_context": {
                    "validation_context": {
                        "trusted_ca": {"filename": _TRUSTED},
                        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": host}}],
                    }
                },
            },
        }
    return [made]


def _overload(wanted: Bootstrap) -> Obj:
    monitors: list[Obj] = [
        {
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
                ".DownstreamConnectionsConfig",
                "max_active_downstream_connections": wanted.max_connections,
            },
        }
    ]
    actions: list[Obj] = []
    if wanted.max_heap_bytes:
        heap = "envoy.resource_monitors.fixed_heap"
        monitors.append(
            {
                "name": heap,
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": wanted.max_heap_bytes,
                },
            }
        )
        actions = [
            _action("envoy.overload_actions.shrink_heap", heap, 0.9),
            _action("envoy.overload_actions.disable_http_keepalive", heap, 0.92),
            _action("envoy.overload_actions.stop_accepting_requests", heap, 0.95),
        ]
    return {"refresh_interval": "0.25s", "resource_monitors": monitors, "actions": actions}


def _action(name: str, monitor: str, at: float) -> Obj:
    return {"name": name, "triggers": [{"name": monitor, "threshold": {"value": at}}]}


def _stats() -> Obj:
    patterns = [rf"^{REQUESTS}\..*", rf"^cluster\.(deployment|sticky|local)_[^.]+\.({_CLUSTER_STATS})$", *_OWN_STATS]
    return {
        "use_all_default_tags": False,
        "stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": one}} for one in patterns]}},
        "histogram_bucket_settings": [
            {
                "match": {"safe_regex": {"regex": rf"^{REQUESTS}\..*"}},
                "buckets": [*LATENCY_MS, BEYOND_MS],
            },
        ],
    }
