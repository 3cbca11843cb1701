"""Bodies become the declared types, or an error that has the path of every field at fault."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from shoal.errors import Invalid
from shoal.rest.bodies import MAX_TEXT_BYTES, BodyReader

Name = Annotated[str, Meta(pattern="^[a-z]{1,8}$", max_length=8, extra={"expected": "must be up to 8 small letters"})]


class Part(Struct, forbid_unknown_fields=True):
    port: Annotated[int, Meta(ge=1, le=65535)]
    share: Annotated[float, Meta(ge=0)] = 0.0


class Body(Struct, forbid_unknown_fields=True):
    name: Name
    kind: Literal["user", "agent"] = "user"
    enabled: bool = True
    labels: dict[str, str] = {}
    parts: Annotated[list[Part], Meta(max_length=2)] = []
    best: Part | None = None
    anything: Any = None


class Optional(Struct, forbid_unknown_fields=True):
    seconds: Annotated[float, Meta(ge=0, le=60)] = 1.0


BODY = BodyReader(Body)


def faults(value: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        BODY.read(value)
    return {error.field: error.body for error in raised.value.errors}


def test_a_body_is_read_with_its_defaults() -> None:
    assert BODY.read({"name": "web"}) == Body("web")
    made = BODY.read({"name": "web", "parts": [{"port": 80, "share": 1}], "best": {"port": 1}, "anything": [None]})
    assert made == Body("web", parts=[Part(80, 1.0)], best=Part(1), anything=[None])


def test_null_and_empty_texts_count_as_left_out() -> None:
    assert BODY.read({"name": "web", "kind": "", "best": None, "labels": None}) == Body("web")
    assert faults({"name": ""}) == {"name": "Required value"}
    assert faults({"name": None}) == {"name": "Required value"}


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ([], "body", "must be an object"),
        ({"name": 3}, "name", "must be a string; put it in quotes"),
        ({"name": "UPPER"}, "name", "must be up to 8 small letters"),
        ({"name": "waytoolong"}, "name", "must be no more than 8 characters"),
        ({"name": "web", "kind": "robot"}, "kind", 'supported values: "agent", "user"'),
        ({"name": "web", "enabled": "yes"}, "enabled", "must be true or false"),
        ({"name": "web", "enabeld": True}, "enabeld", "did you mean enabled?"),
        ({"name": "web", "labels": []}, "labels", "must be an object"),
        ({"name": "web", "labels": {"a": 1}}, "labels[a]", "must be a string"),
        ({"name": "web", "labels": {"a": "x" * (MAX_TEXT_BYTES + 1)}}, "labels[a]", "bytes"),
        ({"name": "web", "parts": {}}, "parts", "must be a list"),
        ({"name": "web", "parts": [{"port": 1}] * 3}, "parts", "must have at most 2 items"),
        ({"name": "web", "parts": [{"port": 1}, {"port": 0}]}, "parts[1].port", "must be between 1 and 65535"),
        ({"name": "web", "parts": [{"port": True}]}, "parts[0].port", "must be a whole number"),
        ({"name": "web", "parts": [{"port": 1, "share": "x"}]}, "parts[0].share", "must be a number"),
        ({"name": "web", "parts": [{"port": 1, "share": -1}]}, "parts[0].share", "must be 0 or more"),
        ({"name": "web", "best": {}}, "best.port", "Required value"),
    ],
)
def test_what_is_wrong_is_said_with_the_path_of_the_field(value: Any, path: str, said: str) -> None:
    found = faults(value)
    assert list(found) == [path] or path == "body"
    assert said in found[path]


def test_every_fault_of_a_body_is_found_at_once() -> None:
    found = faults({"nam": "web", "kind": "x", "parts": [{"port": 0}, {}], "best": 3})
    assert set(found) == {"nam", "name", "kind", "parts[0].port", "parts[1].port", "best"}


def test_a_body_of_which_every_part_may_be_left_out_may_be_left_out() -> None:
    assert BodyReader(Optional).optional
    assert not BODY.optional


def test_a_type_that_cannot_be_explained_is_refused_when_it_is_declared() -> None:
    class Wrong(Struct):
        value: int | str

    with pytest.raises(TypeError, match="Wrong'>.value: a union"):
        BodyReader(Wrong)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 100_000) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "kind", "port", "share", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)
parts = st.builds(Part, port=st.integers(1, 65535), share=st.floats(0, 1e6))
bodies = st.builds(
    Body,
    name=st.from_regex("^[a-z]{1,8}$", fullmatch=True),
    kind=st.sampled_from(["user", "agent"]),
    enabled=st.booleans(),
    labels=st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=5), max_size=3),
    parts=st.lists(parts, max_size=2),
    best=st.none() | parts,
)


@given(bodies)
def test_what_is_encoded_is_read_back(value: Body) -> None:
    assert BODY.read(msgspec.to_builtins(value)) == value


@given(json_values, bodies, st.sampled_from(["name", "kind", "enabled", "labels", "parts", "best", "other"]))
def test_any_value_is_read_as_msgspec_reads_it_or_refused_with_a_path(wild: Any, good: Body, field: str) -> None:
    value = {**msgspec.to_builtins(good), field: wild}
    try:
        found = BODY.read(value)
    except Invalid as error:
        assert error.errors and all(each.field.startswith(field) for each in error.errors)
        assert wild is not None and wild != "" or field in ("name", "other")
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, Body)
    else:
        assert isinstance(found, Body)
