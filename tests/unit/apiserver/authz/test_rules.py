"""Policy rules: what they allow, which cover which, how missing ones are listed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.authz.rules import MAX_MISSING, Rule, compiled, described, parts, uncovered


def rule(verbs: str, groups: str = "", resources: str = "", names: str = "", urls: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"verbs": verbs.split(",")}
    if resources:
        made |= {"apiGroups": groups.split(","), "resources": resources.split(",")}
    if names:
        made["resourceNames"] = names.split(",")
    if urls:
        made["nonResourceURLs"] = urls.split(",")
    return made


@pytest.mark.parametrize(
    ("given_rule", "asked", "allowed"),
    [
        (rule("get", "", "pods"), ("get", "", "pods", "", "a"), True),
        (rule("get", "", "pods"), ("list", "", "pods", "", ""), False),
        (rule("get", "", "pods"), ("get", "apps", "pods", "", ""), False),
        (rule("get", "", "pods"), ("get", "", "pods", "log", "a"), False),
        (rule("get", "", "pods/log"), ("get", "", "pods", "log", "a"), True),
        (rule("get", "", "pods/log"), ("get", "", "pods", "", "a"), False),
        (rule("*", "*", "*"), ("whatever", "x.io", "things", "sub", "n"), True),
        (rule("update", "*", "*/scale"), ("update", "apps", "deployments", "scale", "a"), True),
        (rule("update", "*", "*/scale"), ("update", "apps", "deployments", "status", "a"), False),
        (rule("update", "*", "*/scale"), ("update", "apps", "deployments", "", "a"), False),
        (rule("get", "", "secrets", "a,b"), ("get", "", "secrets", "", "b"), True),
        (rule("get", "", "secrets", "a,b"), ("get", "", "secrets", "", "c"), False),
        (rule("list", "", "secrets", "a"), ("list", "", "secrets", "", ""), False),
    ],
)
def test_a_rule_allows_what_it_lists(given_rule: Any, asked: tuple[str, ...], allowed: bool) -> None:
    assert Rule(given_rule).allows(*asked) is allowed


@pytest.mark.parametrize(
    ("urls", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/ping", False),
        ("/healthz/*", "/healthz/ping", True),
        ("/healthz/*", "/healthz", False),
        ("*", "/anything", True),
        ("/api*", "/apis", True),
    ],
)
def test_a_path_matches_by_its_whole_or_by_a_prefix_with_a_star(urls: str, path: str, allowed: bool) -> None:
    assert Rule(rule("get", urls=urls)).allows_path("get", path) is allowed
    assert not Rule(rule("get", urls=urls)).allows_path("post", path)


def test_missing_rules_are_gathered_per_resource_and_sorted() -> None:
    owned = compiled([rule("get", "", "pods")])
    wanted = [rule("get,list,watch", ",apps", "pods"), rule("get", "", "secrets", "a"), rule("get", urls="/metrics")]
    assert described(uncovered(owned, wanted)) == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list" "watch"]}',
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}',
    ]


@pytest.mark.parametrize(
    ("owned", "wanted", "covered"),
    [
        (rule("*", "*", "*"), rule("get", "apps", "deployments/scale"), True),
        (rule("get", "*", "*/scale"), rule("get", "apps", "deployments/scale"), True),
        (rule("get", "*", "*/scale"), rule("get", "apps", "deployments"), False),
        (rule("get", "", "secrets", "a"), rule("get", "", "secrets"), False),
        (rule("get", "", "secrets"), rule("get", "", "secrets", "a"), True),
        (rule("get", urls="/a*"), rule("get", urls="/abc"), True),
        (rule("get", urls="/a"), rule("get", urls="/a*"), False),
        (rule("*", "*", "*"), rule("get", urls="/a"), False),
        (rule("*", urls="*"), rule("*", urls="*"), True),
    ],
)
def test_covering(owned: Any, wanted: Any, covered: bool) -> None:
    assert (not uncovered(compiled([owned]), [wanted])) is covered


WORDS = st.sampled_from(["*", "a", "b", "*/s", "a/s"])
LISTS = st.lists(WORDS, min_size=1, max_size=3)
RULES = st.fixed_dictionaries(
    {"verbs": LISTS, "apiGroups": LISTS, "resources": LISTS},
    optional={"resourceNames": st.lists(st.sampled_from(["n", "m"]), min_size=1, max_size=2)},
)
ASKED = st.tuples(*(st.sampled_from(["a", "b"]) for _ in range(3)), st.sampled_from(["", "s"]), st.sampled_from("nmx"))


@settings(max_examples=300, deadline=None)
@given(st.lists(RULES, max_size=3), RULES, ASKED)
def test_rules_that_cover_a_rule_allow_all_that_it_allows(owned: Any, wanted: Any, asked: Any) -> None:
    rules = compiled(owned)
    if not uncovered(rules, [wanted]) and Rule(wanted).allows(*asked):
        assert any(each.allows(*asked) for each in rules)


@settings(max_examples=200, deadline=None)
@given(RULES, ASKED)
def test_the_parts_of_a_rule_allow_what_the_rule_allows(given_rule: Any, asked: Any) -> None:
    assert Rule(given_rule).allows(*asked) == any(Rule(part).allows(*asked) for part in parts(given_rule))


def test_a_rule_of_too_many_parts_is_taken_apart_only_so_far() -> None:
    many = ",".join(f"x{number}" for number in range(30))
    assert len(uncovered([], [rule(many, many, many)])) == MAX_MISSING
    halves = compiled([rule(",".join(f"x{number}" for number in range(start, 30, 2)), "*", "*") for start in (0, 1)])
    assert len(uncovered(halves, [rule(many, many, many)])) == 1  # all covered, but the check gives up before that
    assert uncovered(halves, [rule(many, "x1", many)]) == []
    assert uncovered(compiled([rule("*", "*", "*")]), [rule(many, many, many)]) == []
