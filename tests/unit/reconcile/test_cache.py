"""The cache: revisions only rise, deletions stick, indexes follow, handlers receive each change once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube import labels
from shoal.reconcile import Cache, Change, ObjectKey


def obj(name: str, version: int, namespace: str = "ns", uid: str = "", **tags: str) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, "resourceVersion": str(version), "uid": uid or name, "labels": tags}
    return {"metadata": about}


def told(cache: Cache) -> list[str]:
    seen: list[str] = []

    def see(change: Change) -> None:
        known = "" if change.final_state_known else "?"
        seen.append(f"{change.type}{known} {change.key.name}@{change.object['metadata']['resourceVersion']}")

    cache.add_handler(see)
    return seen


def test_synced_means_that_handlers_have_seen_the_list() -> None:
    cache = Cache()
    order: list[bool] = []
    cache.add_handler(lambda change: order.append(cache.synced.is_set()))
    cache.replace([obj("a", 1), obj("b", 2)], "2")
    assert order == [False, False]
    assert cache.synced.is_set()
    assert cache.resource_version == "2"


def test_older_and_repeated_events_change_nothing() -> None:
    cache = Cache()
    seen = told(cache)
    cache.replace([obj("a", 5)], "9")
    assert cache.upsert(obj("a", 10))
    assert not cache.upsert(obj("a", 10))
    assert not cache.upsert(obj("a", 9))
    assert not cache.remove(obj("a", 9))
    assert cache.remove(obj("a", 11))
    assert not cache.remove(obj("a", 11))
    assert not cache.upsert(obj("a", 10))  # a replay must not bring it back
    assert cache.upsert(obj("a", 12, uid="new"))
    assert seen == ["added a@5", "updated a@10", "deleted a@11", "added a@12"]


def test_versions_are_compared_as_numbers() -> None:
    cache = Cache()
    cache.replace([obj("a", 9)], "9")
    assert cache.upsert(obj("a", 10))
    assert not cache.upsert(obj("a", 9))


def test_a_list_is_the_truth_even_when_revisions_went_back() -> None:
    cache = Cache()
    seen = told(cache)
    cache.replace([obj("a", 50), obj("b", 60)], "60")
    cache.replace([obj("a", 3), obj("c", 4)], "4")
    assert seen[2:] == ["deleted? b@60", "updated a@3", "added c@4"]
    assert cache.upsert(obj("b", 5))


def test_a_recreated_object_is_reported_as_deleted_and_added() -> None:
    cache = Cache()
    seen = told(cache)
    cache.replace([obj("a", 1, uid="one")], "1")
    cache.replace([obj("a", 2, uid="two")], "2")
    assert seen == ["added a@1", "deleted? a@1", "added a@2"]


def test_an_unchanged_object_in_a_new_list_is_not_reported() -> None:
    cache = Cache()
    seen = told(cache)
    cache.replace([obj("a", 1)], "1")
    cache.replace([obj("a", 1)], "7")
    assert seen == ["added a@1"]


def test_a_late_handler_receives_the_present_objects() -> None:
    cache = Cache()
    cache.replace([obj("a", 1)], "1")
    assert told(cache) == ["added a@1"]


def test_one_failing_handler_keeps_nothing_from_the_others() -> None:
    cache = Cache()

    def fail(_: Change) -> None:
        raise RuntimeError("no")

    cache.add_handler(fail)
    seen = told(cache)
    cache.replace([obj("a", 1)], "1")
    assert seen == ["added a@1"]
    cache.remove_handler(fail)


def names(objects: tuple[dict[str, Any], ...]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def test_selection_by_label_namespace_and_index() -> None:
    cache = Cache(indexes={"first": lambda each: [each["metadata"]["name"][0]]})
    cache.replace([obj("a1", 1, colour="red"), obj("a2", 2, "other", colour="red"), obj("b1", 3, colour="blue")], "3")
    assert names(cache.select(labels.parse("colour=red"))) == {"a1", "a2"}
    assert names(cache.select(labels.parse("colour=red"), namespace="ns")) == {"a1"}
    assert names(cache.select(labels.parse("colour!=red"))) == {"b1"}
    assert names(cache.select(namespace="other")) == {"a2"}
    assert names(cache.select()) == {"a1", "a2", "b1"}
    assert names(cache.by_index("first", "a")) == {"a1", "a2"}
    cache.upsert(obj("a1", 4, colour="blue"))
    cache.remove(obj("a2", 5, "other"))
    assert cache.select(labels.parse("colour=red")) == ()
    assert names(cache.by_index("first", "a")) == {"a1"}
    assert cache.by_index("first", "z") == ()


def test_an_index_added_late_covers_what_is_there_and_is_not_replaced() -> None:
    cache = Cache()
    cache.replace([obj("a", 1)], "1")

    def by_name(each: dict[str, Any]) -> list[str]:
        return [each["metadata"]["name"]]

    cache.add_index("name", by_name)
    cache.add_index("name", by_name)
    assert names(cache.by_index("name", "a")) == {"a"}
    with pytest.raises(ValueError, match="exists"):
        cache.add_index("name", lambda each: [])


def test_managed_fields_are_left_out() -> None:
    cache = Cache()
    made = obj("a", 1)
    made["metadata"]["managedFields"] = [{}]
    cache.replace([made], "1")
    found = cache.get(ObjectKey("ns", "a"))
    assert found is not None and "managedFields" not in found["metadata"]


def test_the_guard_finds_a_reader_that_modifies_an_object() -> None:
    cache = Cache(guard=True)
    cache.replace([obj("a", 1)], "1")
    cache.verify()
    found = cache.get(ObjectKey("ns", "a"))
    assert found is not None
    found["spec"] = 1
    with pytest.raises(RuntimeError, match="ns/a was changed"):
        cache.verify()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["up", "down", "list"]), st.sampled_from("xyz"))))
def test_indexes_say_the_same_as_a_walk_over_all(steps: list[tuple[str, str, str]]) -> None:
    cache = Cache(indexes={"tag": lambda each: list(each["metadata"]["labels"].values())})
    cache.select(labels.parse("t=x"))  # from now on there is an index of labels
    live: dict[str, str] = {}
    for version, (name, step, tag) in enumerate(steps, 1):
        if step == "up":
            cache.upsert(obj(name, version, t=tag))
            live[name] = tag
        elif step == "down":
            cache.remove(obj(name, version, t=tag))
            live.pop(name, None)
        else:
            live = {name: tag}
            cache.replace([obj(name, version, t=tag)], str(version))
    for tag in "xyz":
        expected = {name for name, has in live.items() if has == tag}
        assert names(cache.by_index("tag", tag)) == expected
        assert names(cache.select(labels.parse(f"t={tag}"))) == expected
    assert names(cache.select(namespace="ns")) == set(live)
