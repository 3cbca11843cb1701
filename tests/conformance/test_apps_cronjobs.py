"""CronJobs. Their times are in the past: a CronJob that has missed its time catches up at once, so no test waits for
the next minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from conformance_api import Api, conformance
from conformance_live import name_of, settles, with_course
from conformance_objects import job

from shoal.kube.objects import Obj


class Cron:
    """The CronJob ``cron``, whose jobs run for an hour, and times shortly before now for it to be due at."""

    def __init__(self, live: Api, space: str, **spec: object) -> None:
        self.crons, self.jobs = live.of("batch/v1", "cronjobs", space), live.of("batch/v1", "jobs", space)
        self.events = live.of("v1", "events", space)
        self._now = datetime.now(UTC)
        template = {"spec": with_course(job("unused"), run_seconds=3600)["spec"]}
        schedule = self._at(minutes_ago=2)
        made = {"schedule": schedule, "suspend": True, "jobTemplate": template, **spec}
        self.crons.create({"metadata": {"name": "cron"}, "spec": made})
        long_ago = (self._now - timedelta(hours=1, minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.crons.patch("cron", {"status": {"lastScheduleTime": long_ago}}, sub="status")

    def _at(self, minutes_ago: int) -> str:
        return f"{(self._now - timedelta(minutes=minutes_ago)).minute} * * * *"

    def resume(self) -> Obj:
        """Let it be due once; the job that it then makes."""
        self.crons.patch("cron", {"spec": {"suspend": False}})
        [first] = settles(self.jobs.items)
        found: Obj = first
        return found

    def next_time(self) -> None:
        """It is due again. A new schedule alone is looked at when its own next time comes, any other change at once."""
        self.crons.patch("cron", {"spec": {"schedule": self._at(minutes_ago=1)}})
        self.crons.patch("cron", {"metadata": {"annotations": {"look": "now"}}})

    def active(self) -> list[str]:
        return sorted(each["name"] for each in self.crons.get("cron").get("status", {}).get("active", ()))


@conformance("[sig-apps] CronJob should schedule multiple jobs concurrently [Conformance]")
def test_jobs_run_beside_each_other(live: Api, space: str) -> None:
    cron = Cron(live, space, concurrencyPolicy="Allow")
    cron.resume()
    cron.next_time()
    settles(lambda: len(cron.jobs.items()) == 2)
    settles(lambda: cron.active() == sorted(cron.jobs.names()))


@conformance("[sig-apps] CronJob should not schedule jobs when suspended [Conformance] [Slow]")
def test_a_suspended_cron_job_makes_no_jobs(live: Api, space: str) -> None:
    cron = Cron(live, space)
    with cron.jobs.watch(after=cron.jobs.list()) as watch:
        cron.next_time()
        watch.silent()
    cron.resume()


@conformance("[sig-apps] CronJob should not schedule new jobs when ForbidConcurrent [Conformance] [Slow]")
def test_a_job_that_runs_forbids_the_next(live: Api, space: str) -> None:
    cron = Cron(live, space, concurrencyPolicy="Forbid")
    first = cron.resume()
    settles(lambda: cron.active() == [name_of(first)])
    cron.next_time()
    settles(lambda: any(each["reason"] == "JobAlreadyActive" for each in cron.events.items()))
    assert cron.jobs.names() == [name_of(first)]
    assert cron.active() == [name_of(first)]


@conformance("[sig-apps] CronJob should replace jobs when ReplaceConcurrent [Conformance]")
def test_a_job_is_replaced_by_the_next(live: Api, space: str) -> None:
    cron = Cron(live, space, concurrencyPolicy="Replace")
    first = cron.resume()
    settles(lambda: cron.active() == [name_of(first)])
    cron.next_time()

    def replaced() -> bool:
        names = cron.jobs.names()  # both are asked each time: a new minute may bring yet another one
        return len(names) == 1 and names != [name_of(first)] and cron.active() == names

    settles(replaced)
