"""Readiness, availability, templates, hashes, conditions, percentages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.controllers.pods.amounts import scaled
from shoal.controllers.pods.conditions import make_condition, with_condition, without_condition
from shoal.controllers.pods.status import (
    is_active,
    is_available,
    is_ready,
    next_availability_s,
    restarts_of,
)
from shoal.controllers.pods.template import controller_reference, hash_of, pod_of
from shoal.testing.workloads import NOW, pod, replica_set, stored, template


@pytest.mark.parametrize(
    ("phase", "deleting", "active"),
    [("Running", False, True), ("Pending", False, True), ("Unknown", False, True), ("Running", True, False),
     ("Failed", False, False), ("Succeeded", False, False)],
)  # fmt: skip
def test_active_is_what_neither_ended_nor_is_being_deleted(phase: str, deleting: bool, active: bool) -> None:
    assert is_active(pod(phase=phase, deleting=deleting)) is active


@pytest.mark.parametrize(
    ("ready", "min_ready_s", "age_s", "available"),
    [(True, 0, 0, True), (True, 10, 9, False), (True, 10, 10, True), (False, 0, 99, False), (False, 10, 99, False)],
)
def test_available_is_ready_for_long_enough(ready: bool, min_ready_s: int, age_s: float, available: bool) -> None:
    assert is_available(pod(ready=ready), min_ready_s, NOW + age_s) is available


def test_a_pod_without_a_ready_condition_is_not_ready() -> None:
    bare = {**pod(), "status": {"phase": "Running"}}
    assert not is_ready(bare)
    assert not is_ready({**bare, "status": {}})


def test_the_next_availability_is_of_the_one_that_waits_the_shortest() -> None:
    pods = [pod(ready_at=NOW - 3), pod(ready_at=NOW - 7), pod(ready_at=NOW - 20), pod(ready=False)]
    assert next_availability_s(pods, 10, NOW) == 3
    assert next_availability_s(pods, 0, NOW) is None
    assert next_availability_s(pods, 5, NOW) == 2
    assert next_availability_s([pod(ready_at=NOW - 50)], 10, NOW) is None


def test_restarts_of_init_containers_count_only_for_sidecars() -> None:
    made = pod(restarts=2)
    made["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}]
    made["status"]["initContainerStatuses"] = [{"name": "side", "restartCount": 4}, {"name": "once", "restartCount": 9}]
    assert restarts_of(made) == (2, 4)


def test_a_pod_has_its_templates_labels_and_one_controller() -> None:
    owner = stored(replica_set())
    wanted = template() | {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["f/x"]}}
    made = pod_of(wanted, owner, controller_reference(owner, "apps/v1", "ReplicaSet"))
    about = made["metadata"]
    assert about["generateName"] == "web-"
    assert (about["labels"], about["annotations"], about["finalizers"]) == ({"app": "web"}, {"a": "b"}, ["f/x"])
    (reference,) = about["ownerReferences"]
    assert reference["controller"] is reference["blockOwnerDeletion"] is True
    assert reference["uid"] == owner["metadata"]["uid"]
    assert made["spec"] == wanted["spec"]


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5), max_size=4), st.integers(0, 3))
def test_a_hash_depends_on_the_value_and_the_collisions_not_on_the_order(value: dict[str, object], n: int) -> None:
    turned = dict(reversed(value.items()))
    mark = hash_of(value, n)
    assert mark == hash_of(turned, n)
    assert len(mark) == 10 and mark.isalnum() and mark.islower() | mark.isdigit()
    assert mark != hash_of(value, n + 1)
    assert mark != hash_of({**value, "more": 1}, n)


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = with_condition([], make_condition("A", "True", "One", "", NOW))
    same = with_condition(first, make_condition("A", "True", "One", "other words", NOW + 60))
    assert same == first
    reason = with_condition(same, make_condition("A", "True", "Two", "", NOW + 60))
    assert reason[0]["reason"] == "Two"
    assert reason[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    turned = with_condition(reason, make_condition("A", "False", "Two", "", NOW + 60))
    assert turned[0]["lastTransitionTime"] != first[0]["lastTransitionTime"]
    assert without_condition(turned, "A") == []
    assert with_condition(turned, make_condition("B", "True", "X", "", NOW))[0] is turned[0]


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [(3, 10, 3, 3), ("25%", 10, 3, 2), ("0%", 10, 0, 0), ("100%", 7, 7, 7), ("1%", 1, 1, 0), (None, 5, 0, 0)],
)
def test_percentages_round_as_asked(value: int | str | None, total: int, up: int, down: int) -> None:
    assert scaled(value, total, round_up=True) == up
    assert scaled(value, total, round_up=False) == down
