"""Versions compare within a database; a cursor is believed only when its signature says who wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.sync.versions import START, BadCursor, Cursor, Version, decode_cursor, encode_cursor

KEYS = {"main": b"k" * 32, "eu": b"e" * 32}
numbers = st.integers(0, 2**63 - 1)
cursors = st.dictionaries(st.sampled_from(list(KEYS)), st.tuples(numbers, numbers)).map(Cursor)


@given(cursors)
def test_a_cursor_survives_its_text(cursor: Cursor) -> None:
    assert decode_cursor(encode_cursor(cursor, KEYS), KEYS) == cursor


@given(cursors.filter(lambda cursor: bool(cursor.positions)), st.data())
def test_a_changed_cursor_is_refused(cursor: Cursor, data: st.DataObject) -> None:
    text = encode_cursor(cursor, KEYS)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("0123456789abcdef.,:x").filter(lambda letter: letter != text[at]))
    try:
        read = decode_cursor(text[:at] + other + text[at + 1 :], KEYS)
    except BadCursor:
        return
    # Only a database's name can change unnoticed: into one that is not there, and then the position does not count.
    assert read.positions.items() < cursor.positions.items()


@given(st.text(max_size=40))
def test_text_that_is_no_cursor_is_refused_or_says_nothing(text: str) -> None:
    try:
        assert decode_cursor(text, KEYS) == START
    except BadCursor as refused:
        assert "cursor is malformed" in str(refused)


def test_a_cursor_of_another_database_with_the_same_name_is_refused() -> None:
    text = encode_cursor(Cursor({"main": (1, 7)}), KEYS)
    with pytest.raises(BadCursor, match="signature"):
        decode_cursor(text, {"main": b"o" * 32})


def test_a_huge_cursor_is_refused() -> None:
    with pytest.raises(BadCursor, match="5000 characters"):
        decode_cursor("x" * 5000, KEYS)


def test_a_new_incarnation_is_after_every_number_of_the_old() -> None:
    assert Version("main", 2, 1).is_after(Version("main", 1, 999))
    assert not Version("main", 1, 999).is_after(Version("main", 2, 1))
    assert not Version("main", 1, 5).is_after(Version("main", 1, 5))
    assert Version("eu", 1, 1).is_after(Version("main", 9, 9))
    assert Version("main", 0, 0).is_after(None)


@given(numbers, numbers)
def test_a_version_survives_its_text(incarnation: int, number: int) -> None:
    version = Version("main", incarnation, number)
    assert Version.parse(str(version)) == version


@pytest.mark.parametrize("text", ["", "main", "main:1", ":1:2", "main:x:2", "main:1:-2", "main:1:2:3", "main:1:²"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Version.parse(text)


def test_a_cursor_covers_what_came_before_it_and_never_moves_back() -> None:
    cursor = START.advanced("main", 1, 5).advanced("main", 1, 3)
    assert cursor.positions == {"main": (1, 5)}
    assert cursor.covers(Version("main", 1, 5))
    assert not cursor.covers(Version("main", 1, 6))
    assert not cursor.covers(Version("eu", 1, 1))
