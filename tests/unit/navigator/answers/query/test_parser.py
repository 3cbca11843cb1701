"""Queries that cannot be read are refused with the place and the alternatives."""

from __future__ import annotations

import pytest

from shoal.navigator.answers.query.model import QueryError
from shoal.navigator.answers.query.parser import parse
from shoal.testing.views import AT_S


@pytest.mark.parametrize(
    ("text", "at", "problem", "accepted"),
    [
        ("", "", "begins with a kind", "pods"),
        ("pds", "pds", "unknown kind 'pds'; did you mean 'pods'?", "nodes"),
        ("pods where imge ~ 'v2'", "imge", "no field 'imge'; did you mean 'image'?", "image"),
        ("pods where name", "name", "name is a text and must be compared", "~"),
        ("pods where ready > 3", ">", "ready is a flag, which does not support >", "="),
        ("pods where name < 'a'", "<", "name is a text, which does not support <", "!~"),
        ("pods where restarts = many", "many", "restarts is a number, not 'many'", "a number"),
        ("pods where restarts < name", "name", "name is a text, and restarts a number", "revision"),
        ("pods where restarts = nan", "nan", "not 'nan'", "a number"),
        ("pods where age > 5", "5", "age is an age, not '5'", "5m"),
        ("pods where created < yesterday", "yesterday", "not 'yesterday'", "2026"),
        ("pods where labels = web", "labels", "labels needs a key", "labels.KEY"),
        ("pods where labels", "labels", "labels needs a key", "labels['KEY']"),
        ("pods where name.first = x", "name.first", "name is a text, which has no keys", "name"),
        ("pods where (ready", "", "the end is not expected here", ")"),
        ("pods where ready and", "", "a field is missing before the end", "image"),
        ("pods where ready ready", "ready", "'ready' is not expected here", "and"),
        ("pods wher ready", "wher", "did you mean 'where'?", "select"),
        ("pods where name == 'x'", "==", "unknown operator '=='", "="),
        ("pods where ready && deleting", "&&", "unknown operator '&&'", "and"),
        ("pods where name = 'x", "'x", "a text without a closing quote", "closing"),
        ("pods where name = $x", "$", "'$' has no meaning here", ""),
        ("pods where name in x", "x", "'x' is not expected here", "("),
        ("pods where name in (x", "", "the end is not expected here", ")"),
        ("pods where name ~ '(a'", "(", "cannot be used: missing )", ""),
        ("pods where name ~ 'a(?=b)'", "(", "only the groups (?:...) are supported", ""),
        ("pods limit none", "none", "limit is 'none'", "whole number"),
        ("pods count by region order by name", "name", "name is not one of the fields of count by", "count"),
        ("pods order by labels", "labels", "labels cannot be sorted without a key", "labels.KEY"),
        ("pods select", "", "a field is missing before the end", "name"),
    ],
)
def test_an_error_shows_the_place_and_what_would_have_been_accepted(
    text: str, at: str, problem: str, accepted: str
) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, now_s=AT_S)
    error = caught.value
    assert problem in error.problem
    assert accepted in ", ".join(error.accepted)
    assert text[error.start : error.end].startswith(at)
    shown, carets = error.message.splitlines()[1:3]
    assert shown.removeprefix("  ") == text
    assert carets.index("^") - 2 == error.start


def test_depth_and_length_have_limits() -> None:
    with pytest.raises(QueryError, match="levels"):
        parse("pods where " + "(" * 60 + "ready" + ")" * 60, now_s=AT_S)
    with pytest.raises(QueryError, match="levels"):
        parse("pods where " + "not " * 100 + "ready", now_s=AT_S)
    with pytest.raises(QueryError, match="4096"):
        parse("pods where name = '" + "x" * 5000 + "'", now_s=AT_S)


@pytest.mark.parametrize("character", ["\x1f", "\x85", "\u2003", "\u3000"])
def test_a_space_that_is_not_one_of_ascii_is_an_error_like_any_other_character(character: str) -> None:
    with pytest.raises(QueryError, match="has no meaning here"):
        parse(f"pods {character}", now_s=AT_S)
