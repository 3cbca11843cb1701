"""Results as tables, JSON and YAML."""

from __future__ import annotations

import json

import pytest
import yaml

from shoal.cli.printers import Format, brief, document, duration, facts, render

ROWS = [{"name": "a", "ready_pods": 3, "ok": True, "tags": ["x", "y"]}, {"name": "longer", "ready_pods": None}]


def test_a_table_is_aligned_and_shows_the_chosen_columns() -> None:
    assert render(ROWS, ("name", "ready_pods", "ok", "tags")) == (
        "NAME     READY PODS   OK    TAGS\na        3            yes   x,y\nlonger   -            -     -\n"
    )


def test_json_and_yaml_carry_everything() -> None:
    assert json.loads(render(ROWS, ("name",), Format.JSON)) == ROWS
    assert yaml.safe_load(render(ROWS, ("name",), Format.YAML)) == ROWS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.04, "0.0s"), (9.94, "9.9s"), (10, "10s"), (119, "119s"), (120, "2m"), (7200, "2h"), (1e6, "11d")],
)
def test_durations_are_printed_in_one_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_values_are_printed_in_full_or_shortened() -> None:
    assert document({"ä": [1]}, Format.JSON) == '{\n  "ä": [\n    1\n  ]\n}\n'
    assert yaml.safe_load(document({"ä": [1]}, Format.YAML)) == {"ä": [1]}
    assert brief({"a": "x" * 100}, 20) == '{"a": "xxxxxxxxxxxx…'
    assert facts([("a", 1), ("long", "b"), ("none", None)]) == "a:     1\nlong:  b\n"
