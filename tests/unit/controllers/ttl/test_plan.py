"""When finished Jobs are deleted."""

from __future__ import annotations

from shoal.controllers.ttl.plan import expires_at
from shoal.kube.times import format_time


def a_job(*conditions, ttl=10, **about):
    return {
        "metadata": {"name": "j", **about},
        "spec": {} if ttl is None else {"ttlSecondsAfterFinished": ttl},
        "status": {"conditions": list(conditions)},
    }


def finished(kind="Complete", status="True"):
    return {"type": kind, "status": status, "lastTransitionTime": format_time(1000)}


def test_the_time_begins_when_the_job_has_finished_either_way():
    assert expires_at(a_job(finished())) == expires_at(a_job(finished("Failed"))) == 1010.0
    assert expires_at(a_job(finished(), ttl=0)) == 1000.0


def test_jobs_that_run_ask_for_nothing_or_are_on_their_way_out_are_left_alone():
    assert expires_at(a_job()) is None
    assert expires_at(a_job(finished(status="False"), finished("Suspended"))) is None
    assert expires_at(a_job(finished(), ttl=None)) is None
    assert expires_at(a_job(finished(), deletionTimestamp="2024-01-01T00:00:00Z")) is None
