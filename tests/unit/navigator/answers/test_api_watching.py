"""Streams of answers: the answer now, and again after each change of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from answers_client import ROOT, Streaming, an_api
from answers_world import World, a_pod, a_service, the_world

from shoal.navigator.answers.api import watching
from shoal.navigator.model import Freshness
from shoal.testing.waiting import eventually


class Watch(Streaming):
    """The answers of a stream of events."""

    @property
    def answers(self) -> list[dict[str, Any]]:
        parts = self.body.decode().split("\n\n")
        return [orjson.loads(part.partition("data: ")[2]) for part in parts if "event: answer" in part]

    async def shown(self, count: int) -> dict[str, Any]:
        await self.until(lambda: len(self.answers) >= count)
        return self.answers[count - 1]


@asynccontextmanager
async def watched(world: World, path: str, **params: Any) -> AsyncIterator[Watch]:
    api = an_api(world)
    stream = Watch(api, f"{ROOT}/watch/{path}", urlencode(params))
    try:
        yield stream
    finally:
        api.end_streams()
        stream.gone.set()
        await stream.task


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["items"]]


async def test_a_watched_query_is_answered_at_once_and_after_each_change_of_its_answer() -> None:
    world = the_world()
    async with watched(world, "query", q="pods where namespace = lab") as stream:
        assert names(await stream.shown(1)) == ["lonely-0"]
        world.view.put("us-2", "pods", a_pod("lonely-1", "lab"))
        world.changes.notify()
        assert names(await stream.shown(2)) == ["lonely-0", "lonely-1"]
        world.view.put("us-2", "pods", a_pod("elsewhere", "shop"))
        world.changes.notify()
        world.view.remove("us-2", "pods", "lab/lonely-0")
        world.changes.notify()
        assert names(await stream.shown(3)) == ["lonely-1"]
        assert len(stream.answers) == 3


async def test_time_that_passes_changes_no_answer_but_a_cluster_that_becomes_stale_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "AGAIN_S", 0.05)
    world = the_world()
    looks = 0
    seen = world.view.clusters

    def clusters() -> Any:
        nonlocal looks
        looks += 1
        world.view.at_s += 1.0
        return seen()

    world.view.clusters = clusters  # type: ignore[method-assign]
    async with watched(world, "query", q="pods where name = web-1 and cluster = eu-1") as stream:
        first = await stream.shown(1)
        before = looks
        await eventually(lambda: looks > before + 6)
        assert len(stream.answers) == 1
        world.view.known = [replace(each, freshness=Freshness.STALE) for each in world.view.known]
        second = await stream.shown(2)
        assert second["items"][0]["age"] > first["items"][0]["age"]
        assert [each["cluster"] for each in second["notFresh"]] == ["eu-1", "us-1", "us-2"]


async def test_ages_are_sent_again_when_the_watcher_asks_for_it() -> None:
    async with watched(the_world(), "query", q="pods where name = web-1", refresh=0.05) as stream:
        await stream.shown(3)


async def test_services_one_service_pods_without_a_service_and_mistakes_can_be_watched() -> None:
    world = the_world()
    async with (
        watched(world, "services", namespace="shop") as services,
        watched(world, "services/shop/web") as service,
        watched(world, "pods", exposed="false", cluster="eu-1") as pods,
        watched(world, "mesh/mistakes", severity="error") as mistakes,
    ):
        assert names(await services.shown(1)) == ["db", "web"]
        assert (await service.shown(1))["endpoints"] > 0
        assert names(await pods.shown(1)) == ["batch-7"]
        before = (await mistakes.shown(1))["total"]
        world.view.put("eu-1", "services", a_service("web", port=81), a_service("nowhere"))
        world.view.remove("eu-1", "pods", "shop/batch-7")
        world.changes.notify()
        assert names(await services.shown(2)) == ["db", "nowhere", "web"]
        assert 81 in (await service.shown(2))["ports"]
        assert names(await pods.shown(2)) == []
        assert (await mistakes.shown(2))["total"] < before


async def test_an_error_before_the_first_answer_has_its_status_and_a_later_one_is_the_last_event() -> None:
    world = the_world()
    async with watched(world, "query", q="pds") as stream:
        await stream.until(lambda: bool(stream.sent))
        assert stream.sent[0]["status"] == 400
    async with watched(world, "services/shop/none") as stream:
        await stream.until(lambda: bool(stream.sent))
        assert stream.sent[0]["status"] == 404
    async with watched(world, "services/shop/db") as stream:
        await stream.shown(1)
        for cluster in ("eu-1", "us-1"):
            world.view.remove(cluster, "services", "shop/db")
        world.changes.notify()
        await stream.until(lambda: b"event: error" in stream.body)
        assert b"no cluster has a service" in stream.body
