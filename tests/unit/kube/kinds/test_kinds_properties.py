"""Properties of the rules of every kind: defaults are final, valid objects stay valid, and nothing raises."""

from __future__ import annotations

import copy
import importlib
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import FieldError
from shoal.kube.kinds import GENERIC, rules_for
from shoal.kube.resources import BUILTIN
from shoal.kube.rules import KindRules
from shoal.kube.schema.builtin import type_of_kind
from shoal.kube.schema.model import Form, Type

MODULES = (
    "apps", "batch", "autoscaling", "networking", "policy", "cluster", "rbac", "access", "extension", "storage",
    "devices",
)  # fmt: skip
ROWS: dict[tuple[str, str, str], KindRules] = {
    key: rules
    for module in MODULES
    for key, rules in importlib.import_module(f"shoal.kube.kinds.{module}").RULES.items()
}

WORDS = (
    "", "a", "web", "A", "a/b", "shop.example/x", "*", "*/*", "pods/*", "-", "10.0.0.1", "::1", "10.0.0.0/8", "25%",
    "1%", "-1%", "0 * * * *", "@every 1h", "Always", "Never", "OnFailure", "Indexed", "RollingUpdate", "OnDelete",
    "Recreate", "In", "Exists", "True", "False", "Complete", "Failed", "Approved", "Denied", "IPv4", "FQDN", "Queue",
    "Reject", "Limited", "Exempt", "Group", "User", "ServiceAccount", "Role", "ClusterRole", "Resource", "Object",
    "Pods", "External", "ContainerResource", "Utilization", "v1", "0-3,5", "1-", "9", "true &&", "Prefix", "https://a",
    "/x", "//", "JSONPatch", "All", "ExactCount", "exempt", "system-a", "Normal", "x" * 70, "é", "\n",
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 5, 80, 600, 1001, 70000, 2**31 - 1)


def anything(random: Random, depth: int) -> Any:
    kind = random.randrange(5 if depth < 3 else 3)
    if kind == 3:
        return [anything(random, depth + 1) for _ in range(random.randrange(3))]
    if kind == 4:
        return {random.choice(WORDS): anything(random, depth + 1) for _ in range(random.randrange(3))}
    return random.choice((random.choice(WORDS), random.choice(NUMBERS), random.random() < 0.5)[kind : kind + 1])


def value_of(kind: Type, random: Random, depth: int) -> Any:
    """A value with the right JSON type, and nothing else right about it."""
    match kind.form:
        case Form.STRUCT:
            chosen = {name: f for name, f in kind.fields.items() if random.random() < (0.7 if depth < 3 else 0.45)}
            if depth > 12:
                chosen = {}
            return {name: value_of(field.type, random, depth + 1) for name, field in chosen.items()}
        case Form.MAP:
            return {random.choice(WORDS): value_of(kind.element, random, depth + 1) for _ in range(random.randrange(3))}
        case Form.LIST:
            return [value_of(kind.element, random, depth + 1) for _ in range(random.randrange(3 if depth < 8 else 1))]
        case Form.STRING:
            return random.choice(WORDS)
        case Form.INTEGER:
            return random.choice(NUMBERS)
        case Form.NUMBER:
            return random.choice((-1.5, 0.0, 2.5))
        case Form.BOOLEAN:
            return random.random() < 0.5
        case Form.BYTES:
            return random.choice(("", "YQ==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"))
        case Form.TIME:
            return random.choice(("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"))
        case Form.MICRO_TIME:
            return "2030-01-01T00:00:00.000000Z"
        case Form.QUANTITY:
            return random.choice(("0", "1", "-1", "100m", "1Gi"))
        case Form.INT_OR_STRING:
            return random.choice((random.choice(WORDS), random.choice(NUMBERS)))
        case _:
            return anything(random, 0)


def random_object(key: tuple[str, str, str], seed: int) -> dict[str, Any]:
    group, version, kind = key
    made = value_of(type_of_kind(group, version, kind), Random(seed), 0)
    made["apiVersion"], made["kind"] = f"{group}/{version}", kind
    made.setdefault("metadata", {})
    return made


