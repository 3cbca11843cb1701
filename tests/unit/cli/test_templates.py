"""Templates of ``-o jsonpath=``."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.templates import fields_of
from shoal.errors import ConfigError

APPS = {"items": [{"name": "a", "n": 1, "tags": ["x"]}, {"name": "b", "n": 2, "tags": []}], "on": True}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (".items[0].name", "a"),
        ("items[0].name", "a"),
        ("{.items[*].name}", "a b"),
        ("{.items[-1:].none}", None),
        ("{.nothing.here}", ""),
        ("{.items[*].n} and {.on}", "1 2 and true"),
        ("{.items[0].tags}", '["x"]'),
        ('{range .items[*]}{.name}={.n}{"\\n"}{end}', "a=1\nb=2\n"),
        ("{range .items[*]}{.name}{'\\t'}{end}|", "a\tb\t|"),
        ('{.items[?(@.name=="b")].n}', "2"),
        ("{'{}'}", "{}"),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, text: Any) -> None:
    if text is None:
        with pytest.raises(ConfigError):
            fields_of(template)
    else:
        assert fields_of(template)(APPS) == text


@pytest.mark.parametrize("template", ["{.a", "{range .items[*]}{.name}", "{end}", "{}", "{'a}", "{.a[}", "a}"])
def test_a_wrong_template_is_refused_with_its_text(template: str) -> None:
    with pytest.raises(ConfigError, match="output is 'jsonpath="):
        fields_of(template)
