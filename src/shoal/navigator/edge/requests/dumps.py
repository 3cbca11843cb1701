"""Parses Envoy's configuration dumps into listeners, routes, clusters and endpoints. Pure.

Input: the documents ``/config_dump?include_eds``, ``/clusters?format=json`` and ``/server_info`` of the admin
interface; each of the last two may be missing. Endpoints come from the configuration and from ``/clusters``, which
also has their health. Unknown fields are left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.kube.objects import Obj

_STATES = ("active", "warming", "draining", "error")
_CLUSTERS = (
    ("static_clusters", "static"),
    ("dynamic_active_clusters", "active"),
    ("dynamic_warming_clusters", "warming"),
)


def parsed(dump: Obj, live: Obj | None = None, info: Obj | None = None) -> Obj:
    """The complete configuration of a proxy."""
    parts = {_type(part): part for part in dump.get("configs") or ()}
    about = info or {}
    bootstrap = (parts.get("BootstrapConfigDump") or {}).get("bootstrap") or {}
    node = about.get("node") or bootstrap.get("node") or {}
    return _filled(
        version=about.get("version"),
        state=about.get("state"),
        node=_filled(id=node.get("id"), cluster=node.get("cluster"), locality=locality_of(node.get("locality"))),
        listeners=list(_listeners(parts.get("ListenersConfigDump") or {})),
        routes=list(_routes(parts.get("RoutesConfigDump") or {})),
        clusters=list(_clusters(parts.get("ClustersConfigDump") or {})),
        endpoints=endpoints(parts.get("EndpointsConfigDump") or {}, live or {}),
    )


def _type(part: Obj) -> str:
    found: str = part.get("@type", "").rpartition(".")[2]
    return found


# listeners


def _listeners(dump: Obj) -> Iterator[Obj]:
    for item in dump.get("static_listeners") or ():
        yield _listener(item.get("listener") or {}, "static", "")
    for item in dump.get("dynamic_listeners") or ():
        for state in _STATES:
            held = item.get(f"{state}_state")
            if held is None:
                continue
            if state == "error":
                yield _filled(name=item.get("name"), status="error", error=held.get("details"))
            else:
                yield _listener(held.get("listener") or {}, state, held.get("version_info", ""), item.get("name", ""))


def _listener(listener: Obj, status: str, version: str, name: str = "") -> Obj:
    address, port = address_of(listener.get("address"))
    chains = [_chain(chain, default=False) for chain in listener.get("filter_chains") or ()]
    if listener.get("default_filter_chain"):
        chains.append(_chain(listener["default_filter_chain"], default=True))
    return _filled(
        name=listener.get("name") or name,
        address=address,
        port=port,
        direction=str(listener.get("traffic_direction") or "").lower(),
        status=status,
        version=version,
        filterChains=chains,
    )


def _chain(chain: Obj, *, default: bool) -> Obj:
    filters = chain.get("filters") or ()
    managers = [each.get("typed_config") or {} for each in filters if _is(each, "HttpConnectionManager")]
    proxies = [each.get("typed_config") or {} for each in filters if _is(each, "TcpProxy")]
    http = managers[0] if managers else {}
    tcp = proxies[0] if proxies else {}
    return _filled(
        name=chain.get("name"),
        default=default or None,
        match=chain.get("filter_chain_match"),
        tls=("transport_socket" in chain) or None,
        filters=[each.get("name", "") for each in filters],
        httpFilters=[each.get("name", "") for each in http.get("http_filters") or ()],
        routeConfig=(http.get("rds") or {}).get("route_config_name") or (http.get("route_config") or {}).get("name"),
        clusters=_tcp_clusters(tcp),
    )


def _is(filter_: Obj, kind: str) -> bool:
    return str((filter_.get("typed_config") or {}).get("@type", "")).endswith(f".{kind}")


def _tcp_clusters(tcp: Obj) -> list[Obj]:
    if tcp.get("cluster"):
        return [{"name": tcp["cluster"]}]
    return _weighted(tcp.get("weighted_clusters"))


# routes


def _routes(dump: Obj) -> Iterator[Obj]:
    for origin in ("static", "dynamic"):
        for item in dump.get(f"{origin}_route_configs") or ():
            config = item.get("route_config") or {}
            yield _filled(
                name=config.get("name"),
                origin=origin,
                version=item.get("version_info"),
                virtualHosts=[_virtual_host(host) for host in config.get("virtual_hosts") or ()],
            )


def _virtual_host(host: Obj) -> Obj:
    return _filled(
        name=host.get("name"),
        domains=host.get("domains"),
        routes=[_route(route) for route in host.get("routes") or ()],
    )


def _route(route: Obj) -> Obj:
    action = route.get("route") or {}
    weighted = _weighted(action.get("weighted_clusters"))
    single = [{"name": action["cluster"]}] if action.get("cluster") else []
    return _filled(
        name=route.get("name"),
        match=route.get("match"),
        clusters=single or weighted,
        clusterHeader=action.get("cluster_header"),
        timeout=action.get("timeout"),
        prefixRewrite=action.get("prefix_rewrite"),
        hostRewrite=action.get("host_rewrite_literal"),
        redirect=route.get("redirect"),
        directResponse=(route.get("direct_response") or {}).get("status"),
    )


def _weighted(clusters: Obj | None) -> list[Obj]:
    found = (clusters or {}).get("clusters") or ()
    return [_filled(name=each.get("name"), weight=each.get("weight")) for each in found]


# clusters


def _clusters(dump: Obj) -> Iterator[Obj]:
    parts = (
        ("static_clusters", "static"),
        ("dynamic_active_clusters", "active"),
        ("dynamic_warming_clusters", "warming"),
    )
    for field, status in parts:
        for item in dump.get(field) or ():
            cluster = item.get("cluster") or {}
            name = cluster.get("name") or ""
            yield _filled(
                name=name,
                **service_of(name),
                type=cluster.get("type") or (cluster.get("cluster_type") or {}).get("name"),
                lbPolicy=cluster.get("lb_policy"),
                connectTimeout=cluster.get("connect_timeout"),
                tls=("transport_socket" in cluster or "transport_socket_matches" in cluster) or None,
                outlierDetection=("outlier_detection" in cluster) or None,
                status=status,
                version=item.get("version_info"),
            )


def service_of(name: str) -> Obj:
    """The service in Istio's name of a cluster, such as ``outbound|9080|v1|reviews.default.svc.cluster.local``."""
    parts = name.split("|")
    if len(parts) != 4 or not parts[1].isdigit():
        return {}
    direction, port, subset, host = parts
    return _filled(direction=direction, port=int(port), subset=subset, host=host)


