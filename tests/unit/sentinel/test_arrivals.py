"""A route is early when its new version has no instances yet, and its published one has."""

from __future__ import annotations

from dataclasses import replace

from shoal.crds.sentinel import Backend, Redirect, RouteSpec
from shoal.sentinel.arrivals import is_early
from shoal.sentinel.model import GatewayRoute, Inputs, InstanceEndpoint, ServiceEndpoints, ServiceKey


def inputs(*to: str, running: tuple[str, ...], redirect: bool = False) -> Inputs:
    backends = tuple(Backend(deployment=name, namespace="n", service=name, weight=1) for name in to)
    spec = RouteSpec(environment="e", host="h", backends=backends, redirect=Redirect(path="/") if redirect else None)
    here = ServiceEndpoints(endpoints=(InstanceEndpoint(address="10.0.0.1", port=80),))
    return Inputs(
        routes={"r": GatewayRoute(name="r", environment="e", host="h", spec=spec)},
        endpoints={ServiceKey("n", name): here for name in running},
    )


def test_a_switch_waits_for_the_instances_it_leads_to() -> None:
    told = inputs("v1", running=("v1",))
    assert is_early(told, inputs("v2", running=("v1",)))
    assert not is_early(told, inputs("v2", running=("v1", "v2")))
    assert not is_early(told, inputs("v1", "v2", running=("v1",))), "some answer"


def test_a_route_is_not_early_without_earlier_instances_or_with_a_redirect() -> None:
    told = inputs("v1", running=("v1",))
    assert not is_early(told, inputs("v2", running=())), "no version has instances"
    assert not is_early(told, inputs(running=("v1",), redirect=True))
    assert not is_early(None, inputs("v2", running=()))
    assert not is_early(told, replace(told, endpoints={})), "the route is the same"
    assert not is_early(Inputs(), inputs("v2", running=("v1",))), "the route is new"
