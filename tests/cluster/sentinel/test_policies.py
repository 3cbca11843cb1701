"""The judge of keys and the counter of strict limits behind a real Envoy, with a real Redis; also when they are gone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import jwt
import pytest
from certificates_under_test import new_key, public_pem
from envoy_under_test import WAIT_S, Gateway, app, backend, gateway, inputs_of, policy, route

from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.sentinel.model import ApiKeyInfo, GatewayPolicy, KeySet, Settings
from shoal.sentinel.policies.server import serving_limits, strict_redis
from shoal.sentinel.translate import policies as translated
from shoal.testing.databases import RedisServer, redis_server
from shoal.testing.waiting import eventually

ENVIRONMENT = "env_1"
GOOD, READER, OLD, OFF = "sk_good_0123456789", "sk_reader", "sk_old", "sk_off"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def keys() -> dict[str, KeySet]:
    known = (
        ApiKeyInfo(id="k_good", digest=digest(GOOD), subject="us\u00e9r \"1\"", permissions=frozenset({"read", "write"}),
            meta={"plan": "pro", "seats": 3}),
        ApiKeyInfo(id="k_reader", digest=digest(READER), subject="user 2", permissions=frozenset({"read"})),
        ApiKeyInfo(id="k_old", digest=digest(OLD), subject="user 3", permissions=frozenset({"read", "write"}),
            expires=time.time() - 60),
        ApiKeyInfo(id="k_off", digest=digest(OFF), subject="user 4", permissions=frozenset({"read", "write"}), enabled=False),
    )  # fmt: skip
    other = ApiKeyInfo(
        id="k_other", digest=digest("sk_other"), subject="user 5", permissions=frozenset({"read", "write"})
    )
    return {
        ENVIRONMENT: KeySet(environment=ENVIRONMENT, keys=known),
        "env_2": KeySet(environment="env_2", keys=(other,)),
    }


@contextlib.asynccontextmanager
async def sockets() -> AsyncIterator[Settings]:
    folder = tempfile.mkdtemp(prefix="gs")
    try:
        yield Settings(limits_socket=f"{folder}/limits")
    finally:
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def counting(settings: Settings, server: RedisServer) -> AsyncIterator[None]:
    redis = strict_redis(server.url)
    try:
        async with serving_limits(settings.limits_socket, redis, clock=RealClock(), metrics=Metrics(), timeout_s=20.0):
            yield
    finally:
        await redis.aclose()


@contextlib.asynccontextmanager
async def guarded(settings: Settings, *policies: GatewayPolicy) -> AsyncIterator[Gateway]:
    """A gateway before one app with all of the policies. Envoy waits longer than it would: this machine may be busy."""
    async with app("d1") as one:
        given = inputs_of(
            route("r", "a.example", backend("d1")), *policies, running={"d1": [one]},
            settings=replace(settings, limits_timeout_s=30.0),
        )  # fmt: skip
        async with gateway(replace(given, keys=keys())) as gw:
            assert not gw.translator.faults
            yield gw


async def got(gw: Gateway, path: str = "/", **headers: str) -> tuple[int, str]:
    """Status and the code of the error, which body and header have alike."""
    answer = await gw.get("a.example", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    if answer.status_code == 200:
        return 200, ""
    told = answer.json()["error"]["code"]
    assert answer.headers["x-shoal-error"] == told
    return answer.status_code, told


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_only_good_keys_pass_and_instances_learn_whose_they_are() -> None:
    async with asyncio.timeout(300):
        wanted = policy("k", keyAuth={"locations": [{"bearer": {}}], "permissions": ["write"]})
        async with sockets() as settings, guarded(settings, wanted) as gw:
            assert await got(gw, **bearer(GOOD)) == (200, "")
            missing, invalid = (401, "missing_key"), (401, "invalid_key")
            assert await got(gw) == missing
            assert await got(gw, **bearer("sk_wrong")) == invalid
            assert await got(gw, authorization=f"Basic {GOOD}") == missing
            assert await got(gw, **bearer(OLD)) == invalid
            assert await got(gw, **bearer(OFF)) == invalid
            assert await got(gw, **bearer("sk_other")) == invalid
            assert await got(gw, **bearer(READER)) == (403, "insufficient_permissions")

            forged = {"x-shoal-principal": '{"subject":"root"}', "X-Shoal-Principal": "root"}
            seen = (await gw.get("a.example", "/", headers={**bearer(GOOD), **forged})).json()["headers"]
            assert json.loads(seen["x-shoal-principal"]) == {
                "version": "v1", "type": "API_KEY", "subject": "us\u00e9r \"1\"", "key": "k_good",
                "permissions": ["read", "write"], "meta": {"plan": "pro", "seats": 3},
            }  # fmt: skip


async def test_a_key_may_stand_in_a_header_or_in_the_query() -> None:
    async with asyncio.timeout(300):
        places = [{"header": "X-Api-Key", "stripPrefix": "Key "}, {"query": "api key"}]
        wanted = policy("k", keyAuth={"locations": places})
        async with sockets() as settings, guarded(settings, wanted) as gw:
            assert await got(gw, x_api_key=f"Key {GOOD}") == (200, "")
            assert (await got(gw, x_api_key=GOOD))[0] == 401
            assert await got(gw, f"/?a=b&api%20key={GOOD}#x") == (200, "")
            assert await got(gw, f"/?api+key={GOOD.replace('_', '%5F')}") == (200, "")
            assert (await got(gw, f"/?xapi%20key={GOOD}"))[0] == 401
            assert (await got(gw, **bearer(GOOD)))[0] == 401


async def test_conditions_select_one_of_several_key_policies() -> None:
    async with asyncio.timeout(300):
        reading = policy(
            "k1", match=[{"method": ["GET"]}], keyAuth={"locations": [{"bearer": {}}], "permissions": ["read"]}
        )
        writing = policy(
            "k2", match=[{"method": ["PUT"]}], keyAuth={"locations": [{"bearer": {}}], "permissions": ["write"]}
        )
        async with sockets() as settings, guarded(settings, reading, writing) as gw:
            for method, key, status in [
                ("GET", READER, 200),
                ("PUT", READER, 403),
                ("PUT", GOOD, 200),
                ("POST", "", 200),
            ]:
                answer = await gw.ask(method, "a.example", "/", headers=bearer(key) if key else {})
                assert answer.status_code == status, (method, key)


async def test_keys_come_and_go_without_a_new_listener() -> None:
    async with asyncio.timeout(300):
        async with sockets() as settings, guarded(settings, policy("k", keyAuth={"locations": [{"bearer": {}}]})) as gw:

            async def becomes(key: str, status: int) -> None:
                async def is_so() -> bool:
                    return (await got(gw, **bearer(key)))[0] == status

                await eventually(is_so, timeout_s=WAIT_S)

            assert [(await got(gw, **bearer(key)))[0] for key in (GOOD, READER, "sk_new")] == [200, 200, 401]
            new = ApiKeyInfo(id="k_new", digest=digest("sk_new"), subject="user 9")
            kept = tuple(key for key in keys()[ENVIRONMENT].keys if key.id != "k_good")
            await gw.tell(replace(gw.inputs, keys={ENVIRONMENT: KeySet(environment=ENVIRONMENT, keys=(*kept, new))}))
            await becomes("sk_new", 200)
            await becomes(GOOD, 401)
            assert (await got(gw, **bearer(READER)))[0] == 200
            await gw.tell(replace(gw.inputs, keys={}))
            await becomes(READER, 401)
            stats = (await gw.admin.get("/stats?filter=^listener_manager.listener_(modified|in_place_updated)$")).text
            assert [line.rpartition(" ")[2] for line in stats.split("\n") if line] == ["0", "0"]


async def test_of_several_policies_the_first_that_is_satisfied_sets_the_principal() -> None:
    async with asyncio.timeout(300):
        signer = new_key()
        token = jwt.encode({"sub": "t", "exp": time.time() + 600}, signer, algorithm="ES256")
        keyed = {"locations": [{"header": "X-Key"}]}
        signed = {"pem": public_pem(signer), "algorithms": ["ES256"]}
        async with sockets() as settings, guarded(settings, policy("a", jwt=signed), policy("b", keyAuth=keyed)) as gw:
            both = {**bearer(token), "x-key": GOOD}
            seen = (await gw.get("a.example", "/", headers=both)).json()["headers"]
            assert json.loads(seen["x-shoal-principal"])["type"] == "JWT"
            assert await got(gw, **bearer(token)) == (401, "missing_key")
            assert await got(gw, **{"x-key": GOOD}) == (401, "unauthorized")


@pytest.mark.parametrize("broken", ["error('broken')", "handle:none()", "return"])
async def test_a_key_filter_that_fails_admits_no_request(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translated, "key_script", lambda keys: f"function envoy_on_request(handle) {broken} end")
    async with asyncio.timeout(300):
        keyed = policy("k", match=[{"path": {"prefix": "/in"}}], keyAuth={"locations": [{"bearer": {}}]})
        signer = new_key()
        signed = policy(
            "t", match=[{"path": {"prefix": "/token"}}], jwt={"pem": public_pem(signer), "algorithms": ["ES256"]}
        )
        token = jwt.encode({"sub": "t", "exp": time.time() + 600}, signer, algorithm="ES256")
        async with sockets() as settings, guarded(settings, keyed, signed) as gw:
            assert await got(gw, "/token", **bearer(token)) == (503, "policy_error")
            forged = {"x-shoal-fact-key-0": "ok", "X_Shoal_Fact_Key_0": "ok"}
            for headers in ({}, bearer(GOOD), {**bearer(GOOD), **forged}):
                answer = await gw.get("a.example", "/in", headers=headers)
                assert (answer.status_code, answer.headers["x-shoal-error"]) == (503, "policy_error")
            assert await got(gw, "/out") == (200, "")


def limit(name: str, count: int, *, open_: bool = False, **by: Any) -> GatewayPolicy:
    rule = {"limit": count, "window": 3600, "scope": "strict", "identifier": by or {"header": "X-User"}}
    return policy(name, failOpen=open_, rateLimit=rule)


async def test_a_strict_limit_is_one_for_all_gateways() -> None:
    async with asyncio.timeout(300):
        with redis_server() as redis:
            async with sockets() as one, sockets() as two, counting(one, redis), counting(two, redis):
                rule = limit("l", 5)
                async with guarded(one, rule) as first, guarded(two, rule) as second:
                    codes = [(await got(gw, x_user="a"))[0] for gw in (first, second) * 5]
                    assert codes == [200] * 5 + [429] * 5
                    assert await got(first, x_user="b") == (200, "")
                    assert await got(first, x_user="a") == (429, "rate_limited")


async def test_answers_have_the_remaining_quota_and_retry_after() -> None:
    async with asyncio.timeout(300):
        with redis_server() as redis:
            async with sockets() as settings, counting(settings, redis), guarded(settings, limit("l", 2)) as gw:
                answers = [await gw.get("a.example", "/", headers={"x-user": "a"}) for _ in range(3)]
                assert [one.status_code for one in answers] == [200, 200, 429]
                assert [one.headers["x-ratelimit-limit"] for one in answers] == ["2"] * 3
                assert [one.headers["x-ratelimit-remaining"] for one in answers] == ["1", "0", "0"]
                assert all(3600 <= int(one.headers["x-ratelimit-reset"]) <= 3600 * 1.05 + 1 for one in answers[:2])
                assert "retry-after" not in answers[0].headers
                assert 3500 <= int(answers[2].headers["retry-after"]) <= 3600 * 1.05 + 1


async def test_a_limit_counts_by_the_subject_of_a_key_and_unauthorized_is_not_limited() -> None:
    async with asyncio.timeout(300):
        with redis_server() as redis:
            keyed = policy("k", order=1, keyAuth={"locations": [{"bearer": {}}]})
            rule = limit("l", 1, subject={})
            async with (
                sockets() as settings, counting(settings, redis), guarded(settings, keyed, rule) as gw
            ):  # fmt: skip
                assert [(await got(gw, **bearer(GOOD)))[0] for _ in range(2)] == [200, 429]
                assert [(await got(gw, **bearer(READER)))[0] for _ in range(2)] == [200, 429]
                assert [(await got(gw))[0] for _ in range(2)] == [401, 401]


async def test_without_redis_a_strict_limit_refuses_unless_it_may_fail_open() -> None:
    async with asyncio.timeout(300):
        with redis_server() as redis:
            closed = policy(
                "closed",
                match=[{"path": {"prefix": "/closed"}}],
                rateLimit={"limit": 9, "window": 60, "scope": "strict", "identifier": {"remoteIp": {}}},
            )
            opened = policy("open", failOpen=True, match=[{"path": {"prefix": "/open"}}],
                            rateLimit={"limit": 9, "window": 60, "scope": "strict", "identifier": {"remoteIp": {}}})  # fmt: skip
            async with sockets() as settings, guarded(settings, closed, opened) as gw:
                async with counting(settings, redis):

                    async def counted() -> bool:
                        return (await got(gw, "/closed"))[0] == 200 and (await got(gw, "/open"))[0] == 200

                    await eventually(counted, timeout_s=WAIT_S)
                    await asyncio.to_thread(redis.kill)
                    closed_code = (await got(gw, "/closed"))[1]
                    assert await got(gw, "/closed") == (503, closed_code) and closed_code != "rate_limited"
                    assert await got(gw, "/open") == (200, "")
                    assert await got(gw, "/else") == (200, "")
                    await asyncio.to_thread(redis.start)
                    await eventually(counted, timeout_s=WAIT_S)
                # no service counts
                assert (await got(gw, "/closed"))[0] == 503
                assert await got(gw, "/open") == (200, "")