# endpoints


def endpoints(configured: Obj, live: Obj) -> list[Obj]:
    """Every endpoint once, with priority, locality and health. Fields of the live view take precedence."""
    found: dict[tuple[str, str, int], Obj] = {}
    for field in ("static_endpoint_configs", "dynamic_endpoint_configs"):
        for item in configured.get(field) or ():
            for endpoint in _configured(item.get("endpoint_config") or {}):
                found[_identity(endpoint)] = endpoint
    for status in live.get("cluster_statuses") or ():
        for host in status.get("host_statuses") or ():
            endpoint = _live(status.get("name") or "", host)
            found[_identity(endpoint)] = found.get(_identity(endpoint), {}) | endpoint
    return list(found.values())


def _identity(endpoint: Obj) -> tuple[str, str, int]:
    return endpoint["cluster"], endpoint.get("address", ""), endpoint.get("port", 0)


def _configured(assignment: Obj) -> Iterator[Obj]:
    for group in assignment.get("endpoints") or ():
        for item in group.get("lb_endpoints") or ():
            address, port = address_of((item.get("endpoint") or {}).get("address"))
            yield _filled(
                cluster=assignment.get("cluster_name") or "",
                address=address,
                port=port,
                priority=group.get("priority") or 0,
                locality=locality_of(group.get("locality")),
                weight=item.get("load_balancing_weight"),
                health=str(item.get("health_status") or "UNKNOWN").lower(),
            )


def _live(cluster: str, host: Obj) -> Obj:
    address, port = address_of(host.get("address"))
    return _filled(
        cluster=cluster,
        address=address,
        port=port,
        priority=host.get("priority") or 0,
        locality=locality_of(host.get("locality")),
        weight=host.get("weight"),
        health=health_of(host.get("health_status") or {}),
    )


def health_of(status: Obj) -> str:
    """``healthy``, or the reason why the endpoint receives no requests."""
    reasons = [
        name
        for name in ("failed_active_health_check", "failed_outlier_check", "failed_active_degraded_check")
        if status.get(name)
    ]
    if reasons:
        return reasons[0]
    health = str(status.get("eds_health_status") or "HEALTHY").lower()
    return "healthy" if health == "unknown" else health


# shared


def address_of(address: Obj | None) -> tuple[str, int]:
    """Host and port; of a pipe or an internal listener its name, and 0."""
    held = address or {}
    if "socket_address" in held:
        socket = held["socket_address"]
        return str(socket.get("address", "")), int(socket.get("port_value") or 0)
    if "pipe" in held:
        return str(held["pipe"].get("path", "")), 0
    internal = held.get("envoy_internal_address") or {}
    return str(internal.get("server_listener_name", "")), 0


def locality_of(locality: Obj | None) -> Obj | None:
    held = locality or {}
    made = _filled(region=held.get("region"), zone=held.get("zone"), subZone=held.get("sub_zone"))
    return made or None


def _filled(**fields: Any) -> Obj:
    """Only what is known: 0 and False are, empty texts and None are not."""
    return {name: value for name, value in fields.items() if value is not None and value != ""}
