"""Leases: until when a worker may work, from when the manager may act, and that the two never overlap."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sharding.leases import (
    ACKS,
    LEAVING,
    MANAGER,
    REPORT,
    Ack,
    AckKind,
    LeaseObservations,
    LeaseState,
    ShardLease,
    WorkerReport,
    WorkTime,
    encode_acks,
    encode_report,
    load_of,
    next_change_s,
    read_lease,
    state_of,
    take_after_s,
    taken,
)

HELD = ShardLease(shard="a", config="web", holder="a_1", lease_s=10, term=1, renewed_at="t1")


def test_a_lease_goes_from_ready_over_expired_to_uncertain():
    states = [state_of(HELD, 100.0, 100.0 + age) for age in (0, 9.9, 10, 10.9, 11, 1000)]
    ready, expired, uncertain = LeaseState.READY, LeaseState.EXPIRED, LeaseState.UNCERTAIN
    assert states == [ready, ready, expired, expired, uncertain, uncertain]


def test_a_released_or_taken_lease_is_dead_at_once_and_orphaned_later():
    for holder in ("", MANAGER):
        lease = ShardLease(shard="a", config="web", holder=holder, lease_s=10, term=1, renewed_at="t1")
        assert state_of(lease, 100.0, 100.0) is LeaseState.DEAD
        assert state_of(lease, 100.0, 160.0) is LeaseState.ORPHANED


@settings(max_examples=200, deadline=None)
@given(
    lease_s=st.floats(1, 120), delay_s=st.floats(0, 60), work_s=st.floats(0, 500), skew=st.floats(-1e6, 1e6)
)  # fmt: skip
def test_a_worker_has_stopped_before_the_manager_takes_its_lease(lease_s, delay_s, work_s, skew):
    """However long the renewal was on its way, and whatever the two clocks show."""
    sent_s = 50.0
    observed_s = sent_s + delay_s  # true time, the same for both; their clocks differ by ``skew``
    worker = WorkTime(sent_s + skew, lease_s)
    moment_s = sent_s + work_s
    takes_s = observed_s + take_after_s(lease_s)
    assert not (worker.may_run(moment_s + skew) and moment_s >= takes_s)
    assert worker.start_until_s < worker.cancel_at_s


def test_the_manager_takes_a_lease_in_time():
    """Of the 1.25 leases that a slot may be without an owner, enough is left to write the table."""
    for lease_s in (3, 15, 60):
        assert take_after_s(lease_s) <= 1.15 * lease_s


def test_only_a_renewal_by_the_holder_counts():
    seen = LeaseObservations()
    assert seen.saw(HELD, 5.0) == 5.0
    assert seen.saw(HELD, 9.0) == 5.0
    renewed = ShardLease(shard="a", config="web", holder="a_1", lease_s=10, term=1, renewed_at="t2")
    assert seen.saw(renewed, 9.0) == 9.0
    assert seen.observed_s("a") == 9.0
    seen.forget("a")
    assert seen.saw(renewed, 20.0) == 20.0


def test_the_next_change_of_state_is_known():
    assert next_change_s(HELD, 0.0, 4.0) == 6.0
    assert next_change_s(HELD, 0.0, 10.5) == 0.5
    assert next_change_s(HELD, 0.0, 50.0) == float("inf")


def lease_object(**annotations: str) -> dict:
    return {
        "metadata": {"name": "a", "labels": {"shard.io/config": "web"}, "annotations": annotations},
        "spec": {
            "holderIdentity": "a_1", "leaseDurationSeconds": 10, "leaseTransitions": 4, "renewTime": "t",
        },
    }  # fmt: skip


def test_reports_and_acknowledgements_are_read_as_written():
    acks = {5: Ack(5, 77, AckKind.DRAINED, "abc"), 9: Ack(9, 78, AckKind.PREPARED)}
    report = WorkerReport(load=0.5, queue_depth=3, metrics={"orders": 2.0})
    obj = lease_object(**{ACKS: encode_acks(acks), REPORT: encode_report(report), LEAVING: "true"})
    found = read_lease(obj)
    assert (found.acks, found.report, found.leaving, found.reported) == (acks, report, True, True)
    assert not read_lease(lease_object()).reported
    assert (found.term, found.holder, found.config) == (4, "a_1", "web")


def test_invalid_annotations_are_ignored():
    for text in ("{", "[]", '{"x": "1:drained"}', '{"1": "drained"}', '{"1": 5}', '{"1": "1:unheard-of"}'):
        assert read_lease(lease_object(**{ACKS: text})).acks == {}
    assert read_lease(lease_object(**{REPORT: '{"load": "much"}'})).report == WorkerReport()
    assert read_lease({"metadata": {"name": "a"}}).held is False


def test_taking_a_lease_begins_a_term_and_removes_its_acknowledgements():
    obj = lease_object(**{ACKS: "{}", REPORT: "{}", LEAVING: "true"})
    found = taken(obj, "now")
    assert found["spec"]["holderIdentity"] == MANAGER
    assert found["spec"]["leaseTransitions"] == 5
    assert set(found["metadata"]["annotations"]) == {REPORT}
    assert obj["spec"]["holderIdentity"] == "a_1"


def test_load_is_made_of_objects_processor_memory_and_queue():
    assert load_of(1000, 1, 1, 100) == 1.0
    assert abs(load_of(500, 0.5, 0, 0) - 0.3) < 1e-9
    assert load_of(10**9, 0, 0, 0) == 0.3
    assert WorkerReport(objects=1000).effective_load == 0.3
    assert WorkerReport(load=7).effective_load == 1.0


def test_a_worker_with_waiting_handlers_is_loaded_though_it_uses_no_cpu():
    assert WorkerReport(busy=0.9).effective_load == 0.9
    assert WorkerReport(busy=0.1, objects=1000).effective_load == 0.3
