"""Keys: which are good, where they may stand, and what instances are told of their owners."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.crds.sentinel import KeyAuth, KeyLocation
from shoal.sentinel.policies import wire
from shoal.sentinel.policies.keys import KeyBook, judge
from shoal.sentinel.translate.model import Key, KeySet

NOW = 1_800_000_000.0


def key(text: str, **about: object) -> Key:
    return Key(**{"id": f"id-{text}", "digest": hashlib.sha256(text.encode()).hexdigest(), "subject": "me", **about})  # type: ignore[arg-type]


def book(*keys: Key, environment: str = "env") -> KeyBook:
    made = KeyBook()
    made.replace({environment: KeySet(environment=environment, keys=keys)})
    return made


def rule(*locations: KeyLocation, permissions: frozenset[str] = frozenset()) -> wire.KeyRule:
    return wire.KeyRule(policy="p", locations=locations or (KeyLocation(bearer={}),), permissions=permissions)


def verdict(
    known: KeyBook, wanted: wire.KeyRule, headers: dict[str, str], path: str = "/", environment: str = "env"
) -> str:
    return judge(known, environment, wanted, headers, path, now=NOW)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer good", wire.ALLOWED),
        ("bearer   good", wire.ALLOWED),
        ("Bearer good ", wire.INVALID),
        ("Bearer wrong", wire.INVALID),
        ("Bearer expired", wire.INVALID),
        ("Bearer later", wire.ALLOWED),
        ("Bearer off", wire.INVALID),
        ("Bearer ", wire.MISSING),
        ("Bearergood", wire.MISSING),
        ("good", wire.MISSING),
        ("", wire.MISSING),
    ],
)
def test_a_bearer_key_is_judged(text: str, expected: str) -> None:
    known = book(key("good"), key("expired", expires=NOW), key("later", expires=NOW + 1), key("off", enabled=False))
    assert verdict(known, rule(), {"authorization": text}) == expected


def test_no_header_at_all_is_a_missing_key() -> None:
    assert verdict(book(key("good")), rule(), {}) == wire.MISSING


def test_every_permission_that_is_asked_for_is_needed() -> None:
    known = book(key("a", permissions=frozenset({"read"})), key("b", permissions=frozenset({"read", "write", "x"})))
    wanted = rule(permissions=frozenset({"read", "write"}))
    assert verdict(known, wanted, {"authorization": "Bearer a"}) == wire.FORBIDDEN
    assert verdict(known, wanted, {"authorization": "Bearer b"}) == wire.ALLOWED


def test_keys_of_other_environments_are_not_known() -> None:
    assert verdict(book(key("good")), rule(), {"authorization": "Bearer good"}, environment="other") == wire.INVALID


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x?k=good", wire.ALLOWED),
        ("/x?a=b&k=g%6fod&c", wire.ALLOWED),
        ("/x?%6B=good", wire.ALLOWED),
        ("/x?k=&k=good", wire.MISSING),
        ("/x?kk=good", wire.MISSING),
        ("/x?k", wire.MISSING),
        ("/k=good", wire.MISSING),
        ("/x?k=good+", wire.INVALID),
    ],
)
def test_a_key_in_the_query_is_judged(path: str, expected: str) -> None:
    assert verdict(book(key("good")), rule(KeyLocation(query="k")), {}, path) == expected


def test_the_first_place_with_a_key_counts() -> None:
    wanted = rule(KeyLocation(header="X-Key", strip_prefix="Key "), KeyLocation(bearer={}))
    known = book(key("good"))
    assert verdict(known, wanted, {"x-key": "Key good"}) == wire.ALLOWED
    assert verdict(known, wanted, {"x-key": "good", "authorization": "Bearer good"}) == wire.ALLOWED
    assert verdict(known, wanted, {"x-key": "Key bad", "authorization": "Bearer good"}) == wire.INVALID


def test_a_set_that_is_gone_takes_its_keys_with_it() -> None:
    known = book(key("good"))
    known.replace({})
    assert verdict(known, rule(), {"authorization": "Bearer good"}) == wire.INVALID


def test_a_set_that_is_the_same_is_not_read_again() -> None:
    same = KeySet(environment="env", keys=(key("good"),))
    known = KeyBook()
    known.replace({"env": same})
    before = known.find("env", "good")
    known.replace({"env": same, "other": KeySet(environment="other")})
    assert before is not None and known.find("env", "good") is before


def test_a_principal_fits_into_a_header_whatever_its_owner_is_called() -> None:
    principal = wire.principal_of(key("good", subject='é\n"x"\u2028\U0001f600', meta={"a": [1, {"b": None}]}))
    text = wire.principal_text(principal)
    assert text.isascii() and text.isprintable()
    assert json.loads(text) == principal


locations = st.one_of(
    st.builds(KeyLocation, bearer=st.just({}), strip_prefix=st.text(max_size=3)),
    st.builds(KeyLocation, header=st.text(min_size=1), strip_prefix=st.text(max_size=3)),
    st.builds(KeyLocation, query=st.text(min_size=1)),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.tuples(st.lists(locations, min_size=1), st.lists(st.text()))))
def test_a_rule_arrives_as_it_was_sent(rules: dict[str, tuple[list[KeyLocation], list[str]]]) -> None:
    asked = {name: KeyAuth(locations=found, permissions=wanted) for name, (found, wanted) in rules.items()}
    told = wire.key_context("env", asked)
    assert told[wire.ENVIRONMENT] == "env"
    assert wire.read_key_rules(told[wire.RULES]) == tuple(
        wire.KeyRule(policy=name, locations=tuple(one.locations), permissions=frozenset(one.permissions))
        for name, one in asked.items()
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[1]", '[{"name":"p"}]', '[{"locations":[]}]', '[{"name":"p","locations":[{}]}]',
        '[{"name":"p","locations":[{"header":"a","query":"b"}]}]', '[{"name":"p","locations":[{"cookie":"c"}]}]',
    ],
)  # fmt: skip
def test_a_rule_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(wire.BadRule):
        wire.read_key_rules(text)
