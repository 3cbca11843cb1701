"""The page of metrics has them all, and what dashboards and alert rules ask for exists."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from arch_source import ROOT, modules, tree

MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
SCRIPT = ROOT / "scripts" / "metrics_table.py"
DEFINERS = {"counter", "gauge", "histogram"}
WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = util.spec_from_file_location("metrics_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    loaded = util.module_from_spec(spec)
    sys.modules["metrics_table"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["metrics_table"]


@pytest.fixture(scope="module")
def known(script: ModuleType) -> dict[str, set[str]]:
    """Every stored name with its labels."""
    found: dict[str, set[str]] = {"up": {"job", "instance"}}
    for descriptions in script.tables().values():
        for one in descriptions:
            labels = {*one.labels, "job", "instance"}
            if one.kind == "histogram":
                found[f"{one.name}_bucket"] = labels | {"le"}
                found[f"{one.name}_sum"] = found[f"{one.name}_count"] = labels
            else:
                found[one.name] = labels
    return found


def metrics_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression asks for."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(GROUPING, " ", text)
    names = re.findall(r"(?<![\w.$])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])", text)
    return {name for name in names if name not in WORDS}


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Metrics with the labels that their matchers name."""
    for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)):
            yield name, label


def dashboard_expressions(path: Path) -> Iterator[str]:
    board: dict[str, Any] = json.loads(path.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((\w+), \w+\)", r"\1", variable["definition"])


def rule_expressions() -> Iterator[str]:
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def test_the_page_of_metrics_is_what_the_code_defines(script: ModuleType) -> None:
    assert script.PAGE.read_text() == script.render(script.tables().items()), f"run: python {SCRIPT.relative_to(ROOT)}"


def test_every_module_that_defines_metrics_is_in_the_page() -> None:
    defining = {
        module.name
        for module in modules()
        for call in ast.walk(tree(module.path))
        if isinstance(call, ast.Call) and len(call.args) >= 2
        and (getattr(call.func, "attr", None) or getattr(call.func, "id", None)) in DEFINERS
        and (isinstance(call.args[0], ast.JoinedStr) or (isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)))
    }  # fmt: skip
    imported = {node.module for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.ImportFrom)}
    assert len(defining) > 15
    assert not defining - imported, "add it to scripts/metrics_table.py"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_of_a_dashboard_exists_with_its_labels(path: Path, known: dict[str, set[str]]) -> None:
    check(list(dashboard_expressions(path)), known)


def test_every_metric_of_the_alert_rules_exists_with_its_labels(known: dict[str, set[str]]) -> None:
    check(list(rule_expressions()), known)


def check(expressions: list[str], known: dict[str, set[str]]) -> None:
    assert len(expressions) > 5
    for expression in expressions:
        found = metrics_in(expression)
        assert found, expression
        assert found <= set(known), f"{sorted(found - set(known))} in {expression}"
        for name, label in labels_in(expression):
            assert label in known[name], f"{name} has no label {label}: {expression}"


def test_there_is_a_dashboard_for_each_area_with_its_own_id() -> None:
    boards = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
    assert set(boards) == {"cluster", "fleet", "gateways", "navigator", "shards"}
    assert {board["uid"] for board in boards.values()} == {f"shoal-{name}" for name in boards}
    for name, board in boards.items():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids)), name


def test_expressions_are_read_correctly() -> None:
    asked = 'sum by (le, verb) (rate(a_total{x=~"b.c"}[5m])) / on (instance) b_gauge{y="1"} > 0.5 and c == 1e3'
    assert metrics_in(asked) == {"a_total", "b_gauge", "c"}
    assert set(labels_in(asked)) == {("a_total", "x"), ("b_gauge", "y")}
