from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import health_check_pb2

from shoal.sentinel.model import InstanceEndpoint, PeerGateway, ServiceEndpoints
from shoal.sentinel.translate.endpoints import load_assignment, peer_addresses, service_endpoints

_HEALTHY, _DRAINING = health_check_pb2.HealthStatus.HEALTHY, health_check_pb2.HealthStatus.DRAINING


def _slice(*endpoints: dict[str, Any], port: int = 8080) -> dict[str, Any]:
    return {"ports": [{"port": port, "protocol": "TCP"}], "endpoints": list(endpoints)}


def _at(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions, "zone": "a"}


def test_only_instances_that_are_ready_or_still_serve_are_used() -> None:
    found = service_endpoints(
        [
            _slice(
                _at("10.0.0.1", ready=True),
                _at("10.0.0.2", ready=False),
                _at("10.0.0.3", ready=False, serving=True, terminating=True),
                _at("10.0.0.4", ready=False, serving=False, terminating=True),
                _at("10.0.0.5"),
                _at("name.example", ready=True),
            )
        ]
    )
    assert [(one.address, one.draining) for one in found.endpoints] == [
        ("10.0.0.1", False),
        ("10.0.0.3", True),
        ("10.0.0.5", False),
    ]


def test_an_instance_in_two_slices_is_one_and_ready_if_either_slice_has_it_ready() -> None:
    leaving = _at("10.0.0.1", ready=False, serving=True, terminating=True)
    for slices in ([_slice(leaving), _slice(_at("10.0.0.1", ready=True))], [_slice(_at("10.0.0.1")), _slice(leaving)]):
        assert service_endpoints(slices).endpoints == (InstanceEndpoint(address="10.0.0.1", port=8080, zone="a"),)


def _assigned(*endpoints: InstanceEndpoint, peers: tuple[PeerGateway, ...] = (), port: int = 0) -> Any:
    return load_assignment("x", ServiceEndpoints(endpoints=endpoints), port=port, region="eu", peers=peers)


def test_instances_are_grouped_by_zone_and_a_port_of_the_route_wins() -> None:
    made = _assigned(
        InstanceEndpoint(address="10.0.0.1", port=1, zone="b"),
        InstanceEndpoint(address="10.0.0.2", port=2, zone="a"),
        port=99,
    )
    assert [(one.locality.region, one.locality.zone) for one in made.endpoints] == [("eu", "a"), ("eu", "b")]
    ports = [each.endpoint.address.socket_address.port_value for one in made.endpoints for each in one.lb_endpoints]
    assert ports == [99, 99]


def test_draining_instances_count_as_healthy_only_when_nothing_else_is_left() -> None:
    leaving, staying = (InstanceEndpoint(address=f"10.0.0.{at}", port=1, draining=at == 1) for at in (1, 2))

    def health(made: Any) -> list[int]:
        return [each.health_status for one in made.endpoints for each in one.lb_endpoints]

    assert health(_assigned(leaving, staying)) == [_DRAINING, _HEALTHY]
    assert health(_assigned(leaving)) == [_HEALTHY]


def test_peers_come_behind_by_distance_without_gaps_and_only_those_that_can_be_reached() -> None:
    peers = (
        PeerGateway(region="far", addresses=("10.9.0.3:1",), distance=70),
        PeerGateway(region="near", addresses=("10.9.0.1:1", "lb.example:1"), distance=5),
        PeerGateway(region="sick", addresses=("10.9.0.9:1",), distance=1, healthy=False),
        PeerGateway(region="named", addresses=("lb.example:1",), distance=2),
    )
    here = InstanceEndpoint(address="10.0.0.1", port=1)
    for endpoints, first in (((here,), 1), ((), 0)):
        made = _assigned(*endpoints, peers=peers)
        beyond = [(one.locality.region, one.priority) for one in made.endpoints if one.locality.region != "eu"]
        assert beyond == [("near", first), ("far", first + 1)]
    assert peer_addresses(PeerGateway(region="x", addresses=("[::1]:8", "10.0.0.1", "1.2.3.4:99999"))) == [("::1", 8)]
