"""Two digests are equal exactly when what they describe is, however each came about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.sync.digest import BUCKETS, Digest, bucket_of, differing

keys = st.text("abc", min_size=1, max_size=3)
steps = st.lists(st.tuples(keys, st.one_of(st.none(), st.text("12", max_size=2))))


def replay(changes: list[tuple[str, str | None]]) -> tuple[Digest, dict[str, str]]:
    digest, entries = Digest(), dict[str, str]()
    for key, stamp in changes:
        if stamp is None:
            digest.drop(key)
            entries.pop(key, None)
        else:
            digest.put(key, stamp)
            entries[key] = stamp
    return digest, entries


@given(steps)
def test_the_way_does_not_matter_only_the_entries(changes: list[tuple[str, str | None]]) -> None:
    digest, entries = replay(changes)
    fresh, _ = replay(list(entries.items()))
    assert digest.buckets == fresh.buckets
    assert len(digest) == len(entries)


@given(steps, steps)
def test_the_buckets_that_differ_are_those_of_the_keys_that_do(
    one: list[tuple[str, str | None]], other: list[tuple[str, str | None]]
) -> None:
    (a, left), (b, right) = replay(one), replay(other)
    changed = {key for key in {*left, *right} if left.get(key) != right.get(key)}
    assert set(differing(a.buckets, b.buckets)) == {bucket_of(key) for key in changed}


def test_another_number_of_buckets_differs_everywhere() -> None:
    assert differing(Digest().buckets, []) == list(range(BUCKETS))


def test_keys_of_buckets_are_found() -> None:
    digest = Digest()
    for number in range(100):
        digest.put(f"deployment/{number}", "1")
    assert digest.keys_in([bucket_of("deployment/7")]) >= ["deployment/7"]
    assert sorted(digest.keys_in(range(BUCKETS))) == sorted(f"deployment/{n}" for n in range(100))
    digest.clear()
    assert digest.buckets == Digest().buckets
