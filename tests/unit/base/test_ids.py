"""Guarantees of identifiers."""

from __future__ import annotations

import re
import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shoal.base.ids import SUFFIX_ALPHABET, Ids, format_uid, new_token
from shoal.testing.seeded import seeded_bytes


@given(st.binary(min_size=16, max_size=16))
def test_every_sixteen_bytes_make_a_version_4_uuid_as_the_standard_library_does(random: bytes) -> None:
    assert format_uid(random) == str(uuid.UUID(bytes=random, version=4))


def test_uids_do_not_repeat_across_refills_of_the_pool() -> None:
    ids = Ids()
    assert len({ids.new_uid() for _ in range(2000)}) == 2000


def test_the_same_seed_gives_the_same_identifiers() -> None:
    first, second = Ids(seeded_bytes(7)), Ids(seeded_bytes(7))
    assert [first.new_uid() for _ in range(300)] == [second.new_uid() for _ in range(300)]
    assert first.new_suffix() == second.new_suffix()
    assert Ids(seeded_bytes(8)).new_uid() != Ids(seeded_bytes(7)).new_uid()


def test_suffixes_have_the_length_and_only_letters_of_the_alphabet_each_as_likely() -> None:
    ids = Ids(seeded_bytes(1))
    letters = Counter("".join(ids.new_suffix(5) for _ in range(10_000)))
    assert set(letters) == set(SUFFIX_ALPHABET)
    expected = 50_000 / len(SUFFIX_ALPHABET)
    assert all(abs(count - expected) < expected * 0.15 for count in letters.values())
    assert len(ids.new_suffix(8)) == 8


def test_tokens_are_long_and_url_safe() -> None:
    token = new_token()
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert token != new_token()
