from __future__ import annotations

import pytest

from shoal.crds.sentinel import NamedMatch, TextMatch
from shoal.sentinel.translate.match import header_matcher, normal_path, regex_fault, route_match, text_matcher


@pytest.mark.parametrize("pattern", ["a+", "^/v[0-9]+/.*$", r"\d{3}", "(?i)x", "(?:a|b)", r"\\1", "(?P<n>a)"])
def test_expressions_of_re2_are_taken(pattern: str) -> None:
    assert regex_fault(pattern) == ""


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", "(?<!a)b", r"(a)\1", "a++", "(?>a)", "a{5000}", "(?P=n)", r"a\Z", "a" * 2000]
)
def test_expressions_that_would_make_envoy_refuse_all_routes_are_not(pattern: str) -> None:
    assert regex_fault(pattern)


@pytest.mark.parametrize(("path", "wanted"), [("/", "/"), ("", "/"), ("/a/", "/a"), ("/a//", "/a"), ("/a?b", "/a")])
def test_a_path_is_whole_segments(path: str, wanted: str) -> None:
    assert normal_path(path) == wanted


def test_the_root_fits_everything_and_a_path_only_whole_segments() -> None:
    assert route_match("/", []).prefix == "/"
    assert route_match("/a/", []).path_separated_prefix == "/a"


def test_a_match_without_a_text_asks_whether_it_is_there() -> None:
    assert text_matcher(TextMatch(present=True)) is None
    assert header_matcher(NamedMatch(name="X-A")).present_match
    folded = text_matcher(TextMatch(regex="a|b", ignore_case=True))
    assert folded is not None and folded.safe_regex.regex == "(?i:a|b)"
