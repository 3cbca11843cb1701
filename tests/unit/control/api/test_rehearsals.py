"""Rollouts that are only played: what would happen, and what is wrong with what is played."""

from __future__ import annotations

from pathlib import Path

from api_world import ENV, error_of, fields_of, prepared_world

from shoal.control.database import tables

APP = """
apiVersion: shoal.dev/v1
kind: App
metadata: {name: web, project: shop, environment: prod}
spec:
  image: shop/web:2
  topology: [{region: eu, replicas: 4}]
"""
CANARY = (
    APP
    + """  rollout: {strategy: canary, steps: [{weight: 10}, {pause: 1m}, {weight: 50}]}
"""
)
PATH = "/api/v1/rehearse"


async def test_a_rollout_is_played_and_nothing_is_changed(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        played = await world.ok(world.viewer("POST", PATH, {"text": CANARY}))
        (found,) = played["items"]
        assert found["app"] == "shop/prod/web" and found["strategy"]["kind"] == "canary"
        assert {row["weight"] for row in found["rows"]} >= {10, 50, 100}
        assert found["rows"][-1]["time_s"] >= 60
        assert await world.rows(tables.App) == []


async def test_the_defaults_of_the_environment_count(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        rollout = {"strategy": "canary", "steps": [{"weight": 25}]}
        await world.ok(world.admin("PUT", ENV, {"spec": {"rollout": rollout}}))
        (found,) = (await world.ok(world.viewer("POST", PATH, {"text": APP})))["items"]
        assert 25 in {row["weight"] for row in found["rows"]}
        home = {"apiVersion": "shoal.dev/v1", "kind": "Environment", "metadata": {"name": "prod", "project": "shop"},
                "spec": {"rollout": {"strategy": "recreate"}}}  # fmt: skip
        (found,) = (await world.ok(world.viewer("POST", PATH, {"text": APP, "documents": [home]})))["items"]
        assert found["strategy"]["kind"] == "recreate"


async def test_a_script_plays_what_goes_wrong(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        script = "faults: [{at: 10s, region: eu, crash: true}]\nready: 5s\n"
        (found,) = (await world.ok(world.viewer("POST", PATH, {"text": CANARY, "script": script})))["items"]
        assert max(row["weight"] for row in found["rows"]) <= 50


async def test_what_cannot_be_played_says_why(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for body, code, text in (
            ({}, "Invalid", "must have an App"),
            ({"text": "kind: Nothing\napiVersion: shoal.dev/v1\n"}, "BadRequest", "Nothing"),
            ({"text": ":"}, "BadRequest", ""),
            ({"text": CANARY, "script": "faults: [{region: mars}]"}, "Invalid", "mars"),
            ({"text": CANARY.replace("weight: 10", "weight: 1000")}, "Invalid", "weight"),
        ):
            answer = await world.viewer("POST", PATH, body)
            assert error_of(answer)[1] == code and text in answer.text, (body, answer.text)
        assert "colour" in fields_of(await world.viewer("POST", PATH, {"colour": "red"}))
