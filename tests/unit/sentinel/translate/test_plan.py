from __future__ import annotations

from dataclasses import replace

from translate_objects import backend, inputs_of, policy, route

from shoal.crds.sentinel import Circuit
from shoal.sentinel.model import Settings
from shoal.sentinel.translate.plan import plan


def test_more_specific_routes_come_first() -> None:
    beta = [{"name": "x-beta", "exact": "1"}]
    made = plan(
        inputs_of(
            route("all", "a.example"),
            route("deep", "a.example", path="/a/b/"),
            route("beta", "a.example", path="/a", headers=beta),
            route("short", "a.example", path="/a"),
        )
    )
    assert [each.route.name for each in made.hosts["a.example"]] == ["deep", "beta", "short", "all"]


def test_a_host_belongs_to_the_environment_that_named_it_first() -> None:
    ours = route("ours", "A.example", created="2026-01-01T00:00:00Z")
    theirs = replace(route("theirs", "a.example", path="/admin", created="2026-01-02T00:00:00Z"), environment="env_2")
    made = plan(inputs_of(theirs, ours))
    assert [each.route.name for each in made.hosts["a.example"]] == ["ours"]
    assert "another environment" in made.faults["route/theirs"]


def test_of_two_equal_routes_the_older_is_used_and_the_other_has_a_fault() -> None:
    old = route("z", "a.example", path="/a", created="2026-01-01T00:00:00Z")
    new = route("a", "a.example", path="/a/", created="2026-01-02T00:00:00Z")
    made = plan(inputs_of(old, new))
    assert [each.route.name for each in made.hosts["a.example"]] == ["z"]
    assert "route z" in made.faults["route/a"]


def test_what_cannot_be_read_closes_what_it_is_for() -> None:
    wall = policy("wall", firewall={"paths": ["/x"]}, routes=["r1"])
    unknown = policy("unknown", teleport={}, routes=["r2"])
    made = plan(
        inputs_of(
            route("r1", "one.example"),
            route("r2", "two.example"),
            route("r3", "three.example", policies=["gone"]),
            route("r4", "four.example", speed="fast"),
            route("r5", "five.example", headers=[{"name": "x", "regex": "(?=a)"}]),
            route("r6", "no host"),
            wall,
            unknown,
        )
    )
    closed = {each.route.name: bool(each.closed) for found in made.hosts.values() for each in found}
    assert closed == {"r1": False, "r2": True, "r3": True, "r4": True, "r5": True}
    assert set(made.faults) == {"route/r2", "route/r3", "route/r4", "route/r5", "route/r6", "policy/unknown"}


def test_policies_apply_in_order_to_the_routes_they_name_unless_the_route_chooses() -> None:
    first = policy("late", order=9, firewall={"paths": ["/x"]})
    second = policy("early", order=1, firewall={"paths": ["/x"]})
    other = policy("other", order=5, firewall={"paths": ["/x"]}, routes=["nickname"])
    off = policy("off", enabled=False, firewall={"paths": ["/x"]})
    made = plan(
        inputs_of(
            route("r1", "one.example"),
            replace(route("r2", "two.example"), alias="nickname"),
            route("r3", "three.example", policies=["late"]),
            route("r4", "four.example", policies=[]),
            first, second, other, off,
        )
    )  # fmt: skip
    applied = {each.route.name: [one.name for one in each.policies] for found in made.hosts.values() for each in found}
    assert applied == {"r1": ["early", "late"], "r2": ["early", "other", "late"], "r3": ["late"], "r4": []}


def test_a_policy_whose_service_is_not_there_closes_its_routes() -> None:
    key = policy("key", keyAuth={"locations": [{"bearer": {}}]})
    limit = {"limit": 1, "scope": "strict", "identifier": {"remoteIp": {}}}
    for one, closed in [
        (key, False),
        (policy("strict", rateLimit=limit), True),
        (policy("open", failOpen=True, rateLimit=limit), False),
        (policy("oidc", jwt={"oidcIssuer": "https://issuer.example"}), True),
        (policy("nobody", rateLimit={"limit": 1, "identifier": {"subject": {}}}), True),
    ]:
        made = plan(inputs_of(route("r", "a.example"), one, settings=Settings()))
        assert bool(made.hosts["a.example"][0].closed) is closed, one.name


def test_every_deployment_is_a_target_once_and_sticky_where_its_environment_is() -> None:
    made = plan(
        inputs_of(
            route("r1", "a.example", backend("d1"), backend("d2"), circuit={"requests": 7}, sticky={"cookie": "c"}),
            route("r2", "b.example", backend("d1"), mirror=backend("d3")),
            replace(route("r3", "c.example", backend("d4")), environment="env_2"),
        )
    )
    assert list(made.targets) == ["d1", "d2", "d3", "d4"]
    assert made.targets["d1"].circuit == Circuit(requests=7)
    assert [name for name, target in made.targets.items() if target.sticky] == ["d1", "d2", "d3"]
    assert made.environments == {"env_1": ("d1", "d2", "d3"), "env_2": ("d4",)}