def run_all(rules: KindRules, obj: dict[str, Any], old: dict[str, Any]) -> None:
    """Every function of the rules, on objects that may be anything."""
    fresh = copy.deepcopy(obj)
    rules.default(fresh)
    rules.prepare_create(fresh)
    checked: list[FieldError] = rules.validate_create(fresh)
    rules.warnings(fresh)
    new = copy.deepcopy(obj)
    rules.default(new)
    rules.prepare_update(new, old)
    checked += rules.validate_update(new, old)
    status = {**copy.deepcopy(obj), "spec": old.get("spec") or {}}
    rules.prepare_status(status, old)
    checked += rules.validate_status(status, old)
    for check in rules.subresource_validation.values():
        checked += check(status, old)
    for field in rules.selectable.values():
        assert isinstance(field(fresh), str)
    for error in checked:
        assert str(error)


@pytest.mark.parametrize("key", ROWS, ids=lambda key: f"{key[2]}.{key[1]}.{key[0]}")
def test_objects_of_the_right_types_never_raise(key: tuple[str, str, str]) -> None:
    @settings(max_examples=15, deadline=None, database=None)
    @given(st.integers(0, 2**32), st.integers(0, 2**32))
    def check(seed: int, other: int) -> None:
        old = random_object(key, other)
        untouched = copy.deepcopy(old)
        run_all(ROWS[key], random_object(key, seed), old)
        assert old == untouched

    check()


@pytest.mark.parametrize("key", ROWS, ids=lambda key: f"{key[2]}.{key[1]}.{key[0]}")
def test_empty_objects_are_refused_or_accepted_but_never_raise(key: tuple[str, str, str]) -> None:
    empty: dict[str, Any] = {"apiVersion": "", "kind": key[2], "metadata": {}}
    for obj in (empty, {**empty, "spec": {}}, {**empty, "spec": {}, "status": {}}):
        run_all(ROWS[key], copy.deepcopy(obj), copy.deepcopy(empty))


@pytest.mark.parametrize("key", ROWS, ids=lambda key: f"{key[2]}.{key[1]}.{key[0]}")
def test_defaults_of_random_objects_settle_at_once(key: tuple[str, str, str]) -> None:
    @settings(max_examples=8, deadline=None, database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        obj = random_object(key, seed)
        ROWS[key].default(obj)
        once = copy.deepcopy(obj)
        ROWS[key].default(obj)
        assert obj == once

    check()


def test_every_example_is_valid_and_stays_valid_when_written_again(kinds: Any) -> None:
    for kind in kinds.names:
        assert kinds.faults(kind) == [], kind
        assert kinds.update_faults(kind, {}) == [], kind


def test_defaults_of_examples_settle_at_once(kinds: Any) -> None:
    for kind in kinds.names:
        obj = kinds.example(kind)
        kinds.rules(obj).default(obj)
        once = copy.deepcopy(obj)
        kinds.rules(obj).default(obj)
        assert obj == once, kind


def test_defaults_of_two_objects_share_nothing(kinds: Any) -> None:
    """A change of one returned object does not show in the next."""
    for kind in kinds.names:
        first, second = kinds.created(kind), kinds.created(kind)
        before = copy.deepcopy(second)
        _wreck(first)
        assert second == before == kinds.created(kind), kind


def _wreck(value: Any) -> None:
    """Change every list and map there is."""
    children = list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    for child in children:
        _wreck(child)
    if isinstance(value, dict):
        value["wrecked"] = True
    elif isinstance(value, list):
        value.append("wrecked")


def test_every_served_kind_outside_the_core_group_has_rules() -> None:
    missing = [
        f"{r.kind}.{r.version}.{r.group}"
        for r in BUILTIN
        if r.group and rules_for(r.group, r.version, r.kind) is GENERIC
    ]
    assert missing == []
