"""Whatever mixture of routes and policies Envoy refuses, the good ones come through and the bad ones are named."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.crds.sentinel import RouteSpec
from shoal.sentinel.isolation import Isolation
from shoal.sentinel.model import GatewayPolicy, GatewayRoute, Inputs, InstanceEndpoint, ServiceEndpoints, ServiceKey

BAD = "bad"
NAMES = [f"r{number}" for number in range(8)]


def route(name: str, version: str) -> GatewayRoute:
    host = f"{version}.example"
    return GatewayRoute(name=name, environment="e", host=host, spec=RouteSpec(environment="e", host=host))


def inputs(versions: dict[str, str]) -> Inputs:
    return Inputs(routes={name: route(name, version) for name, version in versions.items()})


def refusal(made: Inputs) -> str | None:
    """What an Envoy says that takes no route of which the host begins with ``bad``, unless it is closed."""
    bad = [one.name for one in made.routes.values() if one.host.startswith(BAD) and one.spec is not None]
    bad += [one.name for one in made.routes.values() if one.host.startswith(f"{BAD}-host")]
    bad += [one.name for one in made.policies.values() if one.environment == BAD and not one.fault]
    return f"does not like {len(bad)}" if bad else None


def settle(isolation: Isolation, wanted: Inputs) -> Inputs:
    for _ in range(200):
        made = isolation.apply(wanted)
        if not isolation.settled(refusal(made)):
            return made
    raise AssertionError("it never comes to rest")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", BAD, f"{BAD}-host"])), min_size=1, max_size=4
    )
)
def test_the_good_come_through_and_the_bad_stay_as_they_last_were(steps: list[dict[str, str]]) -> None:
    isolation = Isolation()
    good: dict[str, GatewayRoute] = {}
    for versions in steps:
        wanted = inputs(versions)
        made = settle(isolation, wanted)
        assert refusal(made) is None
        good = {name: one for name, one in good.items() if name in versions}
        for name, version in versions.items():
            if version.startswith(BAD):
                assert f"route/{name}" in isolation.reasons
                if name in good:
                    assert made.routes[name] == good[name]
                else:
                    assert name not in made.routes or made.routes[name].fault
            else:
                assert made.routes[name] == wanted.routes[name]
                good[name] = wanted.routes[name]
        assert len(isolation.reasons) == sum(version.startswith(BAD) for version in versions.values())


def test_a_bad_policy_closes_what_it_is_for_and_is_named() -> None:
    isolation = Isolation()
    wanted = replace(inputs({"r1": "1"}), policies={"p": GatewayPolicy(name="p", environment=BAD)})
    made = settle(isolation, wanted)
    assert made.routes == wanted.routes
    assert made.policies["p"].fault == "Envoy refuses it: does not like 1"
    assert dict(isolation.reasons) == {"policy/p": "does not like 1"}


def test_what_is_put_aside_costs_no_new_translation_when_only_endpoints_move() -> None:
    isolation = Isolation()
    wanted = inputs({"r1": "1", "r2": BAD})
    made = settle(isolation, wanted)
    moved = {ServiceKey("n", "s"): ServiceEndpoints(endpoints=(InstanceEndpoint(address="10.0.0.1", port=80),))}
    again = isolation.apply(replace(wanted, endpoints=moved))
    assert again.routes is made.routes
    assert again.endpoints is moved
