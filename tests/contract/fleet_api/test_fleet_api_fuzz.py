"""Requests made from the published description, and what must hold for every answer."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import requests
import schemathesis
from api_world import World, a_world, an_app
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

EXAMPLES = 4
# Streams have no end; what is alike for all kinds is tried with apps.
SKIPPED = re.compile(r".*/watch(/.*)?|(?!.*/apps/).*/{name}/(status|history|events)").fullmatch
# Where a name may be of something that exists; each is deleted and made again many times.
KNOWN = {"project": "shop", "environment": "prod", "cluster": "eu1", "shard": "default"}
ENV = "/api/v1/projects/shop/environments/prod"


async def make_objects(world: World) -> dict[str, str]:
    """An object of most kinds; returns a name by the plural of its kind."""
    await world.ok(world.admin("PUT", "/api/v1/projects/shop", {}))
    await world.ok(world.admin("PUT", "/api/v1/projects/shop/environments/prod", {}))
    await world.ok(world.admin("PUT", f"{ENV}/secrets/db", {"spec": {"values": {"A": "b"}}}))
    await world.ok(world.admin("PUT", f"{ENV}/apps/web", an_app()))
    await world.ok(world.admin("PUT", f"{ENV}/policies/limit", {"spec": {"rateLimit": {"limit": 5}}}))
    await world.ok(world.admin("PUT", f"{ENV}/routes/all", {"spec": {"host": "shop.example.com", "app": "web"}}))
    await world.ok(world.admin("PUT", f"{ENV}/apikeys/key", {"spec": {}}))
    return {
        "projects": "shop", "environments": "prod", "secrets": "db", "apps": "web", "policies": "limit",
        "routes": "all", "apikeys": "key", "regions": "us", "clusters": "eu1", "sentinels": "gate",
    }  # fmt: skip


async def send(world: World, names: dict[str, str], case: Any) -> None:
    for key in case.path_parameters:
        if key in KNOWN:
            case.path_parameters[key] = KNOWN[key]
        elif key == "name":
            case.path_parameters[key] = next(names[part] for part in reversed(case.path.split("/")) if part in names)
    if isinstance(case.body, dict) and "metadata" in case.body and case.method == "PUT":
        case.body["metadata"] = {}
    if isinstance(case.query, dict):
        case.query.pop("follow", None)
    if case.headers:
        case.headers.pop("If-None-Match", None)
    kwargs = case.as_transport_kwargs(base_url="http://server")
    known = ("method", "url", "params", "json", "data", "headers")
    request = requests.Request(**{key: kwargs[key] for key in known if key in kwargs}).prepare()
    headers = {
        key: str(value)
        for key, value in request.headers.items()
        if key.lower() not in ("authorization", "x-shoal-workspace", "content-length")
    }
    body = request.body or b""
    assert isinstance(body, str | bytes)
    target = (request.url or "").removeprefix("http://server")
    data = body.encode() if isinstance(body, str) else body
    answer = await world.admin(request.method or "GET", target, data, **headers)
    said = (request.method, target, data[:1000], answer.status_code, answer.text[:500])
    assert answer.status_code < 500, said
    assert str(answer.status_code) in case.operation.responses.status_codes or answer.status_code == 404, said
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"code", "message", "details", "correlation"}, said


def test_no_request_that_the_description_allows_is_answered_with_a_fault_of_ours(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        context = a_world({"main": f"sqlite:///{tmp_path}/fleet.db"})
        world = runner.run(context.__aenter__())
        try:
            runner.run(world.prepare())
            document = runner.run(world.nobody("GET", "/openapi.json")).json()
            schema = schemathesis.openapi.from_dict(document)
            operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
            assert len(operations) > 100
            names = runner.run(make_objects(world))
            for operation in operations:
                if SKIPPED(operation.path):
                    continue
                if operation.method.upper() in ("DELETE", "POST"):
                    names = runner.run(make_objects(world))
                fuzz(operation, lambda case, names=names: runner.run(send(world, names, case)))
            assert runner.run(world.viewer("GET", "/readyz")).status_code == 200
        finally:
            runner.run(context.__aexit__(None, None, None))


def fuzz(operation: Any, send_case: Any) -> None:
    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None,
        derandomize=True, database=None,
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        send_case(case)

    check()
