"""Which job a CronJob starts, and which finished jobs it keeps."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.cronjob.due import parse_due
from shoal.controllers.cronjob.plan import (
    NoStart,
    Skip,
    StartJob,
    job_of,
    next_delay_s,
    plan_active,
    plan_history,
    plan_start,
    status_of,
)
from shoal.kube.times import format_time

CREATED = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
HOUR = 3600.0


def a_cron(schedule="0 * * * *", last=None, **spec):
    template = {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}, "spec": {"template": {}}}
    about = {"name": "c", "namespace": "d", "uid": "cron", "creationTimestamp": format_time(CREATED)}
    status = {"lastScheduleTime": format_time(last)} if last is not None else {}
    return {"metadata": about, "spec": {"schedule": schedule, "jobTemplate": template, **spec}, "status": status}


def a_job(name, kind="", at=0.0):
    conditions = [{"type": kind, "status": "True"}] if kind else []
    status = {"conditions": conditions, "startTime": format_time(CREATED + at)}
    status |= {"completionTime": format_time(CREATED + at + 60)} if kind == "Complete" else {}
    return {"metadata": {"name": name, "namespace": "d", "uid": name}, "status": status}


def start(cron, after_s, active=()):
    schedule = parse_due(cron["spec"]["schedule"], cron["spec"].get("timeZone") or "")
    return plan_start(cron, active, CREATED + after_s, schedule)


def test_the_latest_of_the_missed_times_is_started_and_no_other():
    assert start(a_cron(), 0.5 * HOUR) == NoStart(Skip.NOT_DUE)
    assert start(a_cron(), HOUR) == StartJob(CREATED + HOUR)
    assert start(a_cron(), 5.5 * HOUR) == StartJob(CREATED + 5 * HOUR)
    assert start(a_cron(), 200.5 * HOUR) == StartJob(CREATED + 200 * HOUR, many_missed=True)
    assert start(a_cron(last=CREATED + 5 * HOUR), 5.5 * HOUR) == NoStart(Skip.NOT_DUE)


def test_a_time_is_missed_when_the_deadline_is_over():
    cron = a_cron(startingDeadlineSeconds=100)
    assert start(cron, HOUR + 99) == StartJob(CREATED + HOUR)
    assert start(cron, HOUR + 101) == NoStart(Skip.NOT_DUE)
    assert start(cron, 500 * HOUR + 50) == StartJob(CREATED + 500 * HOUR), "old ones do not count as missed"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Allow", StartJob(CREATED + HOUR)), ("Forbid", NoStart(Skip.ACTIVE, CREATED + HOUR)), ("Replace", None)],
)
def test_what_happens_while_a_job_runs(policy, expected):
    running = {"name": "c-1", "namespace": "d", "uid": "x"}
    decided = start(a_cron(concurrencyPolicy=policy), HOUR, [running])
    assert decided == (expected or StartJob(CREATED + HOUR, (running,)))


def test_a_time_is_not_started_twice():
    name = job_of(a_cron(), CREATED + HOUR)["metadata"]["name"]
    assert start(a_cron(), HOUR + 5, [{"name": name}]) == NoStart(Skip.DONE, CREATED + HOUR)


def test_a_schedule_that_rests_for_days_still_finds_its_last_time():
    friday, sunday = (
        datetime(2026, 1, 2, 14, 30, tzinfo=UTC).timestamp(),
        datetime(2026, 1, 4, 20, tzinfo=UTC).timestamp(),
    )
    cron = a_cron("30 6-16/4 * * 1-5")
    assert plan_start(cron, (), sunday, parse_due(cron["spec"]["schedule"], "")).at == friday


def test_the_job_is_named_by_its_minute_and_has_its_scheduled_time():
    cron = a_cron(timeZone="Europe/Berlin")
    job = job_of(cron, CREATED + HOUR)
    about = job["metadata"]
    assert about["name"] == f"c-{int(CREATED + HOUR) // 60}"
    assert about["annotations"] == {
        "a": "1",
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T02:00:00+01:00",
    }
    assert about["labels"] == {"l": "1"} and about["ownerReferences"][0]["uid"] == "cron"


def test_history_keeps_the_youngest_of_each_outcome():
    jobs = (
        [a_job(f"s{n}", "Complete", n) for n in (3, 1, 2)]
        + [a_job(f"f{n}", "Failed", n) for n in (1, 2)]
        + [a_job("r")]
    )
    cron = a_cron(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0)
    assert [job["metadata"]["name"] for job in plan_history(cron, jobs)] == ["s1", "f1", "f2"]
    assert plan_history(a_cron(), jobs) == ()


def test_active_jobs_are_those_that_run():
    cron = a_cron()
    cron["status"]["active"] = [{"name": n, "uid": n, "namespace": "d"} for n in ("runs", "done", "gone")]
    plan = plan_active(cron, [a_job("runs"), a_job("done", "Complete", 10), a_job("new")])
    assert [each["name"] for each in plan.active] == ["runs", "gone"]
    assert [each["name"] for each in plan.missing] == ["gone"]
    assert [each["metadata"]["name"] for each in plan.completed] == ["done"]
    assert [each["metadata"]["name"] for each in plan.unexpected] == ["new"]
    assert plan.last_success == format_time(CREATED + 70)


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */5 * * *", "15 3 * * 1-5", "@every 47m", "0 0 31 * *"]),
    st.sampled_from(["", "Europe/Berlin", "America/New_York"]),
    st.lists(st.floats(1, 200_000), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_however_often_it_looks_no_time_is_started_twice_and_only_the_latest_missed_is(schedule, zone, pauses):
    due = parse_due(schedule, zone)
    cron, now, started = a_cron(schedule, timeZone=zone or None), CREATED, []
    for pause in pauses:
        now += pause
        decided = plan_start(cron, (), now, due)
        if isinstance(decided, StartJob):
            assert decided.at <= now
            following = due.after(decided.at)
            assert following is None or following > now or schedule.startswith("@every")
            started.append(decided.at)
            cron = {**cron, "status": status_of(cron, (), "", decided.at)}
        delay = next_delay_s(cron, now, due)
        assert delay is None or 0 < delay
    assert started == sorted(set(started))


def test_a_month_of_minutes_starts_each_minute_once():
    due = parse_due("* * * * *", "Europe/Berlin")
    cron, now, started = a_cron("* * * * *"), CREATED, []
    while now < CREATED + 30 * 24 * HOUR:
        now += next_delay_s(cron, now, due)
        decided = plan_start(cron, (), now, due)
        assert isinstance(decided, StartJob)
        started.append(decided.at)
        cron = {**cron, "status": {"lastScheduleTime": format_time(decided.at)}}
    assert started == [CREATED + 60 * (n + 1) for n in range(30 * 24 * 60)] + started[30 * 24 * 60 :]
