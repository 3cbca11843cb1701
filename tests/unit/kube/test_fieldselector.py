"""Field selectors: grammar, escapes, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.kube.fieldselector import FieldSelector, Requirement, escape, parse

POD = {"metadata.name": "web", "spec.nodeName": "n1", "status.phase": "Running"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True), ("metadata.name=web", True), ("metadata.name==web", True), ("metadata.name=db", False),
        ("metadata.name!=web", False), ("status.phase!=Failed", True), ("spec.nodeName=", False), ("missing=", True),
        ("missing!=x", True), ("metadata.name=web,spec.nodeName=n1", True), ("metadata.name=web,spec.nodeName=n2", False),
        ("metadata.name=web,,status.phase!=Running", False), ("metadata.name=web,status.phase!=Failed", True),
    ],
)  # fmt: skip
def test_queries_select(text: str, selected: bool) -> None:
    assert parse(text).matches(POD) is selected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name", "invalid selector: 'name'; can't understand 'name'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_queries_that_cannot_be_read_say_why(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(text)
    assert caught.value.message == message


def test_unsupported_fields_are_refused_with_the_message_of_their_kind() -> None:
    supported = {"metadata.name", "metadata.namespace"}
    parse("metadata.name=a").check(supported)
    for arguments, message in (
        ({}, "field label not supported: spec.x"),
        ({"kind": "apps/v1, Kind=X"}, "field label not supported for apps/v1, Kind=X: spec.x"),
        (
            {"generic": True},
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ):
        with pytest.raises(BadRequest) as caught:
            parse("metadata.name=a,spec.x!=1").check(supported, **arguments)
        assert caught.value.message == message


def test_exact_values_hints_and_old_names() -> None:
    selector = parse("status.phase!=Failed,spec.host=n1")
    assert selector.exact("spec.host") == "n1" and selector.exact("status.phase") is None
    assert selector.index_hint() == "spec.host=n1"
    assert parse("a!=b").index_hint() is None
    assert selector.renamed({"spec.host": "spec.nodeName"}).exact("spec.nodeName") == "n1"
    assert selector.renamed({"x": "y"}) is selector


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["metadata.name", "spec.x"]),
            st.sampled_from(["=", "!="]),
            st.text(alphabet="ab\\,=!é ", max_size=8),
        ),
        max_size=3,
    )
)
def test_any_value_survives_being_written_with_escapes(wanted: list[tuple[str, str, str]]) -> None:
    text = ",".join(f"{field}{operator}{escape(value)}" for field, operator, value in wanted)
    selector = parse(text)
    assert sorted(selector.requirements) == sorted(Requirement(*each) for each in wanted)
    assert parse(str(selector)) == selector == FieldSelector(selector.requirements)
    fields = {"metadata.name": "a", "spec.x": "b"}
    assert selector.matches(fields) is all((fields[f] == v) is (op == "=") for f, op, v in wanted)
