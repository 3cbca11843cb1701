"""Flow control around real requests: refusals, seats that are held and given back, settings from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.flow.config import FlowConfig
from shoal.apiserver.messages import LongResponse, RefusedRequest, Request
from shoal.errors import ConfigError
from shoal.testing.servers import ADMIN_TOKEN, LocalServer, local_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
AS_ALICE = {"impersonate-user": "alice"}


@asynccontextmanager
async def serving(**flow: Any) -> AsyncIterator[LocalServer]:
    config = ServerConfig(ca_certificate="test CA", flow=FlowConfig(**flow))
    async with local_server(config=config) as server:
        async with asyncio.timeout(20):
            yield server
        gate = server.server.handler.protection.gate
        assert gate.in_flight == [0, 0] and gate.waiting == 0
        assert all(level.used == 0 for level in gate.levels.values())


async def let_in(server: LocalServer, user: str) -> None:
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    await server.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": user}, "subjects": [subject], "roleRef": role},
    )


async def test_a_rejected_request_gets_retry_after_before_it_is_read_or_authorized() -> None:
    async with serving() as server:
        gate = server.server.handler.protection.gate
        level = gate.levels["global-default"]
        level.used = 10_000
        level.reject = True
        answer = await server.call("POST", CONFIG_MAPS, b"{not json", AS_ALICE)
        level.used, level.reject = 0, False
        assert answer.status == 429 and answer.headers["retry-after"] == "1"
        status = answer.json
        assert status["reason"] == "TooManyRequests" and status["details"] == {"retryAfterSeconds": 1}
        assert status["message"] == "Too many requests, please try again later."
        text = (await server.call("GET", "/metrics")).body.decode()
        labels = '{flow_schema="global-default",priority_level="global-default",reason="concurrency-limit"}'
        assert f"apiserver_flowcontrol_rejected_requests_total{labels} 1.0" in text


async def test_answers_name_their_schema_and_level() -> None:
    async with serving() as server:
        schemas = {
            o["metadata"]["uid"]: o["metadata"]["name"] for o in (await server.get(f"{FLOW}/flowschemas"))["items"]
        }
        found = []
        for headers in ({}, AS_ALICE, {"impersonate-user": "system:kube-scheduler"}):
            answer = await server.call("GET", CONFIG_MAPS, headers=headers)
            found.append(schemas[answer.headers["x-kubernetes-pf-flowschema-uid"]])
        assert found == ["exempt", "global-default", "kube-scheduler"]
        stream = await server.transport.stream("GET", f"{CONFIG_MAPS}?watch=1")
        assert schemas[stream.headers["x-kubernetes-pf-flowschema-uid"]] == "exempt" and stream.headers["audit-id"]
        await stream.close()


async def test_schemas_and_levels_of_the_store_count_as_soon_as_they_are_written() -> None:
    async with serving() as server:
        limited = {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}
        level = await server.post(
            f"{FLOW}/prioritylevelconfigurations",
            {"metadata": {"name": "slow"}, "spec": {"type": "Limited", "limited": limited}},
        )
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        subject = {"kind": "User", "user": {"name": "alice"}}
        await server.post(
            f"{FLOW}/flowschemas",
            {
                "metadata": {"name": "alices"},
                "spec": {
                    "priorityLevelConfiguration": {"name": "slow"},
                    "matchingPrecedence": 600,
                    "rules": [{"subjects": [subject], "resourceRules": [rule]}],
                },
            },
        )
        answer = await server.call("GET", CONFIG_MAPS, headers=AS_ALICE)
        assert answer.headers["x-kubernetes-pf-prioritylevel-uid"] == level["metadata"]["uid"]
        await server.delete(f"{FLOW}/flowschemas/alices")
        answer = await server.call("GET", CONFIG_MAPS, headers=AS_ALICE)
        assert answer.headers["x-kubernetes-pf-prioritylevel-uid"] != level["metadata"]["uid"]


async def test_many_writes_of_one_user_wait_for_their_turn_and_all_are_done() -> None:
    async with serving(max_requests_in_flight=20, max_mutating_requests_in_flight=20) as server:
        await let_in(server, "alice")
        bodies = [{"metadata": {"name": f"a-{number}"}} for number in range(150)]
        answers = await asyncio.gather(*(server.call("POST", CONFIG_MAPS, body, AS_ALICE) for body in bodies))
        assert {answer.status for answer in answers} == {201}


async def test_a_watch_holds_no_seat_once_it_has_begun() -> None:
    async with serving() as server:
        await let_in(server, "alice")
        gate = server.server.handler.protection.gate
        stream = await server.transport.stream("GET", f"{CONFIG_MAPS}?watch=1", headers=AS_ALICE)
        assert stream.status == 200 and gate.levels["global-default"].used == 0
        await stream.close()


async def test_a_long_list_takes_more_seats_than_a_short_one() -> None:
    async with serving() as server:
        await let_in(server, "alice")
        for number in range(250):
            await server.post(CONFIG_MAPS, {"metadata": {"name": f"a-{number}"}})
        gate = server.server.handler.protection.gate
        widths: list[int] = []
        enter = gate.enter

        def noted(match: Any, width: int = 1) -> bool:
            widths.append(width)
            return enter(match, width)

        gate.enter = noted  # type: ignore[method-assign]
        for query in ("", "?limit=5", "?limit=5&labelSelector=a%3Db", "/a-1", "?watch=1&resourceVersion=1"):
            reply = await server.transport.stream("GET", CONFIG_MAPS + query, headers=AS_ALICE)
            await reply.close()
        gate.enter = enter  # type: ignore[method-assign]
        assert widths == [3, 1, 3, 1, 1]


async def test_a_long_list_keeps_its_seats_until_its_client_has_it() -> None:
    async with serving() as server:
        await let_in(server, "alice")
        for number in range(3):
            await server.post(CONFIG_MAPS, {"metadata": {"name": f"a-{number}"}, "data": {"k": "x" * 200_000}})
        handler = server.server.handler
        level = handler.protection.gate.levels["global-default"]
        headers = {b"authorization": f"Bearer {ADMIN_TOKEN}".encode(), b"impersonate-user": b"alice"}
        answer = await handler.handle(Request("GET", CONFIG_MAPS.encode(), headers))
        assert isinstance(answer, LongResponse) and level.used == 1
        answer.on_sent()
        assert level.used == 0
        assert len((await server.call("GET", CONFIG_MAPS, headers=AS_ALICE)).body) > 600_000


async def test_clients_that_keep_coming_with_unknown_credentials_are_slowed_down() -> None:
    async with serving() as server:
        answer = await server.server.handler.handle(Request("GET", b"/api", {b"authorization": b"Bearer x"}))
        assert isinstance(answer, RefusedRequest) and answer.status == 401 and answer.hold_s > 0
        assert (b"WWW-Authenticate", b'Bearer realm="shoal"') in answer.headers


async def test_a_bad_timeout_is_refused_as_kubernetes_does() -> None:
    async with serving() as server:
        answer = await server.call("GET", f"{CONFIG_MAPS}?timeout=soon")
        assert answer.status == 400
        assert answer.json["message"].startswith("invalid timeout specified in the request URL - ")
        assert (await server.call("GET", f"{CONFIG_MAPS}?timeout=5s")).status == 200


@pytest.mark.parametrize("depth", [250, 5000])
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml", "application/merge-patch+json"])
async def test_bodies_nested_too_deeply_are_refused_clearly(content_type: str, depth: int) -> None:
    async with serving() as server:
        await server.post(CONFIG_MAPS, {"metadata": {"name": "a"}})
        body = b'{"metadata":{"name":"b"},"data":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
        method, target = ("PATCH", f"{CONFIG_MAPS}/a") if "patch" in content_type else ("POST", CONFIG_MAPS)
        answer = await server.call(method, target, body, {"content-type": content_type})
        assert answer.status == 400, answer.body[:300]
        assert "nested" in answer.json["message"], answer.json["message"]


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match="burst is 0: use a number above 0"):
        FlowConfig(burst=0)
