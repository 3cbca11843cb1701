"""CronJobs in virtual time, with real jobs: started jobs, history and events."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime

from acting_as import acting_as

from shoal.base.clock import FakeClock, RealClock
from shoal.client import Scope
from shoal.controllers.cronjob import wiring
from shoal.controllers.job import wiring as job_wiring
from shoal.testing.controllers import Play, PodPlayer, running
from shoal.testing.servers import local_server

HOUR = 3600.0
PLACE = Scope(namespace="default")


def a_cron(schedule="0 * * * *", **spec):
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {"spec": {"template": {"spec": pod}}}
    return {"metadata": {"name": "c"}, "spec": {"schedule": schedule, "jobTemplate": job, **spec}}


class World:
    def __init__(self, context, clock, player):
        self.context, self.clock, self.player = context, clock, player
        self.crons, self.jobs, self.events = (
            context.resource("cronjobs", "batch"),
            context.resource("jobs", "batch"),
            context.resource("events"),
        )
        self.made: list[str] = []
        context.informer("jobs", "batch").cache.add_handler(
            lambda c: self.made.append(c.key.name) if c.old is None else None
        )

    async def create(self, cron):
        return await self.crons.create(cron, "default")

    async def status(self):
        return (await self.crons.get("c", "default")).get("status") or {}

    async def names(self):
        return sorted(job["metadata"]["name"] for job in (await self.jobs.list(PLACE)).items)

    async def reasons(self):
        return {e["reason"] for e in (await self.events.list(PLACE)).items if e["involvedObject"]["kind"] == "CronJob"}

    def minute(self, text):
        return f"c-{int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) // 60}"


class Stamps(RealClock):
    """For a server that writes virtual times and does its housekeeping in real time: a month of it is not the point."""

    def __init__(self, clock):
        self.now, self.wall_s = clock.now, clock.wall_s


@asynccontextmanager
async def world(play=lambda pod: Play.SUCCEEDED):
    clock, player = FakeClock(), PodPlayer(play)
    async with local_server(clock=Stamps(clock)) as server:
        cron = acting_as(server, "cronjob-controller", wiring.add)
        job = acting_as(server, "job-controller", job_wiring.add)
        async with running(server, [cron, job, player.add], clock=clock) as context:
            yield World(context, clock, player)


async def test_ten_days_of_hours_start_each_once_and_keep_the_last_three():
    async with world() as w:
        await w.create(a_cron())
        await w.clock.advance(10 * 24 * HOUR + 30)
        assert len(w.made) == len(set(w.made)) == 10 * 24
        assert await w.names() == [w.minute(f"2024-01-{at}:00") for at in ("10T22", "10T23", "11T00")]
        status = await w.status()
        assert status["lastScheduleTime"] == "2024-01-11T00:00:00Z"
        assert status["lastSuccessfulTime"].startswith("2024-01-11T00:00:") and "active" not in status
        assert {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= await w.reasons()


async def test_time_zones_and_the_scheduled_time_that_a_job_carries():
    async with world() as w:
        await w.create(a_cron("30 8 * * *", timeZone="Asia/Tokyo"))
        await w.clock.advance(24 * HOUR)
        job = (await w.jobs.list(PLACE)).items[0]
        assert job["metadata"]["name"] == w.minute("2024-01-01T23:30")
        stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        assert stamp == "2024-01-02T08:30:00+09:00"


async def test_while_a_job_runs_the_policy_decides():
    for policy, expected in (("Allow", 3), ("Forbid", 1), ("Replace", 1)):
        async with world(lambda pod: Play.READY) as w:
            await w.create(a_cron(concurrencyPolicy=policy))
            await w.clock.advance(3 * HOUR + 60)
            active = (await w.status())["active"]
            assert len(active) == expected, policy
            assert active[0]["kind"] == "Job" and active[0]["apiVersion"] == "batch/v1"
            assert len(w.made) == {"Allow": 3, "Forbid": 1, "Replace": 3}[policy]
            assert active[-1]["name"] == w.made[-1]
            assert ("JobAlreadyActive" in await w.reasons()) == (policy == "Forbid")


async def test_a_suspended_cronjob_starts_nothing_and_its_missed_times_only_once_later():
    async with world() as w:
        await w.create(a_cron(suspend=True))
        await w.clock.advance(5 * HOUR + 60)
        assert w.made == []
        await w.crons.patch("c", {"spec": {"suspend": False}}, "default")
        await w.clock.advance(60)
        assert w.made == [w.minute("2024-01-01T05:00")]


async def test_late_jobs_are_not_started_and_many_missed_times_are_reported():
    async with world() as w:
        await w.create(a_cron("0 0 * * *", suspend=True, startingDeadlineSeconds=600))
        await w.clock.advance(25 * HOUR)
        await w.crons.patch("c", {"spec": {"suspend": False}}, "default")
        await w.clock.advance(60)
        assert w.made == []
    async with world() as w:
        await w.create(a_cron("* * * * *", suspend=True))
        await w.clock.advance(3 * HOUR)
        await w.crons.patch("c", {"spec": {"suspend": False}}, "default")
        await w.clock.advance(1)
        assert len(w.made) == 1 and "TooManyMissedTimes" in await w.reasons()


async def test_another_schedule_begins_with_its_next_time():
    async with world() as w:
        await w.create(a_cron("0 0 1 1 *"))
        await w.clock.advance(1.5 * HOUR)
        await w.crons.patch("c", {"spec": {"schedule": "0 * * * *"}}, "default")
        await w.clock.advance(60)
        assert w.made == []
        await w.clock.advance(HOUR)
        assert w.made == [w.minute("2024-01-01T02:00")]


async def test_failed_jobs_have_a_history_of_their_own():
    async with world(lambda pod: Play.FAILED) as w:
        cron = a_cron(failedJobsHistoryLimit=2)
        cron["spec"]["jobTemplate"]["spec"]["backoffLimit"] = 0
        await w.create(cron)
        await w.clock.advance(5 * HOUR + 120)
        assert len(w.made) == 5 and len(await w.names()) == 2
        status = await w.status()
        assert "lastSuccessfulTime" not in status and "active" not in status


async def test_a_job_that_was_made_before_a_crash_is_found_again():
    async with world(lambda pod: Play.READY) as w:
        cron = await w.create(a_cron())
        await w.clock.advance(HOUR + 60)
        # the status as it would be had the controller died before writing it
        fresh = await w.crons.get("c", "default")
        await w.crons.replace_status({**fresh, "status": {}})
        await w.clock.advance(60)
        status = await w.status()
        assert [a["name"] for a in status["active"]] == w.made and len(w.made) == 1
        assert status["lastScheduleTime"] == "2024-01-01T01:00:00Z"
        assert cron["metadata"]["uid"]
