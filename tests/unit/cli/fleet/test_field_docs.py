"""What fields mean, from an OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.fleet.field_docs import field_at, fields_below, text_of, type_of
from shoal.errors import ConfigError

DOCUMENT: dict[str, Any] = {
    "components": {
        "schemas": {
            "App": {"type": "object", "properties": {"spec": {"$ref": "#/components/schemas/AppSpec"}}},
            "AppSpec": {
                "type": "object",
                "description": "What to run",
                "required": ["image"],
                "properties": {
                    "image": {"type": "string", "description": "The image"},
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                    "steps": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/c/s/Step"}]}},
                    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                    "protocol": {"enum": ["h2c", "http1"]},
                },
            },
            "Step": {"type": "object", "properties": {"weight": {"type": "integer", "description": "Percent"}}},
        }
    }
}


def at(*path: str) -> Any:
    return field_at(DOCUMENT, "App", path)


def test_a_field_is_shown_with_its_text_and_the_fields_below_it() -> None:
    assert text_of(DOCUMENT, at("spec"), recursive=False).startswith(
        "KIND:   App\nFIELD:  spec <object>\n\nDESCRIPTION:\n    What to run\n\nFIELDS:\n"
        "  image  <text> (required)\n    The image\n\n  env  <map of text>\n"
    )
    assert "    What to run\n" in text_of(DOCUMENT, at(), recursive=False), "a kind has the text of its spec"


def test_fields_of_the_items_of_a_list_are_found() -> None:
    assert text_of(DOCUMENT, at("spec", "steps", "weight"), recursive=False).endswith("DESCRIPTION:\n    Percent\n")
    assert "    steps  <list of integer or object>\n      weight  <integer>\n" in text_of(
        DOCUMENT, at(), recursive=True
    )


def test_types_are_words() -> None:
    shown = {each["name"]: each["type"] for each in fields_below(DOCUMENT, at("spec"))["fields"]}
    assert shown == {
        "image": "text", "env": "map of text", "steps": "list of integer or object", "port": "integer ≥1 ≤65535",
        "protocol": "h2c|http1",
    }  # fmt: skip
    assert type_of(DOCUMENT, {}) == "anything"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("spec", "imge"), "did you mean app.spec.image"),
        (("zzz",), "app has the fields spec"),
        (("spec", "port", "x"), "app.spec.port has no fields"),
    ],
)
def test_a_field_that_does_not_exist_is_answered_with_those_that_do(path: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        at(*path)
