"""Rollouts over a database: steps, weights, instances, the way back, and what is refused afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from failing_planes import WHOLE, ControlPlanes, FailingCommits, taken, to_its_end
from fleet_world import ADMIN, VIEWER, a_fleet, an_app
from job_checks import CHECKED, SMOKE, JobWorld
from rollout_world import APP, CANARY, Action, decided, play, rollout, served, shares

from shoal.control.checks import runner
from shoal.control.database import tables
from shoal.control.database.transaction import Tx
from shoal.errors import Conflict, Forbidden, ServiceUnavailable
from shoal.testing.databases import shared_postgres
from shoal.testing.failover import replicated_postgres
from shoal.wire.fleet.v1 import cluster_pb as pb


async def test_a_canary_takes_its_steps_and_keeps_stable_at_its_full_size(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        await play(world)
        assert await shares(world) == {("eu", 1): (75, None), ("eu", 2): (25, 1)}
        assert (await rollout(world))["hold"] == "pause takes 60 s"
        await world.clock.advance(61)
        await play(world)
        assert await shares(world) == {("eu", 1): (50, None), ("eu", 2): (50, 2)}
        assert (await rollout(world))["hold"] == "waits for approval"
        await world.fleet.command_rollout(ADMIN, APP, "resume")
        await play(world)
        assert await shares(world) == {("eu", 1): (0, 4), ("eu", 2): (100, None)}
        assert (await rollout(world))["phase"] == "keeping"
        assert (await world.deployment()).status == "ready"
        await world.clock.advance(30 * 60 + 1)
        await play(world)
        assert await shares(world) == {("eu", 2): (100, None)}
        assert (await rollout(world))["outcome"] == "promoted"
        assert await decided(world) == ["start", "step", "step", "step", "approve", "step", "promote", "end"]


async def test_going_back_is_one_change_of_weights_in_all_regions_and_the_spec_is_what_runs(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, regions=("eu", "us"), replicas=2)
        await world.apply(an_app(regions=("eu", "us"), replicas=2, image="shop/web:2", rollout=CANARY))
        await play(world)
        assert (await shares(world))["us", 2] == (25, 1)
        await world.fleet.command_rollout(ADMIN, APP, "abort", reason="a bad feeling")
        found = await shares(world)
        assert (found["eu", 3], found["us", 3]) == ((100, 2), (100, 2)), "what runs counts as the next revision"
        await play(world)
        assert await shares(world) == {("eu", 3): (100, None), ("us", 3): (100, None)}
        app = await world.app()
        assert (app.spec["image"], app.spec["rollout"]) == ("shop/web:1", CANARY)
        found = await rollout(world)
        assert (found["phase"], found["outcome"]) == ("ended", "rolledBack")
        assert found["decisions"][-2]["reason"] == "aborted by ann: a bad feeling"
        await world.apply(an_app(regions=("eu", "us"), replicas=2, image="shop/web:2", rollout=CANARY))


async def test_a_candidate_that_crashes_is_taken_back_and_refused_until_it_is_forced(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        bad = an_app(replicas=2, image="shop/web:2", rollout=CANARY)
        await world.apply(bad)
        await play(world, only=(1,))
        found = await rollout(world)
        assert (found["phase"], found["outcome"]) == ("ended", "rolledBack")
        assert found["reason"].startswith("instances fail in eu: pod-0: CrashLoopBackOff")
        with pytest.raises(Conflict, match="revision 2 with the same contents was taken back: instances fail in eu"):
            await world.apply(bad)
        with_git = {**bad, "spec": {**bad["spec"], "git": {"sha": "a" * 40}}}
        with pytest.raises(Conflict, match="--force"):
            await world.apply(with_git)
        await world.apply(bad, forced=True)
        assert (await rollout(world))["revision"] == 4


async def test_restarts_of_before_the_rollout_are_none_of_the_candidate(tmp_path: Path) -> None:
    crash = {"ready": False, "status": "failed", "reason": "CrashLoopBackOff"}
    other = {"region": "us", "replicas": 2, "overrides": {"env": {"A": "1"}}}
    app = an_app(regions=("eu", "us"), replicas=2, rollout={**CANARY, "steps": [{"weight": 50}, {"pause": {}}]})
    async with a_fleet(tmp_path) as world:
        await served(world, regions=("eu", "us"), replicas=2)
        first = await world.report_app()
        await world.report(first, only="eu1", **crash, restarts=7)  # what runs in eu counts as the candidate
        app["spec"]["topology"][1] = other
        await world.apply(app)
        await world.report(first, only="eu1", **crash, restarts=8)
        assert (await rollout(world))["outcome"] == "", "one restart since"
        await world.report(first, only="eu1", **crash, restarts=9)
        assert (await rollout(world))["reason"].startswith("instances fail in eu: pod-1: CrashLoopBackOff")


async def test_an_app_goes_back_and_forth_while_the_other_revision_is_kept(tmp_path: Path) -> None:
    steps = {"steps": [50], "every": "1m", "judge": False}
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout=steps))
        await play(world)
        await world.clock.advance(61)
        await play(world)
        assert await shares(world) == {("eu", 1): (0, 2), ("eu", 2): (100, None)}
        for image, number, other in (("shop/web:1", 3, 2), ("shop/web:2", 4, 3)):
            await world.apply(an_app(replicas=2, image=image, rollout=steps))
            assert (await shares(world))["eu", number][0] == 100, "one change of routes"
            await play(world)
            assert await shares(world) == {("eu", number): (100, None), ("eu", other): (0, 2)}
            assert (await rollout(world))["phase"] == "keeping"


async def test_a_promoted_app_is_ready_while_its_old_revision_is_kept(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.join("eu1")
        await served(world, replicas=2)
        steps = {"steps": [50, {"weight": 100}, {"pause": "20s"}], "every": "10s", "judge": False}
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout=steps))
        await play(world)
        await world.clock.advance(11)
        await play(world)
        assert (await shares(world))["eu", 2] == (100, None)
        found = await world.fleet.status(ADMIN, APP)
        assert (found["state"], found["regions"][0]["reason"]) == ("Progressing", "Exchanging"), "a step is left"
        await world.clock.advance(21)
        await play(world)
        assert (await rollout(world))["phase"] == "keeping"
        found = await world.fleet.status(ADMIN, APP)
        (row,) = found["regions"]
        assert (found["state"], row["state"], row["reported"]["ready"]) == ("Ready", "Ready", 2)
        assert row["message"].startswith("revision 1 is kept without requests")
        assert [each["revision"] for each in found["others"]] == [1]
        await world.report((await world.deployment()).id, only="eu1", count=2, ready=False)
        assert (await world.fleet.status(ADMIN, APP))["state"] != "Ready"


async def test_another_template_starts_again_from_the_same_stable_revision(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        await play(world)
        await world.apply(an_app(replicas=4, image="shop/web:3", rollout=CANARY))
        found = await shares(world)
        assert (found["eu", 1][0], found["eu", 2][0], found["eu", 3][0]) == (100, 0, 0)
        await play(world)
        assert await shares(world) == {("eu", 1): (75, None), ("eu", 3): (25, 1)}
        found_rollout = await rollout(world)
        assert (found_rollout["stableRevision"], found_rollout["number"]) == (1, 2)
        first = await world.fleet.rollout(ADMIN, APP, 1)
        assert (first["outcome"], first["decisions"][-1]["reason"]) == ("superseded", "revision 3 takes its place")


async def test_stables_own_template_goes_back(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        await play(world)
        await world.apply(an_app(replicas=4, rollout=CANARY))
        await play(world)
        assert await shares(world) == {("eu", 3): (100, None)}
        assert (await rollout(world))["outcome"] == "rolledBack"


async def test_scale_changes_both_revisions_in_place(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        await play(world)
        await world.apply(an_app(replicas=8, image="shop/web:2", rollout=CANARY))
        await play(world)
        assert await shares(world) == {("eu", 1): (75, None), ("eu", 2): (25, 2)}
        assert (await rollout(world))["number"] == 1


async def test_regions_go_in_waves_and_a_lost_one_blocks_nothing(tmp_path: Path) -> None:
    waves = {"steps": [50], "every": "1m", "judge": False, "regions": ["us", "eu"], "keep": "1m"}
    async with a_fleet(tmp_path) as world:
        await world.join("eu1")
        await world.join("us1")
        await served(world, regions=("eu", "us"), replicas=2)
        await world.apply(an_app(regions=("eu", "us"), replicas=2, image="shop/web:2", rollout=waves))
        await play(world)
        assert await shares(world) == {
            ("eu", 1): (100, None), ("eu", 2): (0, 0), ("us", 1): (50, None), ("us", 2): (50, 1),
        }  # fmt: skip
        await world.join("us1", lost=True)
        await world.clock.advance(61)
        await play(world)
        assert (await rollout(world))["wave"] == 1
        assert (await shares(world))["eu", 2][0] == 50
        await world.join("us1")
        await play(world)
        assert (await rollout(world))["decisions"][-1]["action"] == "catchUp"
        assert (await shares(world))["us", 2][0] == 0, "its wave comes last"
        await world.clock.advance(61)
        await play(world)
        assert ((await shares(world))["eu", 2][0], (await shares(world))["us", 2][0]) == (100, 50), "step by step"
        await world.clock.advance(61)
        await play(world)
        assert ((await shares(world))["eu", 2][0], (await shares(world))["us", 2][0]) == (100, 100)
        assert (await rollout(world))["phase"] == "keeping"


async def test_blue_green_starts_everything_before_the_first_request(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=3)
        spec = {"strategy": "blueGreen", "steps": [{"pause": {}}]}
        await world.apply(an_app(replicas=3, image="shop/web:2", rollout=spec))
        await play(world)
        assert await shares(world) == {("eu", 1): (100, None), ("eu", 2): (0, 3)}
        await world.fleet.command_rollout(ADMIN, APP, "resume")
        await play(world)
        assert await shares(world) == {("eu", 1): (0, 3), ("eu", 2): (100, None)}


async def test_recreate_stops_stable_first(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout={"strategy": "recreate"}))
        found = await shares(world)
        assert (found["eu", 1][1], found["eu", 2][1]) == (0, 0)
        await play(world)
        assert await shares(world) == {("eu", 2): (100, None)}
        assert (await rollout(world))["outcome"] == "promoted"


async def test_the_default_rolling_is_a_rollout_too(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2"))
        assert (await rollout(world))["phase"] == "running"
        await play(world)
        found = await rollout(world)
        assert (found["strategy"], found["configured"], found["outcome"]) == ("rolling", False, "promoted")


async def test_a_command_that_does_not_fit_says_what_does(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        with pytest.raises(Conflict, match="no rollout is under way"):
            await world.fleet.command_rollout(ADMIN, APP, "pause")
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout=CANARY))
        await world.fleet.command_rollout(ADMIN, APP, "pause")
        with pytest.raises(Conflict, match="paused already"):
            await world.fleet.command_rollout(ADMIN, APP, "pause")
        await play(world)
        await world.clock.advance(600)
        await play(world)
        assert (await rollout(world))["hold"] == "paused by a person"


async def test_who_may_not_promote_is_refused_and_noted(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout=CANARY))
        with pytest.raises(Forbidden):
            await world.fleet.command_rollout(VIEWER, APP, "promote")
        found = await world.fleet.audit(ADMIN)
        assert (found[0]["action"], found[0]["actor"]) == ("rollout-promote-denied", "vic")


async def test_what_people_say_is_in_the_audit_log(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout=CANARY), why="retry: it was the network")
        await world.fleet.command_rollout(ADMIN, APP, "pause", reason="lunch")
        await world.fleet.command_rollout(ADMIN, APP, "resume")
        _, paused, applied = (each["diff"][-1] for each in (await world.fleet.audit(ADMIN))[:3])
        assert (paused["path"], paused["after"]) == ("reason", "lunch")
        assert (applied["path"], applied["after"]) == ("reason", "retry: it was the network")


async def test_a_rollout_that_may_not_go_on_ends_at_its_hold_limit(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout={**CANARY, "holdLimit": "1h"}))
        await play(world)
        await world.clock.advance(61)
        await play(world)
        assert (await rollout(world))["hold"] == "waits for approval"
        await world.clock.advance(3601)
        await play(world)
        found = await rollout(world)
        assert (found["outcome"], found["reason"]) == ("rolledBack", "held for 1 h: waits for approval")


async def test_testers_go_to_the_candidate_and_it_stays_until_gateways_have_forgotten_them(tmp_path: Path) -> None:
    steps = [{"header": {"name": "x-canary", "value": "1"}}, {"pause": {}}]
    async with a_fleet(tmp_path) as world:
        await served(world, replicas=2)
        await world.apply(an_app(replicas=2, image="shop/web:2", rollout={"steps": steps, "strategy": "canary"}))
        await play(world)
        assert await shares(world) == {("eu", 1): (100, None), ("eu", 2): (0, 1)}
        candidate = next(row for row in await world.rows(tables.Topology) if row.revision == 2)
        assert candidate.extras == {"header": {"name": "x-canary", "value": "1"}}
        await world.fleet.command_rollout(ADMIN, APP, "abort")
        candidate = next(row for row in await world.rows(tables.Topology) if row.revision == 2)
        assert (candidate.extras, candidate.routed) == (None, 1), "gateways may still send their requests to it"
        await play(world)
        assert await shares(world) == {("eu", 3): (100, None)}


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_primary_that_dies_at_every_step_with_its_control_plane_repeats_and_skips_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    async with replicated_postgres() as postgres, asyncio.timeout(180):
        url = await postgres.create_database()
        async with a_fleet(tmp_path, url=url) as world:
            planes, failing = ControlPlanes(world, url), FailingCommits(postgres, moment)
            await planes.begin()
            try:
                await served(world, replicas=4)
                failing.begin(monkeypatch)
                await planes.until_done(partial(world.apply, an_app(replicas=4, image="shop/web:2", rollout=CANARY)))
                await to_its_end(world, planes.until_done)
                assert await taken(world) == WHOLE
                assert await shares(world) == {("eu", 2): (100, None)}
                assert failing.failed == [1, 2, 3, 4, 6, 7, 8], (
                    "approval and step are one transaction, all others one each"
                )
            finally:
                await planes.close()


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_database_that_goes_away_at_any_commit_repeats_and_skips_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, database: str
) -> None:
    """Each ``every``-th transaction is undone before its commit."""
    finish, count = Tx.finish, 0

    async def finish_or_fail(tx: Tx) -> None:
        nonlocal count
        await finish(tx)
        count += 1
        if count % every == 0:
            raise ServiceUnavailable("the database fails over")

    async def until_done(action: Action) -> None:
        while True:
            try:
                return await action()
            except ServiceUnavailable:
                continue

    url = shared_postgres().create_database() if database == "postgresql" else ""
    async with a_fleet(tmp_path, url=url) as world:
        await served(world, replicas=4)
        await world.apply(an_app(replicas=4, image="shop/web:2", rollout=CANARY))
        monkeypatch.setattr(Tx, "finish", finish_or_fail)
        await to_its_end(world, until_done)
        assert await taken(world) == WHOLE


# jobs as checks


@asynccontextmanager
async def a_job_world(tmp_path: Path, *, database: str = "sqlite", **smoke: Any) -> AsyncIterator[JobWorld]:
    """A canary whose analysis waits for a job."""
    url = shared_postgres().create_database() if database == "postgresql" else ""
    async with a_fleet(tmp_path, url=url) as world:
        await served(world, regions=("eu", "us"), replicas=2)
        spec = {**CHECKED, "checks": [{**SMOKE, **smoke}]}
        await world.apply(an_app(regions=("eu", "us"), replicas=2, image="shop/web:2", rollout=spec))
        await play(world)
        jobs = JobWorld(world)
        await jobs.ask()
        yield jobs


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_job_runs_in_one_region_and_its_success_ends_the_step(tmp_path: Path, database: str) -> None:
    async with a_job_world(tmp_path, database=database, region="us") as jobs:
        world = jobs.world
        ((cluster, job),) = await jobs.jobs()
        assert (cluster, job["image"], job["command"]) == ("us1", "shop/smoke:1", ["smoke"])
        assert job["resources"] == {"cpu": "100m", "memory": "128Mi"} and job["timeoutSeconds"] == 300
        await world.clock.advance(11)
        await jobs.ask()
        assert (await rollout(world))["hold"] == "check smoke has not answered yet: the job in us runs"
        assert len(await jobs.jobs()) == 1, "a job that runs is not begun again"
        await jobs.report(pb.CheckJobState.SUCCEEDED, message="12 passed")
        await world.clock.advance(6)
        await jobs.ask()
        check = await jobs.check()
        assert (check.passed, check.reason) == (True, "the job in us succeeded: 12 passed")
        assert await jobs.jobs() == [], "it is removed"
        assert (await rollout(world))["hold"] == "waits for approval"


async def test_a_job_that_fails_takes_the_rollout_back_with_its_last_lines(tmp_path: Path) -> None:
    async with a_job_world(tmp_path) as jobs:
        await jobs.report(pb.CheckJobState.FAILED, code=3, message="2 of 9 failed")
        await jobs.world.clock.advance(6)
        await jobs.ask()
        found = await rollout(jobs.world)
        assert found["outcome"] == "rolledBack"
        assert found["reason"] == "check smoke failed: the job in eu ended with exit code 3: 2 of 9 failed"
        assert await jobs.jobs() == []


@pytest.mark.parametrize(
    ("state", "code", "why"),
    [
        (pb.CheckJobState.TIMED_OUT, 0, "did not end in time: the log"),
        (pb.CheckJobState.BROKEN, 0, "could not run: the log"),
        (pb.CheckJobState.FAILED, 75, "ended with exit code 75: the log"),
    ],
)
async def test_a_job_without_a_verdict_holds_the_step_and_runs_again(
    tmp_path: Path, state: pb.CheckJobState, code: int, why: str
) -> None:
    async with a_job_world(tmp_path) as jobs:
        ((_, first),) = await jobs.jobs()
        await jobs.report(state, code=code, message="the log")
        await jobs.world.clock.advance(11)
        await jobs.ask()
        assert (await rollout(jobs.world))["hold"] == f"check smoke is inconclusive: the job in eu {why}"
        await jobs.world.clock.advance(31)
        await jobs.ask()
        ((_, second),) = await jobs.jobs()
        assert second["id"] != first["id"]
        assert (await rollout(jobs.world))["hold"].startswith("check smoke is inconclusive"), "until it has answered"


async def test_a_job_that_no_agent_reports_is_given_up(tmp_path: Path) -> None:
    async with a_job_world(tmp_path, timeout="10s") as jobs:
        await jobs.report(pb.CheckJobState.RUNNING, message="ErrImagePull: no such image")
        await jobs.world.clock.advance(60)
        await jobs.ask()
        assert len(await jobs.jobs()) == 1
        await jobs.world.clock.advance(11)
        await jobs.ask()
        check = await jobs.check()
        assert check.passed is None
        assert check.reason.startswith("the job in eu was not reported in time: ErrImagePull: no such image")
        ((_, first),) = await jobs.jobs()
        await jobs.world.clock.advance(31)
        await jobs.ask()
        ((_, second),) = await jobs.jobs()
        assert second["id"] != first["id"], "the next one begins at the check's interval"


async def test_the_end_of_a_job_is_told_until_a_control_plane_has_stored_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_job_world(tmp_path) as jobs:
        ((_, job),) = await jobs.jobs()
        await jobs.report(pb.CheckJobState.FAILED, code=3, message="no")
        await jobs.world.clock.advance(6)
        with monkeypatch.context() as patched:
            patched.setattr(runner, "store", unstored)
            await jobs.ask()
        assert [each["id"] for _, each in await jobs.jobs()] == [job["id"]], "it is not begun again"
        assert (await rollout(jobs.world))["outcome"] == ""
        await jobs.world.clock.advance(31)
        await jobs.ask()
        assert (await rollout(jobs.world))["reason"].endswith("ended with exit code 3: no")


async def unstored(*_: Any, **__: Any) -> bool:
    """The control plane ends before its answer is stored."""
    return False


async def test_a_job_ends_with_the_step_and_what_is_said_of_others_is_not_taken(tmp_path: Path) -> None:
    async with a_job_world(tmp_path) as jobs:
        await jobs.report(pb.CheckJobState.SUCCEEDED, id_="check-of-another")
        ((_, job),) = await jobs.jobs()
        assert "result" not in job
        await jobs.world.fleet.command_rollout(ADMIN, APP, "skip")
        await play(jobs.world)
        assert (await rollout(jobs.world))["step"] == 3
        assert await jobs.jobs() == []


async def test_a_newer_candidate_ends_the_job_of_the_one_before(tmp_path: Path) -> None:
    async with a_job_world(tmp_path) as jobs:
        await jobs.world.apply(an_app(regions=("eu", "us"), replicas=2, image="shop/web:3", rollout=CANARY))
        assert await jobs.jobs() == []


async def test_the_end_of_a_job_does_not_change_any_more(tmp_path: Path) -> None:
    async with a_job_world(tmp_path) as jobs:
        await jobs.report(pb.CheckJobState.FAILED, code=1, message="no")
        await jobs.report(pb.CheckJobState.RUNNING)
        ((_, job),) = await jobs.jobs()
        assert (job["result"]["state"], job["result"]["exitCode"], job["result"]["message"]) == ("failed", 1, "no")
