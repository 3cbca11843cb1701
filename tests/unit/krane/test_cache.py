"""The cache on disk: what was saved is there after any crash, what is not ours is not used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from krane_doubles import OWNER, Desired, inline

from shoal.krane.cache import Cache, CacheOwner


def _open(path: Path, owner: CacheOwner = OWNER) -> Cache:
    return Cache.open(path / "x.cache", owner, offload=inline)


def _state(cache: Cache) -> tuple[dict[str, int], str]:
    return {item.key: item.version.number for item in cache.items() if item.version}, cache.cursor


async def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    desired, cache = Desired(), _open(tmp_path)
    for n in range(3):
        cache.put(desired.want(f"deployment/d{n}"))
    cache.drop("deployment/d1")
    cache.deleted("deployment/d1", 5.0, keep_s=600)
    cache.hold("deployment/d2")
    await cache.save("c1")
    cache.put(desired.want("deployment/d0"))
    cache.hold("deployment/d0")
    cache.unhold("deployment/d2")
    await cache.save("c2")
    cache.close()
    again = _open(tmp_path)
    assert _state(again) == ({"deployment/d0": 4, "deployment/d2": 3}, "c2")
    assert again.held == {"deployment/d0"} and again.deletions == [(5.0, "deployment/d1")]


async def test_the_file_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path / "new" / "x.cache", OWNER)  # with a real thread
    cache.put(Desired().want("deployment/a"))
    await cache.save("c")
    cache.close()
    assert stat.S_IMODE(os.stat(tmp_path / "new" / "x.cache").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o700


@pytest.mark.parametrize("field", ["fleet", "cluster", "shard", "stream", "public_key"])
async def test_another_agents_cache_is_put_aside(tmp_path: Path, field: str) -> None:
    cache = _open(tmp_path)
    cache.put(Desired().want("deployment/a"))
    await cache.save("c")
    cache.close()
    other = {name: getattr(OWNER, name) for name in ("fleet", "cluster", "shard", "stream", "public_key")}
    again = _open(tmp_path, CacheOwner(**{**other, field: "other"}))
    assert _state(again) == ({}, "") and (tmp_path / "x.unusable").exists()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 3000), saves=st.integers(1, 6))
async def test_a_file_torn_at_any_byte_gives_a_state_that_was_saved(tmp_path: Path, cut: int, saves: int) -> None:
    path = tmp_path / "x.cache"
    path.unlink(missing_ok=True)
    desired, cache = Desired(), _open(tmp_path)
    states: list[tuple[dict[str, int], str]] = [({}, "")]
    for n in range(saves):
        cache.put(desired.want(f"deployment/d{n % 3}"))
        await cache.save(f"c{n}")
        states.append(_state(cache))
    cache.close()
    content = path.read_bytes()
    path.write_bytes(content[: min(cut, len(content))])
    items, cursor = _state(_open(tmp_path))
    # the items may be a little newer than the cursor, never older: then what is missing comes again
    behind = [state for state in states if state[1] == cursor]
    assert behind and all(items.get(key, -1) >= number for key, number in behind[0][0].items())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 600), flip=st.integers(1, 255))
async def test_a_damaged_file_never_gives_something_that_was_not_saved(tmp_path: Path, at: int, flip: int) -> None:
    path = tmp_path / "x.cache"
    path.unlink(missing_ok=True)
    desired, cache = Desired(), _open(tmp_path)
    for n in range(4):
        cache.put(desired.want(f"deployment/d{n}"))
    await cache.save("c")
    saved = _state(cache)
    cache.close()
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= flip
    path.write_bytes(content)
    items, cursor = _state(_open(tmp_path))
    assert cursor in ("", "c") and items.items() <= saved[0].items()


async def test_the_log_is_rewritten_when_it_has_grown(tmp_path: Path) -> None:
    desired, cache = Desired(), _open(tmp_path)
    for n in range(6000):
        cache.put(desired.want("deployment/a", replicas=n))
        if n % 100 == 0:
            await cache.save(f"c{n}")
    await cache.save("end")
    cache.close()
    assert (tmp_path / "x.cache").stat().st_size < 300_000
    assert _state(_open(tmp_path)) == ({"deployment/a": 6000}, "end")


async def test_after_a_failed_write_the_next_one_writes_everything(tmp_path: Path) -> None:
    disk_full = False

    async def disk(job: Callable[[], None]) -> None:
        if not disk_full:
            await inline(job)
            return
        with (tmp_path / "x.cache").open("ab") as file:
            file.write(b"half of a rec")
        raise OSError(28, "No space left on device")

    desired, cache = Desired(), Cache.open(tmp_path / "x.cache", OWNER, offload=disk)
    cache.put(desired.want("deployment/a"))
    await cache.save("c1")
    disk_full = True
    cache.put(desired.want("deployment/b"))
    with pytest.raises(OSError, match="No space"):
        await cache.save("c2")
    assert _state(_open(tmp_path)) == ({"deployment/a": 1}, "c1")
    disk_full = False
    await cache.save("c2")
    cache.close()
    assert _state(_open(tmp_path)) == ({"deployment/a": 1, "deployment/b": 2}, "c2")


def test_an_empty_or_unreadable_file_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "x.cache").write_bytes(b"")
    assert len(_open(tmp_path)) == 0
    (tmp_path / "x.cache").write_bytes(bytes(range(256)) * 2)
    assert len(_open(tmp_path)) == 0
