"""The status of a namespace while its content is deleted."""

from __future__ import annotations

from collections import Counter

from shoal.controllers.namespace.plan import Emptied, conditions, finalizers_of, is_empty, recheck_s, unexpected

NOW, LATER = "2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z"


def by_type(found):
    return {each["type"]: each for each in found}


def test_the_conditions_of_an_empty_namespace_report_success():
    found = by_type(conditions({}, [Emptied(resource="pods.")], (), NOW))
    assert {each["status"] for each in found.values()} == {"False"}
    assert found["NamespaceContentRemaining"]["reason"] == "ContentRemoved"
    assert is_empty([Emptied(resource="pods.")], ())


def test_what_is_left_and_what_holds_it_is_named():
    left = [{"metadata": {"finalizers": ["a/b"]}}, {"metadata": {"finalizers": ["a/b", "c"]}}]
    results = [
        Emptied(resource="pods.", left=2, finalizers=finalizers_of(left)),
        Emptied(resource="widgets.example.io", left=1, error="boom"),
    ]
    found = by_type(conditions({}, results, ["late.io/v1"], NOW))
    assert found["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: pods. has 2 resource instances, widgets.example.io has 1 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: a/b in 2 resource instances, c in 1 resource instances"
    )
    assert found["NamespaceDeletionContentFailure"]["reason"] == "ContentDeletionFailed"
    assert found["NamespaceDeletionDiscoveryFailure"]["status"] == "True"
    assert not is_empty(results, ())
    assert finalizers_of(left) == Counter({"a/b": 2, "c": 1})


def test_conditions_of_others_stay_and_times_change_only_with_the_state():
    other = {"type": "Mine", "status": "True"}
    before = conditions({"conditions": [other]}, [Emptied(resource="pods.", left=2)], (), NOW)
    after = conditions({"conditions": before}, [Emptied(resource="pods.", left=1)], (), LATER)
    assert after[0] == other
    assert by_type(after)["NamespaceContentRemaining"]["lastTransitionTime"] == NOW
    gone = conditions({"conditions": after}, [], (), LATER)
    assert by_type(gone)["NamespaceContentRemaining"]["lastTransitionTime"] == LATER
    assert conditions({"conditions": gone}, [], (), NOW) == gone


def test_objects_that_nothing_holds_are_unexpected():
    assert unexpected([{"metadata": {}}], graceful=False)
    assert not unexpected([{"metadata": {}}], graceful=True)
    assert not unexpected([{"metadata": {"finalizers": ["a"]}}], graceful=False)


def test_looks_are_soon_at_first_and_never_rarer_than_every_fifteen_seconds():
    assert [recheck_s(age) for age in (0, 4, 1e6)] == [0.5, 1.0, 15.0]
