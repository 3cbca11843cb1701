"""A cluster accepts the definitions, and the views read exactly what they allow."""

from __future__ import annotations

import msgspec
import pytest

from shoal.crds.sentinel import (
    API_VERSION,
    POLICY_KINDS,
    definitions,
    read_policy,
    read_rollout,
    read_route,
    under_test,
)
from shoal.testing.servers import local_server

ROUTE = {
    "environment": "env_1",
    "host": "shop.example.com",
    "path": "/api",
    "headers": [{"name": "x-beta", "exact": "1"}],
    "backends": [{"deployment": "dep_1", "namespace": "shop", "service": "web-1", "port": 8080, "weight": 90}],
    "mirror": {"deployment": "dep_2", "namespace": "shop", "service": "web-2", "percent": 5.5},
    "timeouts": {"total": 15, "idle": 0},
    "tls": {"secret": "shop-tls"},
    "policies": ["keys"],
}
POLICY = {
    "environment": "env_1",
    "order": 10,
    "match": [{"path": {"prefix": "/v1"}}, {"method": ["GET"]}, {"header": {"name": "x-a", "present": True}}],
    "rateLimit": {"limit": 10, "identifier": {"remoteIp": {}}},
}


async def test_an_api_server_takes_the_definitions_and_their_objects_and_refuses_others() -> None:
    async with local_server() as server:
        for definition in definitions():
            await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        made = (("SentinelRoute", "sentinelroutes", ROUTE), ("SentinelPolicy", "sentinelpolicies", POLICY))
        for kind, plural, spec in made:
            path = f"/apis/{API_VERSION}/namespaces/default/{plural}"
            body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
            assert (await server.post(path, body))["spec"] == spec
            without = {**body, "metadata": {"name": "b"}, "spec": {"order": 1}}
            assert (await server.call("POST", path, without)).status == 422


def test_views_read_what_is_written() -> None:
    route = read_route(ROUTE)
    assert (route.host, route.backends[0].weight, route.timeouts.total, route.timeouts.header) == (
        "shop.example.com", 90, 15, 0,
    )  # fmt: skip
    assert route.mirror is not None
    assert route.mirror.percent == 5.5
    policy = read_policy(POLICY)
    assert policy.rate_limit is not None
    assert policy.rate_limit.limit == 10
    assert policy.match[1].method == ["GET"]


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        read_route({**ROUTE, "surprise": 1})
    with pytest.raises(msgspec.ValidationError, match="wasm"):
        read_policy({"environment": "env_1", "wasm": {}})


def test_a_policy_has_exactly_one_kind() -> None:
    for spec in ({"environment": "e"}, {**POLICY, "cors": {"origins": ["*"]}}):
        with pytest.raises(msgspec.ValidationError, match=f"exactly one of {', '.join(POLICY_KINDS)}"):
            read_policy(spec)


_TARGET = {"deployment": "dep_2", "namespace": "shop", "service": "web-2", "port": 8080}
ROLLOUT = {
    "testers": [
        {"header": {"name": "x-beta", "value": "1"}, "target": _TARGET},
        {"cookie": {"name": "beta", "value": "1"}, "target": _TARGET},
    ],
    "mirrors": [{**_TARGET, "percent": 5.5}],
    "previews": [{"host": "next.example.com", "target": _TARGET}],
}


async def test_a_rollout_is_kept_beside_the_spec_and_makes_a_new_generation_and_what_is_unknown_is_pruned() -> None:
    async with local_server() as server:
        await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definitions()[0])
        path = f"/apis/{API_VERSION}/namespaces/default/sentinelroutes"
        body = {"apiVersion": API_VERSION, "kind": "SentinelRoute", "metadata": {"name": "a"}, "spec": ROUTE}
        made = await server.post(path, {**body, "rollout": ROLLOUT, "moons": {}})
        assert made["rollout"] == ROLLOUT and "moons" not in made
        about = {"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}
        changed = {**body, "metadata": about, "rollout": {"previews": ROLLOUT["previews"]}}
        after = (await server.call("PUT", f"{path}/a", changed)).ok()
        assert after["metadata"]["generation"] == made["metadata"]["generation"] + 1
        assert read_rollout(after["rollout"]).previews[0].target.service == "web-2"


def test_a_rollout_is_read_as_it_is_written_and_what_is_unknown_is_refused() -> None:
    found = read_rollout(ROLLOUT)
    assert [(each.header is None, each.cookie is None) for each in found.testers] == [(False, True), (True, False)]
    assert found.mirrors[0].percent == 5.5 and read_rollout({}).testers == []
    with pytest.raises(msgspec.ValidationError, match="moons"):
        read_rollout({"moons": 2})


def test_deployments_that_share_the_requests_of_an_app_or_get_copies_are_under_test() -> None:
    def to(*deployments: str, app: str = "web", **spec: object) -> dict[str, object]:
        backends = [{"deployment": one, "app": app, "weight": 0} for one in deployments]
        return {"environment": "env_1", "host": "a", "backends": backends, **spec}

    assert under_test([to("d1"), to("e1", app="api")]) == set()
    assert under_test([to("d1", "d2"), to("e1", app="api")]) == {"d1", "d2"}
    assert under_test([to("d1"), to("d2", headers=[{"name": "x-test", "exact": "1"}])]) == {"d1", "d2"}, "for testers"
    assert under_test([to("d1"), to("d2", environment="env_2")]) == set()
    assert under_test([to("d1", mirror={"deployment": "d2"})]) == {"d2"}
    assert under_test([to("d1", "d2", app="")]) == {"d1", "d2"}
    assert under_test([to("d1", app=""), to("d2", app="", path="/x")]) == set(), "of no app that is known"
