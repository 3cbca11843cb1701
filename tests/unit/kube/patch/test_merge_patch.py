"""JSON Merge Patch: the examples of RFC 7386, the differences in Kubernetes, and its laws."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.kube.patch import merge_patch


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": {"b": 1}}, {"a": []}, {"a": []}),
        ({"a": 1}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
        ({"a": [1]}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
        ({"a": False}, {"a": 0}, {"a": 0}),
        ({}, {}, {}),
    ],
)
def test_patches_apply_as_the_rfc_says(doc, patch, expected):
    assert merge_patch.apply(doc, patch) == expected


def test_untouched_parts_are_not_copied():
    doc = {"spec": {"containers": [{"name": "a"}]}, "metadata": {"labels": {"a": "b"}}}
    spec = doc["spec"]
    assert merge_patch.apply(doc, {"metadata": {"labels": {"c": "d"}}})["spec"] is spec


@pytest.mark.parametrize("patch", [[], "x", None, 1])
def test_a_patch_that_is_no_object_is_refused(patch):
    with pytest.raises(BadRequest):
        merge_patch.apply({}, patch)


values = st.recursive(
    st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
docs = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
patches = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.none() | values, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
    ),
    max_size=3,
)


def apply(doc, patch):
    return merge_patch.apply(copy.deepcopy(doc), copy.deepcopy(patch))


def has_null(value):
    if isinstance(value, dict):
        return any(item is None or has_null(item) for item in value.values())
    return False


def merge_diff(old, new):
    """The patch that makes ``new`` of ``old``."""
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or not (isinstance(value, dict) and isinstance(old[key], dict)):
            if key not in old or value != old[key] or type(value) is not type(old[key]):
                patch[key] = value
        elif value != old[key]:
            patch[key] = merge_diff(old[key], value)
    return patch


@settings(max_examples=200, deadline=None)
@given(docs, patches)
def test_applying_a_patch_twice_changes_nothing_more(doc, patch):
    once = apply(doc, patch)
    assert apply(once, patch) == once
    assert not has_null(once)


@settings(max_examples=200, deadline=None)
@given(docs, docs)
def test_the_difference_of_two_documents_leads_from_one_to_the_other(old, new):
    assert apply(old, merge_diff(old, new)) == new


@settings(max_examples=100, deadline=None)
@given(docs)
def test_the_empty_patch_changes_nothing(doc):
    assert apply(doc, {}) == doc
