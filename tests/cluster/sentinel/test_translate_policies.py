"""Translated policies in a real Envoy: what they let through, what they refuse, and that errors refuse."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc.aio
import jwt
import orjson
import pytest
from certificates_under_test import new_key, public_pem
from envoy.service.ratelimit.v3 import rls_pb2
from envoy_under_test import WAIT_S, app, backend, gateway, inputs_of, policy, route

from shoal.sentinel.model import GatewayPolicy, InstanceEndpoint, ServiceEndpoints, ServiceKey, Settings
from shoal.testing.waiting import eventually


def code(response: Any) -> str:
    told = response.json()["error"]["code"]
    assert response.headers["x-shoal-error"] == told
    return str(told)


@contextlib.asynccontextmanager
async def guarded(*policies: GatewayPolicy, settings: Settings | None = None) -> AsyncIterator[Any]:
    """A gateway before one app with all of the policies."""
    async with app("d1") as one:
        given = inputs_of(route("r", "a.example", backend("d1")), *policies, running={"d1": [one]}, settings=settings)
        async with gateway(given) as gw:
            assert not gw.translator.faults
            yield gw


async def answers(gw: Any, cases: list[tuple[str, str, dict[str, str], int, str]]) -> None:
    for method, path, headers, status, wanted in cases:
        got = await gw.ask(method, "a.example", path, headers=headers)
        assert got.status_code == status, (method, path, headers, got.text)
        if wanted:
            assert code(got) == wanted


async def test_a_firewall_judges_addresses_headers_and_paths_under_its_conditions() -> None:
    async with asyncio.timeout(300):
        walls = (
            policy("w1", firewall={"headers": ["X-Bad"], "paths": ["/admin"]}),
            policy("w2", match=[{"method": ["DELETE"]}], firewall={"cidrs": ["127.0.0.0/8", "::1/128"]}),
            policy("w3", match=[{"query": {"name": "debug", "exact": "1"}}], firewall={"paths": ["/"]}),
            policy(
                "w4", match=[{"path": {"regex": "/x/[0-9]+"}}], firewall={"action": "allow", "cidrs": ["10.0.0.0/8"]}
            ),
            policy("off", enabled=False, firewall={"paths": ["/"]}),
        )
        async with guarded(*walls) as gw:
            blocked = (403, "blocked")
            await answers(
                gw,
                [
                    ("GET", "/", {}, 200, ""),
                    ("GET", "/", {"x-bad": ""}, *blocked),
                    ("GET", "/admin", {}, *blocked),
                    ("GET", "/x/../admin/y?z", {}, *blocked),
                    ("GET", "/%61dmin", {}, *blocked),
                    ("GET", "/administrator", {}, 200, ""),
                    ("DELETE", "/", {}, *blocked),
                    ("GET", "/?debug=1", {}, *blocked),
                    ("GET", "/?a=b&debug=%31", {}, *blocked),
                    ("GET", "/?debug=2", {}, 200, ""),
                    ("GET", "/x/12?y", {}, *blocked),
                    ("GET", "/x/y?/x/12", {}, 200, ""),
                ],
            )
            seen = (await gw.get("a.example", "/?q=1")).json()["headers"]
            assert not [name for name in seen if name.startswith("x-shoal-fact")]
            got = await gw.get("a.example", "/x%2F..%2Fadmin")  # told where it leads, not passed on
            assert got.status_code == 307


async def test_requests_that_are_too_large_are_refused_with_and_without_a_length() -> None:
    async with asyncio.timeout(300):
        sizes = (
            policy("s1", requestSize={"maxBytes": 1000}),
            policy("s2", match=[{"path": {"prefix": "/small"}}, {"method": ["POST"]}], requestSize={"maxBytes": 10}),
        )

        async def chunks(count: int) -> AsyncIterator[bytes]:
            for _ in range(count):
                yield b"x" * 100

        async with guarded(*sizes) as gw:
            for path, count, status in [("/", 10, 200), ("/", 11, 413), ("/small", 1, 413)]:
                got = await gw.ask("POST", "a.example", path, content=b"x" * 100 * count)
                assert got.status_code == status
                got = await gw.ask("POST", "a.example", path, content=chunks(count))
                assert got.status_code == status
                if status == 413:
                    assert code(got) == "too_large"
            assert (await gw.ask("PUT", "a.example", "/small", content=chunks(5))).status_code == 200


async def test_buckets_count_by_identifier_and_are_one_for_all_methods() -> None:
    async with asyncio.timeout(300):
        limited = policy(
            "l", match=[{"path": {"prefix": "/l"}}],
            rateLimit={"limit": 3, "window": 3600, "scope": "local", "identifier": {"header": "X-User"}},
        )  # fmt: skip
        async with guarded(limited) as gw:
            first, second = {"x-user": "1"}, {"x-user": "2"}
            await answers(
                gw,
                [
                    ("GET", "/l", first, 200, ""),
                    ("POST", "/l", first, 200, ""),
                    ("GET", "/l/x", {**first, "x-deployment-id": "d1"}, 200, ""),
                    ("GET", "/l", first, 429, "rate_limited"),
                    ("POST", "/l", first, 429, "rate_limited"),
                    ("GET", "/l", second, 200, ""),
                    ("GET", "/l", {}, 429, "unidentified"),
                    ("GET", "/other", {}, 200, ""),
                ],
            )


@pytest.mark.parametrize("scope", ["local", "strict"])
async def test_a_limit_counts_ipv6_clients_by_their_network_and_ipv4_clients_by_their_address(scope: str) -> None:
    """Whoever has one IPv6 address has its whole /64, and so could take a new bucket for every request."""
    async with asyncio.timeout(300):
        counts: dict[str, int] = {}

        async def count(request: Any, context: Any) -> rls_pb2.RateLimitResponse:
            who = request.descriptors[0].entries[-1].value
            counts[who] = counts.get(who, 0) + 1
            return rls_pb2.RateLimitResponse(overall_code=2 if counts[who] > 2 else 1)

        asks = ("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit", count)
        limit = {"limit": 2, "window": 3600, "scope": scope, "identifier": {"remoteIp": {}}}
        async with (
            service(*asks, rls_pb2.RateLimitRequest, rls_pb2.RateLimitResponse) as (path, _),
            guarded(
                policy("l", rateLimit=limit),
                settings=Settings(trusted_hops=1, limits_socket=path, limits_timeout_s=20.0),
            ) as gw,
        ):
            cases = [
                ("2001:db8:0:1::1", 200),
                ("2001:db8:0:1::2", 200),
                ("2001:db8:0:1:ffff:ffff:ffff:ffff", 429),
                ("2001:db8:0:2::1", 200),
                ("203.0.113.1", 200),
                ("203.0.113.1", 200),
                ("203.0.113.1", 429),
                ("203.0.113.2", 200),
            ]
            for client, status in cases:
                got = await gw.get("a.example", headers={"x-forwarded-for": client})
                assert got.status_code == status, client


async def test_a_limit_of_the_cluster_is_shared_out_between_replicas_and_outlives_other_changes() -> None:
    async with asyncio.timeout(300):
        own = ServiceKey("sentinel", "gateway")
        both = ServiceEndpoints(endpoints=tuple(InstanceEndpoint(address=f"127.0.0.{at}", port=1) for at in (1, 2)))
        limited = policy("l", rateLimit={"limit": 6, "window": 3600, "identifier": {"remoteIp": {}}})
        async with app("d1") as one:
            given = inputs_of(
                route("r", "a.example", backend("d1")), limited,
                running={"d1": [one]}, settings=Settings(replicas=own, zone="a"),
            )  # fmt: skip
            async with gateway(replace(given, endpoints={**given.endpoints, own: both})) as gw:

                async def known() -> bool:
                    told = (await gw.admin.get("/clusters?filter=replicas")).text
                    return "127.0.0.2:1::" in told

                await eventually(known, timeout_s=WAIT_S)
                assert [(await gw.get("a.example")).status_code for _ in range(4)] == [200, 200, 200, 429]
                other = route("other", "b.example", backend("d1"))
                await gw.tell(replace(gw.inputs, routes={**gw.inputs.routes, "other": other}))

                async def added() -> bool:
                    return (await gw.get("b.example")).status_code != 404

                await eventually(added, timeout_s=WAIT_S)
                assert (await gw.get("a.example")).status_code == 429


async def test_a_limit_too_small_to_be_shared_out_is_counted_by_each_replica() -> None:
    async with asyncio.timeout(300):
        own = ServiceKey("sentinel", "gateway")
        many = ServiceEndpoints(endpoints=tuple(InstanceEndpoint(address=f"127.0.0.{at}", port=1) for at in (1, 2, 3)))
        limited = policy("l", rateLimit={"limit": 2, "window": 3600, "identifier": {"remoteIp": {}}})
        async with app("d1") as one:
            given = inputs_of(
                route("r", "a.example", backend("d1")), limited, running={"d1": [one]}, settings=Settings(replicas=own)
            )
            async with gateway(given) as gw:
                await gw.tell(replace(gw.inputs, endpoints={**given.endpoints, own: many}))

                async def known() -> bool:
                    return "127.0.0.3:1::" in (await gw.admin.get("/clusters?filter=replicas")).text

                await eventually(known, timeout_s=WAIT_S)
                assert [(await gw.get("a.example")).status_code for _ in range(3)] == [200, 200, 429]


async def test_cors_is_answered_before_authentication() -> None:
    async with asyncio.timeout(300):
        key = new_key()
        both = (
            policy("c", order=1, cors={"origins": ["https://app.example"], "methods": ["GET"], "credentials": True}),
            policy("j", order=2, jwt={"pem": public_pem(key), "algorithms": ["ES256"]}),
        )
        async with guarded(*both) as gw:
            asks = {"origin": "https://app.example", "access-control-request-method": "GET"}
            got = await gw.ask("OPTIONS", "a.example", headers=asks)
            assert got.status_code == 200
            assert got.headers["access-control-allow-origin"] == "https://app.example"
            got = await gw.get("a.example", headers={"origin": "https://app.example"})
            assert (got.status_code, code(got)) == (401, "unauthorized")


async def test_cors_under_conditions_is_left_out_and_closes_no_route() -> None:
    async with asyncio.timeout(300):
        conditional = policy("c", match=[{"path": {"prefix": "/x"}}], cors={"origins": ["https://app.example"]})
        async with app("d1") as one:
            given = inputs_of(route("r", "a.example", backend("d1")), conditional, running={"d1": [one]})
            async with gateway(given) as gw:
                got = await gw.get("a.example", "/x", headers={"origin": "https://app.example"})
                assert got.status_code == 200 and "access-control-allow-origin" not in got.headers
                assert "cannot have conditions" in gw.translator.faults["policy/c"]
                assert "route/r" not in gw.translator.faults


async def test_tokens_are_needed_where_conditions_say_and_claims_reach_the_instance() -> None:
    async with asyncio.timeout(300):
        key, other = new_key(), new_key()
        rule = {"pem": public_pem(key), "issuer": "me", "audiences": ["shop"], "algorithms": ["ES256"]}
        tokens = (
            policy("j", order=1, match=[{"path": {"prefix": "/in"}}], jwt=rule),
            policy("n", order=2, match=[{"path": {"prefix": "/maybe"}}], jwt={**rule, "anonymous": True}),
            policy(
                "l", order=3, match=[{"path": {"prefix": "/in"}}],
                rateLimit={"limit": 2, "window": 3600, "scope": "local", "identifier": {"principal": "sub"}},
            ),
        )  # fmt: skip

        def token(signer: Any = key, **claims: Any) -> dict[str, str]:
            whole = {"iss": "me", "aud": "shop", "sub": 'a","type":"root', "exp": time.time() + 600, **claims}
            return {"authorization": f"Bearer {jwt.encode(whole, signer, algorithm='ES256')}"}

        async with guarded(*tokens) as gw:
            no = (401, "unauthorized")
            await answers(
                gw,
                [
                    ("GET", "/in", {}, *no),
                    ("GET", "/in", token(other), *no),
                    ("GET", "/in", token(exp=time.time() - 600), *no),
                    ("GET", "/in", token(iss="you"), *no),
                    ("GET", "/in", token(aud="else"), *no),
                    ("GET", "/out", {}, 200, ""),
                    ("GET", "/maybe", {}, 200, ""),
                    ("GET", "/maybe", token(other), *no),
                ],
            )
            odd = {
                "text": 'ü "\\\n\U0001f41f',
                "list": ["x", 2, True],
                "nested": {"a": {"b": 1.5}},
                "big": 1_700_000_000,
            }
            sent = token(scope="read write", **odd)
            got = (await gw.get("a.example", "/in", headers={**sent, "x-shoal-principal": "{}"})).json()
            principal = orjson.loads(got["headers"]["x-shoal-principal"])
            assert principal["meta"].items() >= odd.items()
            assert {name: text for name, text in principal.items() if name != "meta"} == {
                "version": "v1", "type": "JWT", "subject": 'a","type":"root', "permissions": ["read", "write"],
            }  # fmt: skip
            assert "x-shoal-principal" not in (await gw.get("a.example", "/out")).json()["headers"]
            await answers(
                gw,
                [
                    ("GET", "/in", token(), 200, ""),
                    ("GET", "/in", token(), 429, "rate_limited"),
                    ("GET", "/in", token(sub="b"), 200, ""),
                ],
            )


@contextlib.asynccontextmanager
async def service(name: str, method: str, call: Any, kind: Any, answer: Any) -> AsyncIterator[tuple[str, Any]]:
    folder = tempfile.mkdtemp(prefix="sv")
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=kind.FromString, response_serializer=answer.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))
    server.add_insecure_port(f"unix:{folder}/s")
    await server.start()
    try:
        yield f"{folder}/s", server
    finally:
        await server.stop(None)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("fail_open", [False, True])
async def test_strict_limits_are_counted_by_the_service_and_fail_as_the_policy_says(fail_open: bool) -> None:
    async with asyncio.timeout(300):
        asked: list[Any] = []

        async def count(request: Any, context: Any) -> rls_pb2.RateLimitResponse:
            asked.append(request)
            over = len(asked) > 1
            return rls_pb2.RateLimitResponse(overall_code=2 if over else 1)

        limit = {"limit": 7, "window": 60, "scope": "strict", "identifier": {"header": "X-User"}, "cost": 3}
        strict = policy("s", failOpen=fail_open, rateLimit=limit)
        asks = ("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit", count)
        kinds = (rls_pb2.RateLimitRequest, rls_pb2.RateLimitResponse)
        async with (
            service(*asks, *kinds) as (path, server),
            guarded(strict, settings=Settings(limits_socket=path, limits_timeout_s=20.0)) as gw,
        ):
            user = {"x-user": "u1"}
            await answers(gw, [("GET", "/", user, 200, ""), ("GET", "/", user, 429, "rate_limited")])
            descriptor = asked[0].descriptors[0]
            told = {entry.key: entry.value for entry in descriptor.entries}
            assert told == {"policy": "s", "limit": "7", "window": "60", "by": "u1"}
            assert descriptor.hits_addend.value == 3
            await server.stop(None)
            down = (200, "") if fail_open else (503, "policy_error")
            await answers(gw, [("GET", "/", user, *down)])


async def test_an_invalid_policy_closes_its_routes_and_no_others() -> None:
    async with asyncio.timeout(300):
        async with app("d1") as one:
            given = inputs_of(
                route("r1", "a.example", backend("d1"), policies=["new"]),
                route("r2", "b.example", backend("d1"), policies=[]),
                route("r3", "c.example", backend("d1"), policies=["missing"]),
                policy("new", teleport={}),
                running={"d1": [one]},
            )
            async with gateway(given) as gw:
                for host in ("a.example", "c.example"):
                    got = await gw.get(host)
                    assert (got.status_code, code(got)) == (503, "policy_error")
                assert (await gw.get("b.example")).status_code == 200
                known = policy("new", firewall={"paths": ["/wall"]})
                await gw.tell(replace(gw.inputs, policies={"new": known}))

                async def opened() -> bool:
                    return (await gw.get("a.example")).status_code == 200

                await eventually(opened, timeout_s=WAIT_S)
