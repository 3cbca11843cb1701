"""Label selectors select and refuse as in Kubernetes, with the same messages."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest, Cause
from shoal.kube import labels
from shoal.kube.labels import EVERYTHING, NOTHING, Requirement, from_object, from_set, parse, validate_label_selector

WEB = {"app": "web", "tier": "front", "rank": "7", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app=db", False), ("other=web", False),
        ("app!=web", False), ("app!=db", True), ("other!=web", True),
        ("app in (web,db)", True), ("app in (db)", False), ("other in (db)", False),
        ("app notin (db)", True), ("app notin (web)", False), ("other notin (web)", True),
        ("app", True), ("other", False), ("!app", False), ("!other", True), ("! other", True),
        ("rank>6", True), ("rank>7", False), ("rank<8", True), ("app>1", False), ("other<1", False), ("rank > -1", False),
        ("empty=", True), ("app=", False), ("other=", False), ("app in ()", False), ("empty in (,x)", True), ("empty in (x,)", True),
        ("app=web,tier=front", True), ("app=web,tier=back", False), ("app=web,!other,rank>1", True),
        ("in in (in)", False), ("notin", False), (" app = web , tier", True),
    ],
)  # fmt: skip
def test_queries_select(text: str, selected: bool) -> None:
    if text == "rank > -1":
        with pytest.raises(BadRequest):
            parse(text)
        return
    assert parse(text).matches(WEB) is selected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!(", "unable to parse requirement: found '(', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("x>y", "unable to parse requirement: values[0]: Invalid value: \"y\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a/b/c=d", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of'),
        ("a=b@", 'unable to parse requirement: values[0][a]: Invalid value: "b@": a valid label must be an empty string'),
    ],
)  # fmt: skip
def test_queries_that_cannot_be_read_say_where(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(text)
    assert caught.value.message.startswith(message)


def test_text_form_is_sorted_by_key_and_reads_back() -> None:
    text = "z,app in (b,a,b),!gone,size>3,x!=1,y==2,w notin (q)"
    selector = parse(text)
    assert str(selector) == "app in (a,b),!gone,size>3,w notin (q),x!=1,y==2,z"
    assert parse(str(selector)) == selector


def test_index_hint_names_an_exact_requirement_only() -> None:
    assert parse("zone,app=web").index_hint() == "app=web"
    assert parse("app in (web)").index_hint() == "app=web"
    assert parse("app in (web,db),x!=1").index_hint() is None
    assert parse("app=web").exact("app") == "web"
    assert parse("app!=web").exact("app") is None


def test_a_missing_selector_object_selects_nothing_and_an_empty_one_everything() -> None:
    assert from_object(None) is NOTHING and not NOTHING.matches({}) and not NOTHING.everything
    assert from_object({}) is EVERYTHING and EVERYTHING.matches({}) and EVERYTHING.everything
    assert from_set({}).everything and from_set(None).everything
    assert from_object({"matchLabels": None, "matchExpressions": None}).everything


def test_selector_objects_and_plain_maps_select() -> None:
    selector = from_object({
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "edge"]},
            {"key": "gone", "operator": "DoesNotExist"},
            {"key": "rank", "operator": "Exists"},
            {"key": "app", "operator": "NotIn", "values": ["db"]},
        ],
    })  # fmt: skip
    assert selector.matches(WEB)
    assert not selector.matches({**WEB, "gone": "1"})
    assert not selector.matches({**WEB, "tier": "back"})
    assert from_set({"app": "web", "tier": "front"}).matches(WEB)
    assert not from_set({"app": "web", "tier": "x"}).matches(WEB)
    with pytest.raises(BadRequest, match='"Gt" is not a valid label selector operator'):
        from_object({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})


def test_faults_of_a_selector_object_name_their_field() -> None:
    faults = validate_label_selector(
        {
            "matchLabels": {"-": "ok", "good": "not ok"},
            "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "Odd"},
                {"key": "a", "operator": "NotIn", "values": ["fine", "-"]},
            ],
        },
        "spec.selector",
    )
    assert [(fault.cause, fault.field) for fault in faults] == [
        (Cause.INVALID, "spec.selector.matchLabels"),
        (Cause.INVALID, "spec.selector.matchLabels"),
        (Cause.REQUIRED, "spec.selector.matchExpressions[0].values"),
        (Cause.FORBIDDEN, "spec.selector.matchExpressions[1].values"),
        (Cause.INVALID, "spec.selector.matchExpressions[2].operator"),
        (Cause.INVALID, "spec.selector.matchExpressions[2].key"),
        (Cause.INVALID, "spec.selector.matchExpressions[2].key"),
        (Cause.INVALID, "spec.selector.matchExpressions[3].values[1]"),
    ]
    assert faults[2].detail == "must be specified when `operator` is 'In' or 'NotIn'"
    assert validate_label_selector({"matchLabels": {"app": "web"}}, "s") == []
    assert validate_label_selector(None, "s") == []


keys = st.sampled_from(["a", "b", "c.io/d"])
values = st.sampled_from(["", "1", "2", "x"])
sets_of_labels = st.dictionaries(keys, values)


def _expected(requirement: Requirement, given_labels: dict[str, str]) -> bool:
    value = given_labels.get(requirement.key)
    operator, wanted = requirement.operator, requirement.values
    if operator == labels.EXISTS:
        return value is not None
    if operator == labels.ABSENT:
        return value is None
    if operator in (labels.IN, labels.EQUALS, labels.DOUBLE_EQUALS):
        return value is not None and value in wanted
    if operator in (labels.NOT_IN, labels.NOT_EQUALS):
        return value is None or value not in wanted
    if value is None or not value.isdigit():
        return False
    return int(value) > int(wanted[0]) if operator == labels.GREATER else int(value) < int(wanted[0])


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key = draw(keys)
    operator = draw(st.sampled_from([
        labels.IN, labels.NOT_IN, labels.EXISTS, labels.ABSENT, labels.EQUALS, labels.DOUBLE_EQUALS, labels.NOT_EQUALS,
        labels.GREATER, labels.LESS,
    ]))  # fmt: skip
    if operator in (labels.IN, labels.NOT_IN):
        return Requirement(key, operator, tuple(sorted(draw(st.sets(values, min_size=1)))))
    if operator in (labels.EXISTS, labels.ABSENT):
        return Requirement(key, operator)
    if operator in (labels.GREATER, labels.LESS):
        return Requirement(key, operator, (draw(st.sampled_from(["0", "1", "2"])),))
    return Requirement(key, operator, (draw(values),))


@settings(max_examples=400, deadline=None)
@given(st.lists(requirements(), max_size=4), sets_of_labels)
def test_written_selectors_mean_what_their_requirements_say(
    wanted: list[Requirement], given_labels: dict[str, str]
) -> None:
    selector = parse(",".join(map(str, wanted)))
    assert sorted(map(str, selector.requirements)) == sorted(map(str, wanted))
    assert selector.matches(given_labels) is all(_expected(each, given_labels) for each in wanted)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab1=!<>(), \tinot/-é\x00", max_size=20))
def test_any_text_parses_or_is_a_bad_request(text: str) -> None:
    try:
        selector = parse(text)
    except BadRequest:
        return
    assert parse(str(selector)) == selector


def test_a_long_run_of_spaces_is_read_in_linear_time() -> None:
    begun_s = time.thread_time()
    assert parse("a=b" + "\n" * 200_000) == parse("a=b")
    assert time.thread_time() - begun_s < 1.0, "it took minutes when every space was tried as the beginning of a token"
