"""Clusters of the instances of deployments, and of the services that Envoy itself calls.

A deployment has up to three clusters: ``deployment/`` (least request, zones, peers as fallback), ``sticky/`` (the same
instances, chosen by a hash) if a route is sticky, and ``local/`` (without peers) if peers may send requests. Endpoints
and weights are not part of a cluster, so that Envoy does not rebuild it when they change.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, health_check_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.load_balancing_policies.common.v3 import common_pb2
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2
from envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2
from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, struct_pb2, wrappers_pb2

from shoal.crds.sentinel import Circuit
from shoal.sentinel.model import RouteTarget, Settings
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.endpoints import PEER_SOCKET, socket_address
from shoal.sentinel.translate.secrets import peer_transport, web_transport

LIMITS_SERVICE = "service/limits"
_PROTOCOLS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECT_TIMEOUT_S = 1.0
_IDLE_S = 90.0
_CONNECTIONS, _PENDING, _REQUESTS = 10_000, 10_000, 50_000
_RETRY_PERCENT, _RETRIES_AT_LEAST = 50.0, 100
_ZONES_FROM = 3  # instances; with fewer, zones are ignored
_EJECT_AFTER, _EJECT_S, _EJECT_MAX_PERCENT = 5, 10.0, 50


def clusters_of(target: RouteTarget, settings: Settings) -> dict[str, cluster_pb2.Cluster]:
    """The clusters of one deployment, by name."""
    deployment = target.deployment
    made = [_cluster(envoy.deployment_cluster(deployment), target, settings, _least_request(settings), peers=True)]
    if target.sticky:
        made.append(_cluster(envoy.sticky_cluster(deployment), target, settings, _ring_hash(), peers=True))
    if settings.entry_port:
        name = envoy.local_cluster(deployment)
        made.append(_cluster(name, target, settings, _least_request(settings), peers=False))
    return {cluster.name: cluster for cluster in made}


def _cluster(
    name: str, target: RouteTarget, settings: Settings, policy: cluster_pb2.LoadBalancingPolicy, *, peers: bool
) -> cluster_pb2.Cluster:
    service = envoy.deployment_cluster(target.deployment) if peers else name
    made = cluster_pb2.Cluster(
        name=name,
        alt_stat_name=name.replace("/", "_").replace(".", "_"),
        type=cluster_pb2.Cluster.DiscoveryType.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=envoy.ads(), service_name=service),
        connect_timeout=envoy.duration(_CONNECT_TIMEOUT_S),
        load_balancing_policy=policy,
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold=percent_pb2.Percent(value=0.0)),
        circuit_breakers=_circuit(target.circuit),
        outlier_detection=_outliers(),
        typed_extension_protocol_options={_PROTOCOLS: protocols(target.backend.protocol)},
    )
    if settings.health_check is not None:
        made.health_checks.append(_health_check(settings, target.backend.protocol))
    if peers and settings.entry_secret:
        made.transport_socket_matches.extend(_sockets(settings, target.backend.protocol))
    return made


def _least_request(settings: Settings) -> cluster_pb2.LoadBalancingPolicy:
    made = least_request_pb2.LeastRequest(
        choice_count=wrappers_pb2.UInt32Value(value=2),
        locality_lb_config=common_pb2.LocalityLbConfig(
            zone_aware_lb_config=common_pb2.LocalityLbConfig.ZoneAwareLbConfig(
                routing_enabled=percent_pb2.Percent(value=100.0 if settings.replicas and settings.zone else 0.0),
                min_cluster_size=wrappers_pb2.UInt64Value(value=_ZONES_FROM),
            )
        ),
    )
    return _policy("envoy.load_balancing_policies.least_request", envoy.packed(made))


def _ring_hash() -> cluster_pb2.LoadBalancingPolicy:
    # A ring moves the fewest clients when instances come and go; Maglev's table would be faster but moves more.
    made = ring_hash_pb2.RingHash(
        hash_function=ring_hash_pb2.RingHash.HashFunction.XX_HASH,
        minimum_ring_size=wrappers_pb2.UInt64Value(value=1024),
    )
    return _policy("envoy.load_balancing_policies.ring_hash", envoy.packed(made))


def _policy(name: str, packed: any_pb2.Any) -> cluster_pb2.LoadBalancingPolicy:
    made = cluster_pb2.LoadBalancingPolicy()
    made.policies.add().typed_extension_config.name = name
    made.policies[0].typed_extension_config.typed_config.CopyFrom(packed)
    return made


def protocols(protocol: str) -> any_pb2.Any:
    explicit = http_protocol_options_pb2.HttpProtocolOptions.ExplicitHttpConfig()
    if protocol == "h2c":
        explicit.http2_protocol_options.SetInParent()
    else:
        explicit.http_protocol_options.SetInParent()
    return envoy.packed(
        http_protocol_options_pb2.HttpProtocolOptions(
            explicit_http_config=explicit,
            common_http_protocol_options=protocol_pb2.HttpProtocolOptions(idle_timeout=envoy.duration(_IDLE_S)),
        )
    )


def _circuit(circuit: Circuit) -> circuit_breaker_pb2.CircuitBreakers:
    limits = circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_connections=wrappers_pb2.UInt32Value(value=circuit.connections or _CONNECTIONS),
        max_pending_requests=wrappers_pb2.UInt32Value(value=circuit.pending or _PENDING),
        max_requests=wrappers_pb2.UInt32Value(value=circuit.requests or _REQUESTS),
        retry_budget=circuit_breaker_pb2.CircuitBreakers.Thresholds.RetryBudget(
            budget_percent=percent_pb2.Percent(value=_RETRY_PERCENT),
            min_retry_concurrency=wrappers_pb2.UInt32Value(value=_RETRIES_AT_LEAST),
        ),
    )
    return circuit_breaker_pb2.CircuitBreakers(thresholds=[limits])


def _outliers() -> outlier_detection_pb2.OutlierDetection:
    """Eject an instance after two failed connections, or after five answers with a gateway error."""
    return outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=wrappers_pb2.UInt32Value(value=2),
        consecutive_gateway_failure=wrappers_pb2.UInt32Value(value=_EJECT_AFTER),
        enforcing_consecutive_gateway_failure=wrappers_pb2.UInt32Value(value=100),
        enforcing_consecutive_5xx=wrappers_pb2.UInt32Value(value=0),  # a 500 of the app says nothing about the instance
        enforcing_success_rate=wrappers_pb2.UInt32Value(value=0),
        enforcing_local_origin_success_rate=wrappers_pb2.UInt32Value(value=0),
        interval=envoy.duration(1.0),
        base_ejection_time=envoy.duration(_EJECT_S),
        max_ejection_time=envoy.duration(_EJECT_S * 6),
        max_ejection_percent=wrappers_pb2.UInt32Value(value=_EJECT_MAX_PERCENT),
    )


def _health_check(settings: Settings, protocol: str) -> health_check_pb2.HealthCheck:
    check = settings.health_check
    assert check is not None
    made = health_check_pb2.HealthCheck(
        timeout=envoy.duration(check.timeout_s),
        interval=envoy.duration(check.interval_s),
        unhealthy_threshold=wrappers_pb2.UInt32Value(value=2),
        healthy_threshold=wrappers_pb2.UInt32Value(value=1),
    )
    if check.path:
        made.http_health_check.path = check.path
        if protocol == "h2c":
            made.http_health_check.codec_client_type = 1
    else:
        made.tcp_health_check.SetInParent()
    return made


def _sockets(settings: Settings, protocol: str) -> Iterable[cluster_pb2.Cluster.TransportSocketMatch]:
    """Mutual TLS to peers, plain connections to instances."""
    mark = struct_pb2.Struct(fields={PEER_SOCKET: struct_pb2.Value(bool_value=True)})
    yield cluster_pb2.Cluster.TransportSocketMatch(
        name=PEER_SOCKET, match=mark, transport_socket=peer_transport(settings, protocol)
    )
    plain = base_pb2.TransportSocket(
        name="envoy.transport_sockets.raw_buffer", typed_config=envoy.packed(raw_buffer_pb2.RawBuffer())
    )
    yield cluster_pb2.Cluster.TransportSocketMatch(name="instance", match=struct_pb2.Struct(), transport_socket=plain)


def empty_cluster() -> cluster_pb2.Cluster:
    """For backends without a deployment: their share of the requests is refused."""
    return cluster_pb2.Cluster(
        name=envoy.EMPTY_CLUSTER,
        type=cluster_pb2.Cluster.DiscoveryType.STATIC,
        connect_timeout=envoy.duration(_CONNECT_TIMEOUT_S),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(cluster_name=envoy.EMPTY_CLUSTER),
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold=percent_pb2.Percent(value=0.0)),
    )


def service_clusters(settings: Settings) -> dict[str, cluster_pb2.Cluster]:
    """The gateway's own gRPC services, which Envoy calls over Unix sockets."""
    sockets = {LIMITS_SERVICE: settings.limits_socket}
    return {name: _on_socket(name, path) for name, path in sockets.items() if path}


def _on_socket(name: str, path: str) -> cluster_pb2.Cluster:
    at = endpoint_components_pb2.LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(address=address_pb2.Address(pipe=address_pb2.Pipe(path=path)))
    )
    return cluster_pb2.Cluster(
        name=name,
        alt_stat_name=name.replace("/", "_"),
        type=cluster_pb2.Cluster.DiscoveryType.STATIC,
        connect_timeout=envoy.duration(0.25),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=name, endpoints=[endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=[at])]
        ),
        circuit_breakers=_circuit(Circuit()),
        typed_extension_protocol_options={_PROTOCOLS: protocols("h2c")},
    )


def web_cluster(name: str, host: str, port: int, *, tls: bool) -> cluster_pb2.Cluster:
    """An external server, such as one that publishes keys."""
    at = endpoint_components_pb2.LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(address=socket_address(host, port))
    )
    made = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.DiscoveryType.STRICT_DNS,
        connect_timeout=envoy.duration(5.0),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=name, endpoints=[endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=[at])]
        ),
    )
    if tls:
        made.transport_socket.CopyFrom(web_transport(host))
    return made
