"""JSON Patch: operations, limits, and the errors of Kubernetes."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest, Invalid, TooLarge
from shoal.kube.patch import json_patch


def op(kind, path, value=..., source=None):
    made = {"op": kind, "path": path}
    if value is not ...:
        made["value"] = value
    if source is not None:
        made["from"] = source
    return made


@pytest.mark.parametrize(
    ("doc", "operations", "expected"),
    [
        ({"a": 1}, [op("add", "/b", 2)], {"a": 1, "b": 2}),
        ({"a": 1}, [op("add", "/a", 2)], {"a": 2}),
        ({"a": [1, 3]}, [op("add", "/a/1", 2)], {"a": [1, 2, 3]}),
        ({"a": [1]}, [op("add", "/a/-", 2)], {"a": [1, 2]}),
        ({"a": [1]}, [op("add", "/a/1", 2)], {"a": [1, 2]}),
        ({"a": [1]}, [op("add", "/a/-1", 2)], {"a": [1, 2]}),
        ({"a": 1}, [op("add", "/b", None)], {"a": 1, "b": None}),
        ({"a": 1, "b": 2}, [op("remove", "/b")], {"a": 1}),
        ({"a": [1, 2]}, [op("remove", "/a/0")], {"a": [2]}),
        ({"a": [1, 2]}, [op("remove", "/a/-1")], {"a": [1]}),
        ({"a": 1}, [op("replace", "/a", 2)], {"a": 2}),
        ({"a": 1}, [op("replace", "/b", 2)], {"a": 1, "b": 2}),
        ({"a": [1, 2]}, [op("replace", "/a/1", 3)], {"a": [1, 3]}),
        ({"a": 1}, [op("replace", "", {"b": 1})], {"b": 1}),
        ({"a": {"b": 1}, "c": {}}, [op("move", "/c/d", source="/a/b")], {"a": {}, "c": {"d": 1}}),
        ({"a": [1, 2, 3]}, [op("move", "/a/0", source="/a/2")], {"a": [3, 1, 2]}),
        ({"a": {"b": 1}}, [op("copy", "/c", source="/a")], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [op("test", "/a", 1)], {"a": 1}),
        ({"a": {"b": [1, "x", None]}}, [op("test", "/a", {"b": [1, "x", None]})], {"a": {"b": [1, "x", None]}}),
        ({"a": 1}, [op("test", "/b", None)], {"a": 1}),
        ({"a": 1}, [op("test", "", {"a": 1})], {"a": 1}),
        ({"a/b": {"c~d": 1}}, [op("replace", "/a~1b/c~0d", 2)], {"a/b": {"c~d": 2}}),
        ({"~1": 1}, [op("test", "/~01", 1)], {"~1": 1}),
        ({"": 1}, [op("replace", "/", 2)], {"": 2}),
        ({}, [], {}),
    ],
)
def test_operations_change_what_they_name(doc, operations, expected):
    before = copy.deepcopy(doc)
    assert json_patch.apply(doc, operations) == expected
    assert doc == before, "the document passed in must stay as it was"


@pytest.mark.parametrize(
    ("doc", "operation"),
    [
        ({"a": 1}, op("test", "/a", 2)),
        ({"a": 1}, op("test", "/a", True)),
        ({"a": "1"}, op("test", "/a", 1)),
        ({"a": 1}, op("test", "/b", 1)),
        ({"a": 1}, op("test", "/b/c", 1)),
        ({"a": 1}, op("test", "/a")),
        ({"a": 1}, op("add", "/b/c", 1)),
        ({"a": 1}, op("add", "/a/c", 1)),
        ({"a": 1}, op("add", "", {})),
        ({"a": 1}, op("add", "a", 1)),
        ({"a": [1]}, op("add", "/a/2", 1)),
        ({"a": [1]}, op("add", "/a/x", 1)),
        ({"a": [1]}, op("add", "/a/-3", 1)),
        ({"a": 1}, op("remove", "/b")),
        ({"a": [1]}, op("remove", "/a/1")),
        ({"a": [1]}, op("remove", "/a/-")),
        ({"a": [1]}, op("replace", "/a/1", 2)),
        ({"a": 1}, op("replace", "/b/c", 2)),
        ({"a": 1}, op("replace", "", 2)),
        ({"a": 1}, op("move", "/b", source="/c")),
        ({"a": 1}, op("move", "/b")),
        ({"a": 1}, op("copy", "/b/c", source="/a")),
        ({"a": 1}, op("copy", "/b")),
        ({"a": 1}, op("frobnicate", "/a")),
        ({"a": 1}, {"path": "/a"}),
        ({"a": 1}, {"op": "remove"}),
    ],
)
def test_an_operation_that_does_not_apply_is_unprocessable(doc, operation):
    with pytest.raises(Invalid) as caught:
        json_patch.apply(doc, [operation])
    assert caught.value.code == 422
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert caught.value.causes[0]["message"]


@pytest.mark.parametrize(
    "patch",
    [
        {},
        None,
        "x",
        [1],
        [{"op": 1, "path": "/a"}],
        [{"op": "add", "path": 1}],
        [{"op": "copy", "path": "/a", "from": 2}],
    ],
)
def test_a_patch_that_is_no_list_of_operations_is_a_bad_request(patch):
    with pytest.raises(BadRequest):
        json_patch.apply({}, patch)


def test_too_many_operations_are_refused_before_any_is_tried():
    limit = json_patch.MAX_OPERATIONS
    json_patch.apply({"a": 1}, [op("test", "/a", 1)] * limit)
    with pytest.raises(TooLarge, match="The allowed maximum operations in a JSON patch is 10000, got 10001"):
        json_patch.apply({"a": 1}, [op("test", "/a", 2)] * (limit + 1))


def test_copies_may_not_add_up_without_limit():
    doc = {"a": "x" * 1024}
    copies = [op("copy", f"/b{n}", source="/a") for n in range(4000)]
    with pytest.raises(Invalid):
        json_patch.apply(doc, copies)


def test_copies_into_themselves_may_not_nest_without_limit():
    with pytest.raises(Invalid):
        json_patch.apply({"a": {}}, [op("copy", "/a/a", source="/a")] * 250)


def test_a_value_may_not_nest_deeper_than_any_object():
    deep = {}
    for _ in range(190):
        deep = {"a": deep}
    with pytest.raises(Invalid):
        json_patch.apply(
            {"x": {"y": {"z": {"u": {"v": {"w": {"p": {"q": {"r": {"s": {}}}}}}}}}}},
            [op("add", "/x/y/z/u/v/w/p/q/r/s/t", deep)],
        )


def test_a_copied_value_does_not_follow_later_changes():
    doc = {"a": {"b": [1]}}
    patched = json_patch.apply(doc, [op("copy", "/c", source="/a"), op("add", "/c/b/-", 2), op("add", "/a/b/-", 3)])
    assert patched == {"a": {"b": [1, 3]}, "c": {"b": [1, 2]}}


def test_a_value_used_twice_does_not_become_one():
    shared = {"x": 1}
    patched = json_patch.apply({}, [op("add", "/a", shared), op("add", "/b", shared), op("replace", "/a/x", 2)])
    assert patched == {"a": {"x": 2}, "b": {"x": 1}}
    assert shared == {"x": 1}


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)
docs = st.dictionaries(st.text("ab/~", max_size=2), values, max_size=3)


def pointers(value, path=""):
    """All places in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        here = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield here, item
        yield from pointers(item, here)


