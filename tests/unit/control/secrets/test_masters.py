"""Master keys from files and the environment: which one seals, which ones open, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from secrets_world import key_text, lines, mode, names

from shoal.control.secrets.masters import (
    CombinedKeys,
    FileKeys,
    GivenKeys,
    KeysAway,
    MasterKey,
    UnknownMasterKey,
    Wrapped,
    parse_keys,
)
from shoal.control.secrets.wiring import open_sealer
from shoal.errors import ConfigError
from shoal.sync.sealing import CannotOpen, new_key

DATA_KEY = b"d" * 32


def given(*seeds: int) -> GivenKeys:
    return GivenKeys(parse_keys(",".join(key_text(seed) for seed in seeds), "a test"), "a test")


async def test_the_first_key_seals_and_the_older_ones_still_open() -> None:
    old, both = given(1), given(2, 1)
    under_old, under_new = await old.wrap(DATA_KEY), await both.wrap(DATA_KEY)
    assert (await both.current(), await old.current()) == (under_new.master_key, under_old.master_key)
    assert under_new.master_key != under_old.master_key
    assert await both.unwrap(under_old) == await both.unwrap(under_new) == DATA_KEY
    with pytest.raises(UnknownMasterKey, match=under_new.master_key):
        await old.unwrap(under_new)


async def test_the_id_of_a_key_is_the_same_wherever_it_is_kept_and_is_not_the_key(key_file: Path) -> None:
    assert await FileKeys(key_file).current() == await given(1).current()
    assert len(await given(1).current()) <= 64
    raw = base64.b64decode(key_text(1))
    assert raw.hex()[:8] not in await given(1).current()


async def test_a_data_key_under_a_name_that_is_not_its_own_does_not_open() -> None:
    both = given(2, 1)
    wrapped = await both.wrap(DATA_KEY)
    with pytest.raises(CannotOpen):
        await both.unwrap(Wrapped(await given(1).current(), wrapped.data_key))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no master key"),
        ("hunter2-hunter2", "not base64|bytes"),
        (base64.b64encode(b"hunter2" * 3).decode(), "of 21 bytes"),
        (base64.b64encode(b"\0" * 32).decode(), "not random"),
        (f"{key_text(1)} hunter2!", "not base64"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_keys(text, "SHOAL_MASTER_KEY")
    assert "SHOAL_MASTER_KEY" in str(caught.value)
    assert "openssl rand -base64 32" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert not text or text not in str(caught.value)


def test_both_alphabets_of_base64_are_understood() -> None:
    key = b"\xfb\xff" * 8 + bytes(range(16))
    ids = {parse_keys(encode(key).decode(), "x").current.id for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    assert ids == {MasterKey(key).id}


def test_a_file_that_others_may_read_is_refused(key_file: Path) -> None:
    key_file.chmod(0o640)
    with pytest.raises(ConfigError, match=rf"others may read it \(mode 0640\); run `chmod 600 {key_file}`"):
        FileKeys(key_file)


def test_a_file_that_is_not_there_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"master_key is 'file:.*nothing': No such file.*openssl rand"):
        FileKeys(tmp_path / "nothing")


async def test_the_default_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    first = await (await open_sealer("", tmp_path, {})).masters.current()
    assert mode(tmp_path / "master.key") == 0o600
    assert await (await open_sealer("", tmp_path, {})).masters.current() == first
    assert names(tmp_path) == ["master.key"]


def at_once(work: Callable[[], Coroutine[Any, Any, str]], *, threads: int) -> list[str]:
    """What ``work`` gives in that many threads, each with a loop of its own as a process would have."""
    start = threading.Barrier(threads)

    def begin(_: int) -> str:
        start.wait()
        return asyncio.run(work())

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def test_many_who_start_at_the_same_moment_use_one_key(tmp_path: Path) -> None:
    found = at_once(lambda: FileKeys(tmp_path / "master.key", create=True).current(), threads=8)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"master_key is 'file:.*': No such file"):
        FileKeys(tmp_path / "missing" / "master.key", create=True)


async def test_a_key_that_is_added_to_the_file_is_used_without_a_restart(key_file: Path) -> None:
    running, other = FileKeys(key_file), FileKeys(key_file)
    under_old = await running.wrap(DATA_KEY)
    made = await other.renew()
    assert made != under_old.master_key
    assert await running.unwrap(await other.wrap(DATA_KEY)) == DATA_KEY
    assert (await running.wrap(DATA_KEY)).master_key == made
    assert await running.unwrap(under_old) == DATA_KEY
    assert mode(key_file) == 0o600
    assert len(lines(key_file)) == 2


def test_keys_that_are_added_at_the_same_moment_are_all_kept(key_file: Path) -> None:
    at_once(lambda: FileKeys(key_file).renew(), threads=8)
    assert len(set(key_file.read_text().split())) == 9


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "garbage": lambda path: path.write_text("garbage"),
    "open to all": lambda path: path.chmod(0o644),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_file_that_goes_bad_while_running_changes_nothing(key_file: Path, damage: str) -> None:
    keys = FileKeys(key_file)
    wrapped = await keys.wrap(DATA_KEY)
    DAMAGES[damage](key_file)
    assert await keys.unwrap(wrapped) == DATA_KEY
    assert (await keys.wrap(DATA_KEY)).master_key == wrapped.master_key


async def test_keys_of_the_environment_are_not_made_here() -> None:
    with pytest.raises(ConfigError, match="put a new key before the others"):
        await given(1).renew()


class Away(GivenKeys):
    async def unwrap(self, wrapped: Wrapped) -> bytes:
        raise KeysAway(self.where, "a test")


async def test_of_several_places_the_first_seals_and_whoever_knows_the_key_opens() -> None:
    old = given(1)
    under_old = await old.wrap(DATA_KEY)
    both = CombinedKeys([given(2), old])
    assert (await both.wrap(DATA_KEY)).master_key == await given(2).current()
    assert await both.unwrap(under_old) == DATA_KEY
    away = Away(parse_keys(key_text(3), "x"), "x")
    assert await CombinedKeys([away, old]).unwrap(under_old) == DATA_KEY
    with pytest.raises(KeysAway):  # it may be the one that knows it
        await CombinedKeys([away, given(2)]).unwrap(under_old)
    with pytest.raises(UnknownMasterKey):
        await both.unwrap(Wrapped("mk-none", b""))


def test_no_text_of_any_object_shows_a_key(key_file: Path) -> None:
    raw = base64.b64decode(key_text(1))
    keys = [FileKeys(key_file), given(1), CombinedKeys([given(1)]), parse_keys(key_text(1), "x"), MasterKey(raw)]
    wrapped = Wrapped("mk-1", new_key())
    for one in [*keys, wrapped]:
        shown = f"{one} {one!r} {getattr(one, 'where', '')}"
        for secret in (key_text(1), raw.hex(), repr(raw), repr(wrapped.data_key)):
            assert secret not in shown
