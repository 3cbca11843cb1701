"""Keys name what travels, and nothing else."""

from __future__ import annotations

import pytest

from shoal.sync.keys import Place, StreamKind, chunks, key_of, split_key, stream_of


def test_a_key_says_kind_id_and_stream() -> None:
    key = key_of("route", "rt_1")
    assert (key, split_key(key), stream_of(key)) == ("route/rt_1", ("route", "rt_1"), StreamKind.SENTINELS)
    assert stream_of("deployment/dep_1") is StreamKind.DEPLOYMENTS


@pytest.mark.parametrize("text", ["", "deployment", "deployment/", "pod/x", "/x"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid key"):
        split_key(text)


def test_a_kind_that_does_not_travel_has_no_key() -> None:
    with pytest.raises(ValueError, match="not sent to agents"):
        key_of("project", "prj_1")


def test_chunks_keep_all_keys_in_order() -> None:
    keys = [str(n) for n in range(11)]
    parts = list(chunks(keys, 5))
    assert [len(part) for part in parts] == [5, 5, 1]
    assert sum(parts, []) == keys
    assert list(chunks([])) == []


def test_a_place_is_written_as_cluster_and_shard() -> None:
    assert str(Place("eu-1", "a")) == "eu-1/a"