@settings(max_examples=150, deadline=None)
@given(docs)
def test_testing_every_value_of_a_document_passes(doc):
    assert json_patch.apply(doc, [op("test", path, value) for path, value in pointers(doc)]) == doc


@settings(max_examples=150, deadline=None)
@given(docs, st.data())
def test_adding_then_removing_leaves_the_document(doc, data):
    places = [path for path, value in pointers(doc) if isinstance(value, dict)] or [""]
    place = data.draw(st.sampled_from(places))
    patched = json_patch.apply(doc, [op("add", f"{place}/new", {"x": 1}), op("remove", f"{place}/new")])
    assert patched == doc


@settings(max_examples=150, deadline=None)
@given(
    docs,
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            st.integers(0, 50),
            st.integers(0, 50),
            values,
        ),
        max_size=5,
    ),
)
def test_any_patch_is_carried_out_whole_or_refused_and_never_changes_its_input(doc, drawn):
    places = [path for path, _ in pointers(doc)] + ["", "/new", "/a/-"]
    patch = [op(kind, places[a % len(places)], value, places[b % len(places)]) for kind, a, b, value in drawn]
    before = copy.deepcopy((doc, patch))
    try:
        json_patch.apply(doc, patch)
    except Invalid:
        pass
    assert (doc, patch) == before
