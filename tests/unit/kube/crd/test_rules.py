"""Rules of a schema run at their place, with the old value, and report as Kubernetes does."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import Cause, Invalid
from shoal.kube.crd.rules import compile_rules
from shoal.kube.crd.structural import Structural
from shoal.kube.objects import Obj


def a_rule(rule: str, **more: Any) -> Obj:
    return {"rule": rule, **more}


def a_structural(*rules: Obj, **properties: Any) -> Structural:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return Structural({"type": "object", "properties": {"spec": spec}})


def an_object(**spec: Any) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def texts(structural: Structural, new: Obj, old: Obj | None = None) -> list[str]:
    return [str(error) for error in structural.validate(new, old)]


N, S = {"type": "integer"}, {"type": "string"}


def test_a_failed_rule_reports_itself_or_its_message() -> None:
    plain = a_structural(a_rule("self.min <= self.max"), min=N, max=N)
    assert texts(plain, an_object(min=1, max=2)) == []
    assert texts(plain, an_object(min=3, max=2)) == ["spec: Invalid value: failed rule: self.min <= self.max"]
    said = a_structural(a_rule("self.min <= self.max", message=" min above max "), min=N, max=N)
    assert texts(said, an_object(min=3, max=2)) == ["spec: Invalid value: min above max"]


def test_a_rule_on_a_scalar_shows_the_value() -> None:
    structural = a_structural(n={**N, "x-kubernetes-validations": [a_rule("self % 2 == 0", message="must be even")]})
    assert texts(structural, an_object(n=3)) == ["spec.n: Invalid value: 3: must be even"]


def test_messages_can_be_computed() -> None:
    rule = a_rule("self.n < 3", messageExpression="'n is ' + string(self.n)", message="fallback")
    structural = a_structural(rule, n=N)
    assert texts(structural, an_object(n=5)) == ["spec: Invalid value: n is 5"]
    broken = a_structural(a_rule("self.n < 3", messageExpression="string(1 / (self.n - 5))", message="fallback"), n=N)
    assert texts(broken, an_object(n=5)) == ["spec: Invalid value: fallback"]
    lines = a_structural(a_rule("self.n < 3", messageExpression="'a\\nb'"), n=N)
    assert texts(lines, an_object(n=5)) == ["spec: Invalid value: failed rule: self.n < 3"]


def test_reason_and_field_path_decide_the_error() -> None:
    for reason, cause in (
        ("FieldValueForbidden", Cause.FORBIDDEN),
        ("FieldValueRequired", Cause.REQUIRED),
        ("FieldValueDuplicate", Cause.DUPLICATE),
        ("FieldValueInvalid", Cause.INVALID),
    ):
        structural = a_structural(a_rule("self.n < 3", reason=reason, fieldPath=".n", message="m"), n=N)
        (error,) = structural.validate(an_object(n=5))
        assert (error.cause, error.field) == (cause, "spec.n")


def test_an_error_becomes_a_status_cause_without_the_whole_object() -> None:
    error = Invalid.of("Widget", "example.com", "w", a_structural(a_rule("false", message="no")).validate(an_object()))
    assert error.message == 'Widget.example.com "w" is invalid: spec: Invalid value: no'
    assert error.status()["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: no", "field": "spec"}
    ]


def test_rules_see_old_values_only_on_update() -> None:
    structural = a_structural(n={**N, "x-kubernetes-validations": [a_rule("self >= oldSelf", message="never down")]})
    assert texts(structural, an_object(n=1)) == []
    assert texts(structural, an_object(n=1), an_object()) == []
    assert texts(structural, an_object(n=1), an_object(n=2)) == ["spec.n: Invalid value: 1: never down"]


def test_an_optional_old_value_lets_rules_run_on_create() -> None:
    rule = a_rule("oldSelf.hasValue() || self == 'new'", optionalOldSelf=True)
    structural = a_structural(s={**S, "x-kubernetes-validations": [rule]})
    assert texts(structural, an_object(s="new")) == []
    assert len(texts(structural, an_object(s="other"))) == 1
    assert texts(structural, an_object(s="other"), an_object(s="x")) == []


def test_items_of_map_lists_are_matched_by_key() -> None:
    items = {
        "type": "object",
        "properties": {"k": S, "v": {**N, "x-kubernetes-validations": [a_rule("self == oldSelf", message="fixed")]}},
    }
    listed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items}
    structural = a_structural(l=listed)
    old = an_object(l=[{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    assert texts(structural, an_object(l=[{"k": "b", "v": 2}, {"k": "c", "v": 9}, {"k": "a", "v": 1}]), old) == []
    changed = an_object(l=[{"k": "b", "v": 3}])
    assert texts(structural, changed, old) == ["spec.l[0].v: Invalid value: 3: fixed"]


def test_rules_in_maps_and_lists_name_their_place() -> None:
    even = [a_rule("self % 2 == 0", message="odd")]
    structural = a_structural(
        m={"type": "object", "additionalProperties": {**N, "x-kubernetes-validations": even}},
        l={"type": "array", "items": {**N, "x-kubernetes-validations": even}},
    )
    assert texts(structural, an_object(m={"a": 1}, l=[2, 3])) == [
        "spec.m[a]: Invalid value: 1: odd",
        "spec.l[1]: Invalid value: 3: odd",
    ]


def test_rules_at_the_root_see_type_and_name() -> None:
    root = {"type": "object", "x-kubernetes-validations": [a_rule("self.metadata.name == 'ok'", message="bad name")]}
    assert texts(Structural(root), an_object()) == ["<nil>: Invalid value: bad name"]


def test_failures_on_unchanged_values_are_tolerated_unless_the_rule_compares() -> None:
    structural = a_structural(
        n={**N, "x-kubernetes-validations": [a_rule("self > 10")]},
        other=N,
        s={**S, "x-kubernetes-validations": [a_rule("self != oldSelf", message="must change")]},
    )
    old = an_object(n=1, other=1, s="a")
    assert texts(structural, an_object(n=1, other=2, s="b"), old) == []
    assert len(texts(structural, an_object(n=2, other=1, s="b"), old)) == 1
    assert texts(structural, an_object(n=1, other=1, s="a"), old) == ['spec.s: Invalid value: "a": must change']


def test_a_rule_on_a_parent_fails_again_when_anything_below_changes() -> None:
    structural = a_structural(a_rule("self.n > 10"), n=N, other=N)
    old = an_object(n=1, other=1)
    assert texts(structural, an_object(n=1, other=1), old) == []
    assert len(texts(structural, an_object(n=1, other=2), old)) == 1


def test_errors_while_evaluating_are_reported() -> None:
    structural = a_structural(
        a_rule("1 / self.n > 0"), a_rule("self.e > 3"), n=N, e={"x-kubernetes-int-or-string": True}
    )
    assert texts(structural, an_object(n=0, e="a")) == [
        'spec: Invalid value: "object": division by zero evaluating rule: 1 / self.n > 0',
        "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, "
        "function or macro signature for rule: self.e > 3",
    ]
    missing = a_structural(a_rule("self.n > 1", message="m"), n=N)
    assert texts(missing, an_object()) == ['spec: Invalid value: "object": no such key: n evaluating rule: m']


def test_rules_wait_until_the_object_has_the_right_shape() -> None:
    structural = a_structural(a_rule("self.n > 1"), n=N)
    assert texts(structural, an_object(n="x"))[-1] == (
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    )


def test_one_rule_may_not_cost_more_than_a_million() -> None:
    schema = {
        "type": "array",
        "items": N,
        "x-kubernetes-validations": [a_rule("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))")],
    }
    rules = compile_rules(schema, resource=False)
    assert rules is not None
    (error,) = rules.validate(list(range(100)), None, 10_000_000, None)
    assert "operation cancelled: actual cost limit exceeded" in str(error)
    assert "no further validation rules will be run due to call cost exceeds limit for rule" in str(error)


def test_all_rules_of_an_object_share_one_budget() -> None:
    schema = {"type": "array", "items": {**N, "x-kubernetes-validations": [a_rule("self >= 0")]}}
    rules = compile_rules(schema, resource=False)
    assert rules is not None
    assert rules.validate([1] * 20, None, 1000, None) == []
    (error,) = rules.validate([1] * 20, None, 20, None)
    assert (
        error.detail == "validation failed due to running out of cost budget, no further validation rules will be run"
    )


def test_null_values_are_not_checked() -> None:
    structural = a_structural(s={**S, "nullable": True, "x-kubernetes-validations": [a_rule("self == 'x'")]})
    assert texts(structural, an_object(s=None)) == []


def test_formats_become_types_in_rules() -> None:
    structural = a_structural(
        a_rule("self.until > self.since && self.until - self.since < self.most"),
        since={"type": "string", "format": "date-time"},
        until={"type": "string", "format": "date-time"},
        most={"type": "string", "format": "duration"},
    )
    good = an_object(since="2024-01-01T00:00:00Z", until="2024-01-01T01:00:00Z", most="2h")
    assert texts(structural, good) == []
    assert len(texts(structural, an_object(**{**good["spec"], "most": "30m"}))) == 1


@pytest.mark.parametrize("reason", [None, "FieldValueDuplicate"])
def test_rule_errors_of_lists_do_not_repeat_the_list(reason: str | None) -> None:
    rule = a_rule("self.size() < 1", **({"reason": reason} if reason else {"message": "m"}))
    structural = a_structural(l={"type": "array", "items": N, "x-kubernetes-validations": [rule]})
    (text,) = texts(structural, an_object(l=[1, 2]))
    assert text == ("spec.l: Duplicate value" if reason else "spec.l: Invalid value: m")
