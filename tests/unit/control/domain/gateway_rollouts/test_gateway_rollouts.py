"""Another image of an environment's gateways: region by region, half of the pods first, judged, promoted or taken
back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import ADMIN, VIEWER, a_fleet, doc
from gateway_agents import (
    ENVIRONMENT,
    changed,
    decided,
    gateways,
    images,
    play,
    report,
    rollout,
    seconds,
    told,
    two_gateways,
)

from shoal.control.database import tables
from shoal.control.domain.model import ObjectRef
from shoal.errors import Conflict, Forbidden, Invalid
from shoal.testing.databases import shared_postgres


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_an_image_takes_one_region_after_the_other_and_a_single_gateway_surges_to_two(
    database: str, tmp_path: Path
) -> None:
    url = shared_postgres().create_database() if database == "postgresql" else ""
    async with a_fleet(tmp_path, url=url) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        assert (await told(world), await images(world)) == ({"eu": (1, 1), "us": (1, 0)}, {"eu": "", "us": ""})
        await play(world)
        assert (await rollout(world))["hold"] == "pause takes 120 s"
        await seconds(world, 125, eu={0: (50, 0), 2: (50, 0)})
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": ""}
        assert await told(world) == {"eu": (1, 0), "us": (1, 1)}, "the first one has it, the second one tries it"
        await seconds(world, 125, us={0: (50, 0), 2: (50, 0)})
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": "edge:2"}
        found = await rollout(world)
        assert (found["outcome"], found["waves"]) == ("promoted", [["eu"], ["us"]])
        assert await decided(world) == ["start", "step", "step", "wave", "step", "step", "promote"]
        assert found["decisions"][0]["reason"] == "gateways from the agent's image to edge:2: canary"
        assert [each.rollout for each in (await gateways(world)).values()] == [None, None]
        assert [each["reason"] for each in (await world.fleet.status(ADMIN))["gateways"]] == ["", ""]


async def test_half_of_four_pods_are_exchanged_and_never_fewer_than_four_serve(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world, replicas=4)
        await changed(world, "edge:2")
        assert (await told(world))["eu"] == (4, 2), "none of its own goes before the others are ready"
        await report(world, "eu")
        assert (await told(world))["eu"] == (2, 2)
        await play(world)
        await world.clock.advance(125)
        await world.fleet.keep_rollouts()
        assert (await told(world))["eu"] == (4, 2), "its own are exchanged, the others serve meanwhile"
        await play(world)
        assert (await told(world))["eu"] == (4, 0)


async def test_while_it_is_under_way_people_see_where_it_is_and_steer_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        await report(world, "eu", candidate={"revision": 2, "pods": 1, "ready": 0})
        (eu, us) = (await world.fleet.status(ADMIN))["gateways"]
        assert (eu["reason"], us["reason"]) == ("0 of 1 pods of revision 2 are ready beside its own", "")
        assert (await rollout(world))["hold"] == "0 of 1 instances are ready in eu"
        await play(world)
        (region, _) = (await rollout(world))["regions"]
        assert (region["weight"], region["candidate"]["ready"], region["stable"]["ready"]) == (50, 1, 1)
        with pytest.raises(Forbidden):
            await world.fleet.command_rollout(VIEWER, ENVIRONMENT, "abort")
        await world.fleet.command_rollout(ADMIN, ENVIRONMENT, "pause")
        await seconds(world, 300)
        assert (await rollout(world))["hold"] == "paused by a person"
        await world.fleet.command_rollout(ADMIN, ENVIRONMENT, "promote", reason="an urgent fix")
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": "edge:2"}
        assert (await rollout(world))["outcome"] == "promoted"
        (line,) = [row for row in await world.rows(tables.Event) if row.reason == "RolloutPause"]
        assert (line.kind, line.name) == ("Environment", "shop/prod")


async def test_a_candidate_that_crashes_is_taken_back_and_refused_until_it_is_forced(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world, image="edge:1")
        await changed(world, "edge:bad")
        await play(world, bad=("edge:bad",))
        found = await rollout(world)
        assert found["outcome"] == "rolledBack"
        assert found["reason"] == "instances fail in eu: CrashLoopBackOff: exit code 1 (restarted 3 times)"
        assert await images(world) == {"eu": "edge:1", "us": "edge:1"}
        assert (await world.fleet.get(ADMIN, ENVIRONMENT))["spec"] == {"sentinel": {"image": "edge:1"}}
        with pytest.raises(Conflict, match="edge:bad were taken back as revision 2: instances fail in eu: CrashLoop"):
            await changed(world, "edge:bad")
        why = (await world.fleet.explain(ADMIN, ENVIRONMENT))["lines"]
        assert why == [f"gateways: rollout 1 went back: {found['reason']}"]
        await changed(world, "edge:bad", forced=True)
        assert (await rollout(world))["number"] == 2


async def test_one_that_does_not_become_ready_is_taken_back_with_the_reason(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:none")
        waiting = {"revision": 2, "pods": 1, "ready": 0, "reason": "ImagePullBackOff", "message": "no such image"}
        for _ in range(2):
            await report(world, "eu", candidate=waiting)
            await world.clock.advance(301)
            await world.fleet.keep_rollouts()
        await play(world)
        assert (await rollout(world))["reason"] == "not ready in eu after 300 s: ImagePullBackOff: no such image"
        assert await images(world) == {"eu": "", "us": ""}


async def test_more_failed_requests_than_the_other_pods_have_take_it_back_in_all_regions(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        await play(world)
        await seconds(world, 125, eu={0: (200, 2), 2: (200, 2)})
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": ""}
        await seconds(world, 90, us={0: (200, 2), 2: (200, 60)})
        await play(world)
        found = await rollout(world)
        assert (
            found["outcome"] == "rolledBack" and "30.0 % of 3 000 requests to revision 2 failed" in found["reason"]
        ), found["reason"]
        assert await images(world) == {"eu": "", "us": ""}, "the region that had it has gone back too"
        assert await told(world) == {"eu": (1, 0), "us": (1, 0)}


async def test_it_has_gone_back_to_the_agents_image_only_when_its_pods_run_another_one(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        await play(world)
        await world.clock.advance(125)
        await play(world)
        await world.fleet.command_rollout(ADMIN, ENVIRONMENT, "abort")
        for name in ("eu", "us"):
            await report(world, name, image="edge:2" if name == "eu" else "agent:1")
        assert (await rollout(world))["hold"] == "gateways still lead to it in eu"
        await report(world, "eu")
        assert (await rollout(world))["outcome"] == "rolledBack"


async def test_what_fails_for_both_versions_is_not_its_fault(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        await play(world)
        await seconds(world, 125, eu={0: (200, 100), 2: (200, 100)})
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": ""}


async def test_an_agent_of_an_earlier_release_exchanges_its_pods_as_before(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await report(world, "eu", splits=False)
        await changed(world, "edge:2")
        assert (await told(world), await images(world)) == ({"eu": (1, 0), "us": (1, 0)}, {"eu": "edge:2", "us": ""})
        await report(world, "eu", splits=False, image="agent:1")
        assert (await rollout(world))["step"] == 0, "its pods still run the old one"
        await report(world, "eu", splits=False)
        assert (await rollout(world))["hold"] == "pause takes 120 s"
        await world.clock.advance(125)
        await report(world, "eu", splits=False)
        await world.fleet.keep_rollouts()
        assert await told(world) == {"eu": (1, 0), "us": (1, 1)}


async def test_another_image_takes_the_place_of_one_under_way_and_the_image_before_ends_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world, image="edge:1")
        await changed(world, "edge:2")
        await play(world)
        await seconds(world, 125)
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": "edge:1"}
        await changed(world, "edge:3")
        assert await images(world) == {"eu": "edge:1", "us": "edge:1"}
        await play(world)
        assert ((await rollout(world))["number"], (await rollout(world, 1))["outcome"]) == (2, "superseded")
        assert await told(world) == {"eu": (1, 1), "us": (1, 0)}
        await changed(world, "edge:1")
        await play(world)
        assert (await rollout(world))["outcome"] == "rolledBack"
        assert await told(world) == {"eu": (1, 0), "us": (1, 0)}


async def test_a_gateway_that_is_made_meanwhile_begins_with_the_image_before(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world, image="edge:1")
        await changed(world, "edge:2")
        await world.fleet.delete(ADMIN, ObjectRef("Sentinel", "us", "shop", "prod"))
        assert await images(world) == {"eu": "edge:1", "us": "edge:1"}
        await play(world)
        await world.fleet.command_rollout(ADMIN, ENVIRONMENT, "promote")
        await play(world)
        assert await images(world) == {"eu": "edge:2", "us": "edge:2"}


async def test_undo_goes_back_without_steps_and_retry_tries_again(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world, image="edge:1")
        await changed(world, "edge:2")
        await world.fleet.command_rollout(ADMIN, ENVIRONMENT, "promote")
        await play(world)
        spec_of = await world.fleet.spec_again(ADMIN, ENVIRONMENT, "undo")
        spec = spec_of((await world.fleet.get(ADMIN, ENVIRONMENT))["spec"])
        await world.apply(doc("Environment", "prod", spec), forced=True, is_hurried=True)
        await play(world)
        assert await images(world) == {"eu": "edge:1", "us": "edge:1"}
        found = await rollout(world)
        assert (found["number"], found["stableRevision"], found["outcome"]) == (2, 2, "promoted")
        with pytest.raises(Conflict, match="nothing to retry"):
            await world.fleet.spec_again(ADMIN, ENVIRONMENT, "retry")


async def test_an_environment_that_is_deleted_leaves_nothing_of_its_rollouts(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await two_gateways(world)
        await changed(world, "edge:2")
        await world.fleet.delete(ADMIN, ENVIRONMENT, cascade=True)
        assert await world.rows(tables.Rollout) == await world.rows(tables.RolloutDecision) == []
        await world.fleet.keep_rollouts()


@pytest.mark.parametrize(
    ("rollout_spec", "where", "says"),
    [
        ({"strategy": "blueGreen"}, "strategy", "always exchanged step by step"),
        ({"keep": "5m"}, "keep", "nothing is kept"),
        ({"steps": [{"weight": 100}, {"pause": "1m"}]}, "steps[0]", "between 1 and 99"),
        ({"steps": [{"pause": "1m"}]}, "steps[0]", "a weight must come first"),
        ({"steps": [{"weight": 50}, {"mirror": 5}]}, "steps[1]", "gateways have no mirror steps"),
        ({"checks": []}, "checks", "their own numbers only"),
        ({"surprise": 1}, "surprise", ""),
    ],
)
async def test_what_means_nothing_for_gateways_is_refused(
    tmp_path: Path, rollout_spec: dict[str, Any], where: str, says: str
) -> None:
    async with a_fleet(tmp_path) as world:
        with pytest.raises(Invalid) as refused:
            await world.apply(doc("Environment", "prod", {"sentinel": {"rollout": rollout_spec}}))
        (fault, *_) = refused.value.errors
        assert fault.field == f"spec.sentinel.rollout.{where}"
        assert says in fault.body
