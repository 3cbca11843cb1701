"""Queries become the declared types, or an error that names every parameter at fault."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field, structs

from shoal.errors import Invalid
from shoal.rest.parameters import MAX_TEXT, ParameterReader


class Everything(Struct, frozen=True, kw_only=True):
    text: str = "none"
    short: Annotated[str, Meta(max_length=5)] = ""
    name: Annotated[str, Meta(pattern="^[a-z]+$", extra={"expected": "must be lower case letters"})] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    least: Annotated[int, Meta(ge=-1)] = 0
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    dry_run: bool = field(name="dryRun", default=False)
    exposed: bool | None = None
    kind: Literal["pods", "nodes"] | None = None


class Needed(Struct, frozen=True):
    q: str


EVERYTHING = ParameterReader(Everything)


def faults(*given: tuple[str, str], reader: Any = EVERYTHING) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as raised:
        reader.read(given)
    assert raised.value.message.startswith("the request is invalid: ")
    return [(error.field, error.body) for error in raised.value.errors]


def test_no_query_gives_the_defaults() -> None:
    assert EVERYTHING.read([]) == Everything()
    assert EVERYTHING.read([("text", ""), ("limit", ""), ("exposed", "")]) == Everything(), "empty is not given"


def test_each_kind_of_parameter_is_read() -> None:
    given = [
        ("text", "a b"), ("name", "web"), ("limit", "500"), ("least", "-1"), ("share", "0.25"), ("dryRun", "true"),
        ("exposed", "false"), ("kind", "nodes"),
    ]  # fmt: skip
    assert EVERYTHING.read(given) == Everything(
        text="a b", name="web", limit=500, least=-1, share=0.25, dry_run=True, exposed=False, kind="nodes"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("limit", "x", "must be a whole number"),
        ("limit", "1.5", "must be a whole number"),
        ("limit", "9" * 40, "must be a whole number"),
        ("limit", "0", "must be between 1 and 500, inclusive"),
        ("least", "-2", "must be -1 or more"),
        ("share", "inf", "must be a number"),
        ("share", "2", "must be between 0 and 1, inclusive"),
        ("dryRun", "yes", 'supported values: "false", "true"'),
        ("dryRun", "1", "supported values"),
        ("kind", "cats", 'supported values: "nodes", "pods"'),
        ("name", "A1", "must be lower case letters"),
        ("short", "123456", "must be at most 5 characters"),
        ("text", "a" * (MAX_TEXT + 1), f"must be at most {MAX_TEXT} characters"),
        ("text", "a\0b", "without NUL"),
        ("dryrun", "true", "unknown parameter; known parameters: dryRun, "),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_parameter(name: str, text: str, said: str) -> None:
    ((found, body),) = faults((name, text))
    assert found == f"query.{name}"
    assert said in body


def test_every_fault_of_a_query_is_found_at_once() -> None:
    found = faults(("limit", "x"), ("limit", "1"), ("colour", "red"), ("kind", "x"))
    assert [name for name, _ in found] == ["query.limit", "query.limit", "query.colour", "query.kind"]
    assert "may be given only once" in found[1][1]


@pytest.mark.parametrize("query", [[], [("q", "")], [("q", "  ")]])
def test_a_parameter_without_a_default_must_be_given(query: list[tuple[str, str]]) -> None:
    assert faults(*query, reader=ParameterReader(Needed)) == [("query.q", "Required value: must be given")]


def test_a_type_that_no_query_can_carry_is_refused_when_it_is_declared() -> None:
    class Wrong(Struct):
        items: list[str] = []

    with pytest.raises(TypeError, match="Wrong.items: a query cannot carry"):
        ParameterReader(Wrong)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(
    st.builds(
        Everything,
        text=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=50),
        short=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=5),
        name=st.text("abcxyz", min_size=1),
        limit=st.integers(1, 500),
        least=st.integers(-1, 10**17),
        share=st.decimals(0, 1, places=6).map(float).filter(lambda value: "e" not in str(value)),
        dry_run=st.booleans(),
        exposed=st.booleans(),
        kind=st.sampled_from(["pods", "nodes"]),
    )
)
def test_what_is_written_as_a_query_is_read_back(value: Everything) -> None:
    names = {each.name: each.encode_name for each in structs.fields(Everything)}
    assert EVERYTHING.read([(names[name], as_text(found)) for name, found in structs.asdict(value).items()]) == value


@given(st.lists(st.tuples(st.sampled_from([*"ab", "limit", "share", "dryRun", "kind", "name"]), st.text()), max_size=6))
def test_any_query_is_read_or_refused(given: list[tuple[str, str]]) -> None:
    try:
        assert isinstance(EVERYTHING.read(given), Everything)
    except Invalid as error:
        assert all(each.field.startswith("query.") and each.detail for each in error.errors)
