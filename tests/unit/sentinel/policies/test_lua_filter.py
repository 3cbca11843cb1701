"""The text of the Lua filter: what of keys and rules gets into it, and that nothing breaks out of it."""

from __future__ import annotations

import hashlib
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.crds.sentinel import KeyAuth, KeyLocation
from shoal.sentinel.model import ApiKeyInfo, KeySet
from shoal.sentinel.policies.lua_filter import KeyCheck, filter_context, key_script
from shoal.sentinel.policies.wire import RULES, BadRule

_TABLE = re.compile(r"local KEYS = \[(=*)\[\n(.*?)\]\1\]\nlocal INDEX = \{\n(.*?)\}\n", re.DOTALL)
_RECORD = 74


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def table(*keys: ApiKeyInfo, environment: str = "env") -> tuple[str, dict[str, str]]:
    """The lines of the keys, and by environment its index; as Lua reads them."""
    found = _TABLE.search(key_script({environment: KeySet(environment=environment, keys=keys)}))
    assert found is not None
    rows = re.findall(r'^\["([^\n]*)"\] = "([^\n]*)",$', found[3], re.MULTILINE)
    return found[2], dict(rows)


def line_of(keys: str, index: str, wanted: str) -> str | None:
    """As the filter finds it."""
    for at in range(0, len(index), _RECORD):
        if index[at : at + 64] == wanted:
            begin = int(index[at + 64 : at + _RECORD]) - 1
            return keys.encode()[begin:].decode().split("\n")[0]
    return None


def test_each_key_is_found_by_its_digest_and_digests_are_sorted() -> None:
    many = [ApiKeyInfo(id=f"k{n}", digest=digest(str(n)), subject=f"é{n}") for n in range(50)]
    keys, indexes = table(*many)
    index = indexes["env"]
    digests = [index[at : at + 64] for at in range(0, len(index), _RECORD)]
    assert digests == sorted(key.digest for key in many)
    for n, key in enumerate(many):
        line = line_of(keys, index, key.digest)
        assert line is not None and f'"key":"k{n}"' in line


def test_keys_that_are_off_or_have_no_digest_are_left_out() -> None:
    good = ApiKeyInfo(id="a", digest=digest("a").upper(), subject="a")
    _, indexes = table(
        good, ApiKeyInfo(id="b", digest=digest("b"), subject="b", enabled=False), ApiKeyInfo(id="c", digest="12", subject="c"),
        ApiKeyInfo(id="d", digest="z" * 64, subject="d"), ApiKeyInfo(id="e", digest=digest("a"), subject="the same again"),
    )  # fmt: skip
    assert [row[:64] for row in indexes.values()] == [digest("a")]
    assert len(indexes["env"]) == _RECORD


def test_a_permission_with_spaces_does_not_become_two() -> None:
    keys, _ = table(
        ApiKeyInfo(id="a", digest=digest("a"), subject="a", permissions=frozenset({"read", "x write", "", "a\tb"}))
    )
    assert keys.split("\t")[1] == "read"


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text(), st.dictionaries(st.text(), st.one_of(st.none(), st.text(), st.integers(), st.booleans())))
def test_nothing_that_people_write_breaks_out_of_its_place(
    subject: str, environment: str, meta: dict[str, object]
) -> None:
    keys, indexes = table(ApiKeyInfo(id="a", digest=digest("a"), subject=subject, meta=meta), environment=environment)
    assert len(indexes) == 1
    lines = keys.split("\n")
    assert len(lines) == 2 and lines[1] == ""
    fields = lines[0].split("\t")
    assert len(fields) == 5
    assert set(lines[0]) <= set(string.printable) - set("\r\x0b\x0c")
    for literal in re.findall(r'"(?:\\\d{3}|[^"\\])*"', fields[3]):
        assert literal == fields[3]


def test_the_same_keys_make_the_same_text() -> None:
    one, two = (ApiKeyInfo(id=name, digest=digest(name), subject=name) for name in "ab")
    first = key_script({"x": KeySet(environment="x", keys=(one, two)), "y": KeySet(environment="y", keys=(one,))})
    again = key_script({"y": KeySet(environment="y", keys=(one,)), "x": KeySet(environment="x", keys=(two, one))})
    assert first == again


def test_the_filter_context_has_key_locations_and_permissions() -> None:
    rule = KeyAuth(
        locations=[KeyLocation(bearer={}), KeyLocation(header="X-Key", strip_prefix="Key "), KeyLocation(query="k")],
        permissions=["write", "read"],
    )
    assert filter_context("env", [KeyCheck("x-verdict", rule)], tell=True) == {
        RULES: "environment\tenv\t\ntell\t\t\npolicy\tx-verdict\t\nbearer\t\t\nheader\tx-key\tKey \nquery\tk\t\n"
        "permission\tread\t\npermission\twrite\t"
    }


@pytest.mark.parametrize(
    "rule",
    [
        KeyAuth(locations=[KeyLocation()]),
        KeyAuth(locations=[KeyLocation(header="a", query="b")]),
        KeyAuth(locations=[KeyLocation(query="a\tb")]),
        KeyAuth(locations=[KeyLocation(bearer={})], permissions=["a\npermission"]),
    ],
)
def test_a_rule_that_cannot_be_said_is_refused(rule: KeyAuth) -> None:
    with pytest.raises(BadRule):
        filter_context("env", [KeyCheck("x-verdict", rule)], tell=False)
