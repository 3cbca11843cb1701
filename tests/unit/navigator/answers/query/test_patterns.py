"""Patterns match as in Python, and no pattern can block a search."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.navigator.answers.query.patterns import Automaton, PatternError, is_simple, parse_pattern, searcher

_ATOMS = st.sampled_from(
    ["a", "b", "-", ".", r"\.", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\W", "^", "$", r"[\d-]", "[]a]", "[a-]", "1"]
)


def _repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,1}", "{1,}", "*?"])
    return st.builds(lambda part, sign: f"(?:{part}){sign}", inner, signs)


PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.builds(lambda left, right: f"({left}|{right})", inner, inner)
        | _repeated(inner)
    ),
    max_leaves=6,
)


@settings(max_examples=250, deadline=None)
@given(pattern=PATTERNS, texts=st.lists(st.text("ab-.1\n", max_size=8), min_size=1, max_size=5))
def test_the_automaton_and_the_chosen_engine_find_what_python_finds(pattern: str, texts: list[str]) -> None:
    node = parse_pattern(pattern)
    automaton, chosen = Automaton(node), searcher(pattern)
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for text in texts:
        assert automaton.search(text) == bool(expected.search(text)), (pattern, text)
        assert bool(chosen(text)) == bool(expected.search(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+b", "(a?){40}a{40}b", "a*a*a*a*a*a*b", "(.*)*(.*)*x", "((a+)+)+b",
     "(?:a{1,20}){1,20}b", "(?:-[a-z]+)*a*[a-z]*b"],
)  # fmt: skip
def test_patterns_that_keep_python_busy_for_years_are_searched_in_one_pass(pattern: str) -> None:
    assert not is_simple(parse_pattern(pattern))
    search = searcher(pattern)
    assert not search("a" * 5000)
    assert search("a" * 5000 + "bx")


@pytest.mark.parametrize("pattern", ["v2", "^web-", ":v2$", "web.*prod", "(web|api)-[0-9]+", "a?b?c", r"reg\.io/"])
def test_common_patterns_go_to_pythons_engine(pattern: str) -> None:
    assert is_simple(parse_pattern(pattern))


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("repeat", ["", "*"])
def test_classes_of_very_many_characters_take_little_memory(repeat: str) -> None:
    """The second goes to the automaton."""
    pattern = "".join(f"[{chr(0x100 + number)}-\uffff]{repeat}" for number in range(8))
    assert peak_bytes(lambda: searcher(pattern)("\u4e00" * 300)) < 5 << 20


def test_an_automaton_of_very_many_states_is_bounded_in_memory_and_refused_when_it_takes_too_much_work() -> None:
    """Every state of this one is a set of some of its steps, and almost every character leads to a new one."""
    search = searcher("(?:[ab]*a[ab]{200}c){2}")
    texts = ["".join("ab"[number >> bit & 1] for bit in range(16)) * 16 for number in range(400)]

    def all_texts() -> None:
        with pytest.raises(BadRequest, match="takes too long"):
            for text in texts:
                assert not search(text)

    assert peak_bytes(all_texts) < 30 << 20


def test_an_ordinary_pattern_for_the_automaton_never_exceeds_its_work() -> None:
    search = searcher("(web|api)+-([a-z0-9]+-)*[a-z0-9]+$")
    for number in range(20_000):
        assert search(f"web-{number}-{number * 7919 % 9973:x}") and not search(f"job-{number}!")


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("(?i)[W-c]", "x", "d"),
        ("[^a-y]", "z", "b"),
        (r"[\d\-x]", "-", "a"),
        ("[+--]", ",", "a"),
        (r"[\]-a]", "^", "b"),
        ("[\U0001f600-\U0001f64f]", "\U0001f601", "x"),
    ],
)
def test_ranges_of_characters(pattern: str, found: str, missed: str) -> None:
    for search in (searcher(pattern), Automaton(parse_pattern(pattern)).search):
        assert search(found) and not search(missed)


def test_case_can_be_ignored() -> None:
    assert searcher("(?i)WEB-[a-c]")("my-web-B")
    assert searcher("(?i)(w+)+EB")("wEb")
    assert not searcher("WEB")("web")


@pytest.mark.parametrize(
    ("pattern", "position", "problem"),
    [
        ("(a", 0, "missing )"),
        ("a)", 1, "unbalanced"),
        ("[a", 0, "unterminated"),
        ("*a", 0, "nothing to repeat"),
        (r"(a)\1", 3, "not supported"),
        ("a(?=b)", 1, "only the groups (?:...) are supported"),
        ("(?P<x>a)", 0, "only the groups (?:...) are supported"),
        (r"\bweb", 0, "not supported"),
        ("a++", 2, "possessive repetition"),
        ("a{1001}", 1, "1000 repetitions"),
        ("(a{100}){100}", 0, "repeats too much"),
        ("x" * 600, 512, "use at most 512"),
        ("[\\d-z]", 1, "bad character range"),
        ("[\u0100-\uffff]" * 9, 42, "more than 8 ranges"),
        (r"[\u0100-\uffff]" * 9, 127, "more than 8 ranges"),
    ],
)
def test_an_unusable_pattern_is_refused_with_reason_and_position(pattern: str, position: int, problem: str) -> None:
    with pytest.raises(PatternError, match=re.escape(problem)) as caught:
        parse_pattern(pattern)
    assert caught.value.position == position


@settings(max_examples=150, deadline=None)
@given(st.text("ab(|)[]*+?{}1,\\^$-.dw:=!<>P", max_size=12))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    try:
        search = searcher(pattern)
    except PatternError as error:
        assert 0 <= error.position <= len(pattern)
    else:
        search("ab1")
