"""The description is valid OpenAPI 3.1 for whatever types operations use, and says what the types say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType, field
from openapi_spec_validator import validate

from shoal.errors import Conflict, Invalid, NotFound, Unauthorized
from shoal.rest.conditions import IfMatchOrNone
from shoal.rest.openapi import ApiDescription, document
from shoal.rest.operations import Operation, RestCall

ABOUT = ApiDescription(title="Test", version="1", text="…", errors=(Unauthorized, Invalid), path_types={"id": int})


class Paging(Struct, frozen=True, kw_only=True):
    q: str
    limit: Annotated[int, Meta(ge=1, le=5, description="How many")] = 3
    position: str = field(name="continue", default="")
    exposed: Annotated[bool | None, Meta(description="Or not")] = None


class Written(Struct, forbid_unknown_fields=True):
    """What is written."""

    name: str
    size: int | UnsetType = UNSET


class Shown(Struct):
    items: list[Written]


def operation(handler: Any, answer: Any = Shown, **more: Any) -> Operation:
    return Operation(
        method="PUT", path="/things/{id}/{name}", id="putThing", tag="things", summary="Put", handler=handler,
        answers={201: answer}, **more,
    )  # fmt: skip


async def put(call: RestCall[str], query: Paging, headers: IfMatchOrNone, body: Written) -> Shown:
    return Shown([body])


def test_an_operation_is_described_by_the_types_of_its_handler() -> None:
    found = document([operation(put, errors=(NotFound, Conflict), needs="write")], ABOUT)
    validate(found)
    described = found["paths"]["/things/{id}/{name}"]["put"]
    parameters = {each["name"]: each for each in described["parameters"]}
    assert parameters["id"] == {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    assert parameters["q"]["required"] and not parameters["limit"]["required"]
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 5, "default": 3}
    assert parameters["limit"]["description"] == "How many"
    assert parameters["exposed"]["schema"] == {"type": "boolean"}
    assert {name: each["in"] for name, each in parameters.items()} == {
        "id": "path", "name": "path", "q": "query", "limit": "query", "continue": "query", "exposed": "query",
        "If-Match": "header", "If-None-Match": "header", "X-Correlation-Id": "header",
    }  # fmt: skip
    assert described["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Written"}}},
    }
    assert {status: each["description"] for status, each in described["responses"].items()} == {
        "201": "Created", "400": "BadRequest", "401": "Unauthorized", "404": "NotFound", "409": "Conflict",
        "413": "RequestEntityTooLarge", "422": "Invalid",
    }  # fmt: skip
    assert described["x-needs"] == "write"
    assert found["components"]["schemas"]["Written"] == {
        "title": "Written", "type": "object", "description": "What is written.", "required": ["name"],
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}, "additionalProperties": False,
    }  # fmt: skip


def test_documents_that_a_handler_reads_itself_are_described_by_what_it_declares() -> None:
    async def put(call: RestCall[str], body: dict[str, Any]) -> None: ...

    found = document([operation(put, body=Written)], ABOUT)
    (content,) = found["paths"]["/things/{id}/{name}"]["put"]["requestBody"]["content"].values()
    assert content["schema"] == {"$ref": "#/components/schemas/Written"}


scalars = st.sampled_from(
    [str, int, float, bool, Any, Literal["a", "b"], Annotated[int, Meta(ge=0)], Annotated[str, Meta(pattern="^a$")]]
)
types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),  # type: ignore[valid-type]
        inner.map(lambda each: dict[str, each]),  # type: ignore[valid-type]
        inner.filter(lambda each: each is not Any).map(lambda each: each | None),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda fields: msgspec.defstruct(f"Made{abs(hash(str(fields)))}", [(f"f{n}", t) for n, t in enumerate(fields)])
        ),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=40)
@given(types)
def test_every_type_gives_a_valid_description(answer: Any) -> None:
    async def get(call: RestCall[str]) -> Any: ...

    validate(document([operation(get, answer)], ABOUT))
