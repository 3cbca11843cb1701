"""Revisions: equal templates share a revision; a template that is used again gets the highest number."""

from __future__ import annotations

from typing import Any

from shoal.controllers.pods.template import controller_reference
from shoal.controllers.revisions.plan import (
    HASH_LABEL,
    CreateRevision,
    RenumberRevision,
    UseRevision,
    choose,
    new_revision,
    ordered,
    surplus,
    template_of,
)
from shoal.kube.objects import Obj
from shoal.testing.workloads import stateful_set, stored, template

OWNER = stored(stateful_set(), uid="the-set")
REFERENCE = controller_reference(OWNER, "apps/v1", "StatefulSet")


def owner(image: str) -> Obj:
    return {**OWNER, "spec": {**OWNER["spec"], "template": template("web", image)}}


def revision(image: str, number: int) -> Obj:
    return stored(new_revision(owner(image), REFERENCE, number, 0, HASH_LABEL))


def pick(image: str, *revisions: Obj) -> Any:
    return choose(owner(image), ordered(revisions), REFERENCE, 0, HASH_LABEL)


def test_a_new_template_is_recorded_with_the_next_number() -> None:
    first = pick("a")
    assert isinstance(first, CreateRevision)
    assert first.revision["revision"] == 1
    about = first.revision["metadata"]
    assert about["name"] == f"web-{about['labels'][HASH_LABEL]}"
    assert about["labels"]["app"] == "web"
    later = pick("c", revision("b", 7), revision("a", 3))
    assert isinstance(later, CreateRevision) and later.revision["revision"] == 8


def test_the_newest_is_used_as_it_is() -> None:
    a, b = revision("a", 1), revision("b", 2)
    chosen = pick("b", a, b)
    assert isinstance(chosen, UseRevision) and chosen.revision is b


def test_an_old_one_that_comes_back_gets_the_highest_number() -> None:
    a, b = revision("a", 1), revision("b", 2)
    chosen = pick("a", b, a)
    assert isinstance(chosen, RenumberRevision)
    assert chosen.revision == {**a, "revision": 3}


def test_the_template_comes_back_as_it_was() -> None:
    made = revision("a", 1)
    assert template_of(made) == template("web", "a")
    assert made["data"]["spec"]["template"]["$patch"] == "replace"


def test_a_collision_makes_another_name_for_the_same_data() -> None:
    one = new_revision(owner("a"), REFERENCE, 1, 0, HASH_LABEL)
    other = new_revision(owner("a"), REFERENCE, 1, 1, HASH_LABEL)
    assert one["data"] == other["data"]
    assert one["metadata"]["name"] != other["metadata"]["name"]


def test_a_long_name_is_cut() -> None:
    long = {**OWNER, "metadata": {**OWNER["metadata"], "name": "x" * 250}}
    assert len(new_revision(long, REFERENCE, 1, 0, HASH_LABEL)["metadata"]["name"]) <= 253


def test_the_oldest_unused_ones_beyond_the_limit_go() -> None:
    all_of_them = [revision(image, number) for number, image in enumerate("abcde", 1)]
    names = [each["metadata"]["name"] for each in all_of_them]
    assert surplus(all_of_them, {names[0], names[4]}, 2) == [all_of_them[1]]
    assert surplus(all_of_them, set(), 10) == []
    assert surplus(all_of_them, set(), None) == []
    assert surplus(all_of_them, {names[4]}, 0) == all_of_them[:4]


def test_the_keys_of_the_data_are_in_order() -> None:
    """Clients compare the bytes with what they would write themselves."""

    def in_order(value: Any) -> bool:
        if isinstance(value, dict):
            return list(value) == sorted(value) and all(in_order(each) for each in value.values())
        return all(in_order(each) for each in value) if isinstance(value, list) else True

    assert in_order(revision("image:1", 1)["data"])
