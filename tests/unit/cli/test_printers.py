"""Results as tables, JSON and YAML."""

from __future__ import annotations

import io
import json
import re

import pytest
import yaml

from shoal.cli.printers import Format, brief, document, duration, facts, line_document, name_of, read_format, render
from shoal.errors import ConfigError

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


APP = {"kind": "App", "metadata": {"name": "web", "project": "shop", "environment": "live"}, "spec": {"image": "web:2"}}


def test_wide_tables_have_further_columns() -> None:
    rows = [{"name": "a", "region": "eu"}]
    assert render(rows, ("name",), Format.TABLE, ("region",)) == "NAME\na\n"
    assert render(rows, ("name",), Format.WIDE, ("region",)) == "NAME   REGION\na      eu\n"


def test_names_are_those_that_commands_take() -> None:
    assert document({"items": [APP, APP]}, Format.NAME) == "app/shop/live/web\napp/shop/live/web\n"
    assert name_of({"object": APP, "changed": []}) == "app/shop/live/web"
    assert name_of({"cluster": "eu-1", "namespace": "shop", "name": "web-1"}) == "eu-1/shop/web-1"
    with pytest.raises(ConfigError, match="this answer has no names; use json, yaml or jsonpath"):
        document([{"total": 3}], Format.NAME)


def test_a_format_is_read_and_a_wrong_one_names_those_that_exist() -> None:
    assert read_format("wide") == Format.WIDE
    assert document({"items": [APP]}, read_format("jsonpath={.items[*].spec.image}")) == "web:2"
    assert str(read_format("jsonpath={.a}")) == "jsonpath={.a}"
    for text, said in (
        ("xml", "use table, wide, json, yaml, name or jsonpath=PATH"),
        ("jsonpath", "the path is missing"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_format(text)


def test_a_stream_has_a_line_or_a_document_for_each_value() -> None:
    assert line_document({"a": 1}, Format.JSON) == '{"a": 1}\n'
    assert line_document({"a": 1}, Format.YAML) == "---\na: 1\n"
    assert line_document({"a": 1}, read_format("jsonpath={.a}")) == "1\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variable", "coloured"), [("", True), ("NO_COLOR", False), ("TERM", False)])
def test_only_a_terminal_gets_colours(variable: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"name": "a", "state": "Lost"}, {"name": "b", "state": "Ready"}]
    plain = render(rows, ("name", "state"))
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if variable:
        monkeypatch.setenv(variable, {"NO_COLOR": "1", "TERM": "dumb"}[variable])
    shown = render(rows, ("name", "state"))
    assert (shown != plain) == coloured
    assert ("\x1b[31mLost" in shown) == coloured
    assert re.sub(r"\x1b\[[0-9]*m", "", shown).split() == plain.split()
