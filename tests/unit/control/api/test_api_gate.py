"""Who may come in, and what every answer carries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from api_world import CA, ENV, URL, Client, an_app, error_of, prepared_world

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.control.api.wiring import make_api
from shoal.rest.api import RestApi
from shoal.testing.loops import stalled_loop

METRICS = "/metrics"
PUBLIC = {"/livez", "/healthz", "/readyz", "/openapi.json", "/docs"}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def paths_of(api: RestApi[Any, Any]) -> list[tuple[str, str]]:
    """Every method and path there is, with something in place of its parameters."""
    found = [(each.method, re.sub(r"{\w+}", "shop", each.path)) for each in api.operations]
    return [*found, *(("GET", each.path) for each in api.pages)]


async def test_no_path_but_the_listed_ones_answers_without_a_token(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        paths = paths_of(world.api)
        assert len(paths) > 100
        for method, path in [
            *paths,
            ("GET", "/"),
            ("GET", "/api/v1/nothing"),
            ("GET", "/docs/"),
            ("OPTIONS", "/api/v1"),
        ]:
            answer = await world.nobody(method, path)
            if path in PUBLIC:
                assert answer.status_code == 200, path
            else:
                assert error_of(answer) == (401, "Unauthorized"), path
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert {path for _, path in paths if not path.startswith("/api/v1")} == PUBLIC | {METRICS}


async def test_tokens_that_are_wrong_old_or_of_an_agent_are_refused(tmp_path: Path) -> None:
    clock = FakeClock()

    async with prepared_world(tmp_path, clock=clock) as world:
        agent, _ = await world.tokens.create(kind="agent", name="a", cluster="eu1", region="eu", shard="default")
        answer = await Client(world.api, agent)("GET", "/api/v1")
        assert error_of(answer) == (403, "Forbidden")
        assert "agent" in answer.json()["error"]["message"] and agent not in answer.text
        for wrong in ("shoal_user_nobody", "x" * 5000):
            assert error_of(await Client(world.api, wrong)("GET", "/api/v1")) == (401, "Unauthorized")
        assert (await world.viewer("GET", "/api/v1", Authorization="Basic abc")).status_code == 401
        row = await world.tokens.find("user", "vic", workspace_id="default")
        assert (await world.viewer("GET", "/api/v1")).status_code == 200
        await world.ok(world.admin("DELETE", f"/api/v1/tokens/{row.id}"))
        assert (await world.viewer("GET", "/api/v1")).status_code == 401


async def test_metrics_are_for_this_machine_or_with_a_token(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        assert (await world.nobody("GET", METRICS)).status_code == 401
        assert (await Client(world.api, "", peer="127.0.0.1")("GET", METRICS)).status_code == 200
        proxied = await Client(world.api, "", peer="127.0.0.1")("GET", METRICS, X_Forwarded_For="8.8.8.8")
        assert proxied.status_code == 401
        answer = await world.viewer("GET", METRICS)
        assert 'shoal_control_api_requests_total{code="4xx",method="GET",resource="none"}' in answer.text
        assert 'resource="projects"' in answer.text and "shop" not in answer.text


async def test_health_tells_of_every_database(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        assert (await world.nobody("GET", "/livez")).json() == {"alive": True}
        async with stalled_loop("control-hub"):
            answer = await world.nobody("GET", "/livez")
            assert answer.status_code == 503 and list(answer.json()["loops"]) == ["control-hub"]
        ready = await world.nobody("GET", "/readyz")
        assert ready.json() == {"ready": True, "checks": [{"name": "database/main", "state": "ok"}]}


async def test_correlation_and_trace_are_taken_made_echoed_and_audited(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        answer = await world.editor("PUT", f"{ENV}/apps/web", an_app(), X_Correlation_Id="deploy-7", traceparent=TRACE)
        assert answer.headers["x-correlation-id"] == "deploy-7" and answer.headers["traceparent"] == TRACE
        assert (await world.ok(world.viewer("GET", "/api/v1/audit?limit=1")))["items"][0]["correlation"] == "deploy-7"
        for wrong in ("two words", "x" * 65, "a\x7fb"):
            made = await world.viewer("GET", "/api/v1", X_Correlation_Id=wrong, traceparent="00-0-0-0")
            assert re.fullmatch(r"[0-9a-f-]{36}", made.headers["x-correlation-id"])
            assert "traceparent" not in made.headers, "a made-up one would name a span that nobody has recorded"
        assert (await world.nobody("GET", "/api/v1", X_Correlation_Id="seen")).json()["error"]["correlation"] == "seen"


async def test_answers_are_not_to_be_kept_by_anybody_on_the_way(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        answer = await world.viewer("GET", "/api/v1/tokens")
        assert answer.headers["cache-control"] == "no-store" and answer.headers["x-content-type-options"] == "nosniff"


async def test_roles_decide(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        assert error_of(await world.viewer("PUT", f"{ENV}/apps/web", an_app())) == (403, "Forbidden")
        assert error_of(await world.editor("PUT", "/api/v1/regions/asia", {})) == (403, "Forbidden")
        assert error_of(await world.editor("GET", "/api/v1/tokens")) == (403, "Forbidden")
        assert error_of(await world.editor("POST", "/api/v1/agents/eu1/default/confirm-deletes")) == (403, "Forbidden")
        assert (await world.viewer("GET", f"{ENV}/apps")).status_code == 200


async def test_a_workspace_sees_nothing_of_another_and_only_operators_may_change_over(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        made = await world.ok(
            world.admin(
                "POST", "/api/v1/tokens", {"kind": "user", "name": "bob", "role": "admin", "workspace": "other"}
            )
        )
        bob = Client(world.api, made["token"])
        assert (await bob("GET", "/api/v1/projects/shop")).status_code == 404
        assert (await world.ok(bob("GET", "/api/v1/tokens")))["items"][0]["name"] == "bob"
        await world.ok(bob("PUT", "/api/v1/projects/theirs", {}))
        assert error_of(await bob("GET", "/api/v1/projects", X_Shoal_Workspace="default")) == (403, "Forbidden")
        assert error_of(await bob("PUT", "/api/v1/regions/eu", {"spec": {"platform": "x"}})) == (403, "Forbidden")
        for body in ({"kind": "user", "name": "x", "workspace": "default"}, {"kind": "edge", "name": "x"}):
            assert error_of(await bob("POST", "/api/v1/tokens", body)) == (403, "Forbidden")
        seen = await world.ok(world.admin("GET", "/api/v1/projects", X_Shoal_Workspace="other"))
        assert [item["metadata"]["name"] for item in seen["items"]] == ["theirs"]
        assert (await world.admin("GET", "/api/v1", X_Shoal_Workspace="nowhere")).status_code == 404
        assert error_of(await world.editor("GET", "/api/v1", X_Shoal_Workspace="other")) == (403, "Forbidden")
        foreign = await world.tokens.find("user", "ann", workspace_id="default")
        assert (await bob("DELETE", f"/api/v1/tokens/{foreign.id}")).status_code == 404
        assert (await bob("POST", f"/api/v1/tokens/{foreign.id}/rotate")).status_code == 404


async def test_a_token_is_shown_once_and_that_of_an_agent_comes_with_all_it_needs_to_join(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        body = {"kind": "agent", "name": "eu2", "cluster": "eu2", "region": "eu", "shard": "a", "ttlSeconds": 60}
        made = await world.admin("POST", "/api/v1/tokens", body)
        assert made.status_code == 201
        join = made.json()["join"]
        assert join == {
            "url": URL,
            "ca": CA,
            "token": made.json()["token"],
            "cluster": "eu2",
            "region": "eu",
            "shard": "a",
        }
        cluster = await world.ok(world.viewer("GET", "/api/v1/clusters/eu2"))
        assert cluster["spec"] == {"region": "eu", "shards": ["a"]}
        assert error_of(await world.admin("POST", "/api/v1/tokens", body)) == (409, "AlreadyExists")
        listed = await world.admin("GET", "/api/v1/tokens?kind=agent")
        assert [row["name"] for row in listed.json()["items"]] == ["eu2"] and join["token"] not in listed.text
        turned = await world.ok(
            world.admin("POST", f"/api/v1/tokens/{made.json()['info']['id']}/rotate", {"graceSeconds": 0})
        )
        assert turned["join"]["token"] != join["token"]
        assert await world.tokens.authenticate(join["token"]) is None
        assert join["token"] not in (await world.admin("GET", "/api/v1/audit")).text


async def test_join_files_of_agents_have_the_urls_of_all_control_planes(tmp_path: Path) -> None:
    several = [URL, "https://second.example:7400"]
    async with prepared_world(tmp_path) as world:
        api = make_api(
            world.fleet, world.tokens, world.databases, clock=world.clock, metrics=Metrics(), urls=several, ca=lambda: CA,
            version="1.2.3",
        )  # fmt: skip
        admin = Client(api, world.admin.token)
        for kind, urls in (("agent", several), ("relay", None), ("edge", None)):
            body = {"kind": kind, "name": kind, "region": "eu"} | ({"cluster": "eu2"} if kind == "agent" else {})
            join = (await world.ok(admin("POST", "/api/v1/tokens", body)))["join"]
            assert (join["url"], join.get("urls")) == (URL, urls)


async def test_what_a_token_needs_is_said_field_by_field(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for body, fields in (
            ({"kind": "agent", "name": "x"}, ["cluster", "region"]),
            ({"kind": "user"}, ["name"]),
            ({"kind": "robot", "name": "x"}, ["kind"]),
            ({"kind": "user", "name": "x", "cluster": "eu1"}, ["cluster"]),
            ({"kind": "user", "name": "x", "ttl": 3}, ["ttl"]),
        ):
            answer = await world.admin("POST", "/api/v1/tokens", body)
            assert error_of(answer) == (422, "Invalid")
            assert [detail["field"] for detail in answer.json()["error"]["details"]] == fields, body


async def test_a_fault_of_ours_is_answered_without_its_details(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:

        async def broken(*_: object) -> None:
            raise RuntimeError("the secret detail")

        world.fleet.agents = broken  # type: ignore[method-assign, assignment]
        answer = await world.viewer("GET", "/api/v1/agents")
        assert error_of(answer) == (500, "InternalError") and "secret detail" not in answer.text
