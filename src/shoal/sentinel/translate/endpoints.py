"""The addresses of a deployment's instances: its ClusterLoadAssignment, and the reading of EndpointSlices.

Instances of this region come first, by zone. Peers of other regions follow, one priority for each distance. Peers get
requests only when no instance of this region is healthy; a very large overprovisioning factor ensures that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from envoy.config.core.v3 import address_pb2, base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from google.protobuf import struct_pb2, wrappers_pb2

from shoal.sentinel.model import InstanceEndpoint, PeerGateway, ServiceEndpoints

PEER_SOCKET = "peer"  # of endpoints that are peers: the transport socket that they need
_SOCKET_MATCH = "envoy.transport_socket_match"
_NEVER_SPILL = 1_000_000
_HEALTHY = health_check_pb2.HealthStatus.HEALTHY
_DRAINING = health_check_pb2.HealthStatus.DRAINING


def socket_address(host: str, port: int) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=port))


def load_assignment(
    name: str, found: ServiceEndpoints, *, port: int, region: str, peers: Sequence[PeerGateway] = ()
) -> endpoint_pb2.ClusterLoadAssignment:
    """``port`` 0: the port of the EndpointSlices."""
    made = endpoint_pb2.ClusterLoadAssignment(
        cluster_name=name,
        policy=endpoint_pb2.ClusterLoadAssignment.Policy(
            overprovisioning_factor=wrappers_pb2.UInt32Value(value=_NEVER_SPILL)
        ),
    )
    made.endpoints.extend(_zones(found.endpoints, port, region))
    first = 1 if made.endpoints else 0
    made.endpoints.extend(_regions(peers, first))
    return made


def _zones(
    endpoints: tuple[InstanceEndpoint, ...], port: int, region: str
) -> Iterable[endpoint_components_pb2.LocalityLbEndpoints]:
    # If all instances are draining, requests still go to them.
    leaving = all(endpoint.draining for endpoint in endpoints)
    zones: dict[str, list[endpoint_components_pb2.LbEndpoint]] = {}
    for endpoint in endpoints:
        health = _DRAINING if endpoint.draining and not leaving else _HEALTHY
        zones.setdefault(endpoint.zone, []).append(
            endpoint_components_pb2.LbEndpoint(
                endpoint=endpoint_components_pb2.Endpoint(
                    address=socket_address(endpoint.address, port or endpoint.port)
                ),
                health_status=health,
            )
        )
    for zone, members in sorted(zones.items()):
        yield endpoint_components_pb2.LocalityLbEndpoints(
            locality=base_pb2.Locality(region=region, zone=zone), lb_endpoints=members
        )


def _regions(peers: Sequence[PeerGateway], first: int) -> Iterable[endpoint_components_pb2.LocalityLbEndpoints]:
    usable = [(peer, found) for peer in peers if peer.healthy and (found := peer_addresses(peer))]
    priorities = {distance: first + at for at, distance in enumerate(sorted({peer.distance for peer, _ in usable}))}
    for peer, addresses in sorted(usable, key=lambda one: (one[0].distance, one[0].region)):
        yield endpoint_components_pb2.LocalityLbEndpoints(
            locality=base_pb2.Locality(region=peer.region),
            priority=priorities[peer.distance],
            lb_endpoints=[_peer(host, port) for host, port in addresses],
        )


def peer_addresses(peer: PeerGateway) -> list[tuple[str, int]]:
    """The usable addresses: Envoy needs IP addresses here, not names."""
    split = [address.rpartition(":") for address in peer.addresses]
    return [(host, int(port)) for text, _, port in split if is_ip(host := text.strip("[]")) and _is_port(port)]


def is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65535


def _peer(host: str, port: int) -> endpoint_components_pb2.LbEndpoint:
    mark = struct_pb2.Struct(fields={PEER_SOCKET: struct_pb2.Value(bool_value=True)})
    return endpoint_components_pb2.LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(address=socket_address(host, port)),
        metadata=base_pb2.Metadata(filter_metadata={_SOCKET_MATCH: mark}),
        health_status=_HEALTHY,
    )


def service_endpoints(slices: Iterable[Mapping[str, Any]]) -> ServiceEndpoints:
    """Of the EndpointSlices of one Service. Those that neither are ready nor still serve are left out."""
    found: dict[tuple[str, int], InstanceEndpoint] = {}
    for each in slices:
        port = next((one.get("port") or 0 for one in each.get("ports") or () if one.get("protocol") != "UDP"), 0)
        for entry in each.get("endpoints") or ():
            endpoint = _endpoint(entry, port)
            if endpoint is None:
                continue
            key = (endpoint.address, endpoint.port)
            if key not in found or found[key].draining:  # in two slices while it moves between them
                found[key] = endpoint
    return ServiceEndpoints(endpoints=tuple(found[key] for key in sorted(found)))


def _endpoint(entry: Mapping[str, Any], port: int) -> InstanceEndpoint | None:
    conditions = entry.get("conditions") or {}
    ready = conditions.get("ready", True) is not False  # unknown counts as ready
    terminating = conditions.get("terminating") is True
    serving = conditions.get("serving")
    if serving is None:
        serving = ready
    addresses = entry.get("addresses") or ()
    if not addresses or not is_ip(addresses[0]) or not (ready and not terminating or terminating and serving):
        return None
    return InstanceEndpoint(address=addresses[0], port=port, zone=entry.get("zone") or "", draining=terminating)
