"""Master keys in Vault, against a double that was written from its documentation."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from secrets_world import key_text, lines

from shoal.base.clock import FakeClock
from shoal.control.secrets.masters import KeysAway, UnknownMasterKey, Wrapped
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.control.secrets.vault import KvKeys, TransitKeys, Vault, VaultConfig
from shoal.control.secrets.wiring import open_sealer
from shoal.errors import ConfigError
from shoal.sync.sealing import CannotOpen
from shoal.testing.vault import VaultDouble

DATA_KEY = bytes(range(32))


def config(double: VaultDouble, **more: Any) -> VaultConfig:
    return VaultConfig(
        **{"address": double.address, "token": double.token, "timeout_s": 20.0, "probe_timeout_s": 20.0, **more}
    )


def transit(double: VaultDouble, clock: FakeClock, **more: Any) -> TransitKeys:
    return TransitKeys(Vault(config(double, **more), clock=clock), "shoal")


def kv(double: VaultDouble, clock: FakeClock, **more: Any) -> KvKeys:
    return KvKeys(Vault(config(double, **more), clock=clock), "shoal/master", clock=clock)


async def opened(double: VaultDouble, tail: str, *, clock: FakeClock | None = None, **environ: str) -> EnvelopeSealer:
    environ = {"VAULT_TOKEN": double.token, "VAULT_CLIENT_TIMEOUT": "20s", **environ}
    return await open_sealer(f"vault:{double.address}/{tail}", Path("/nowhere"), environ, clock=clock)


async def test_transit_wraps_and_unwraps_in_vault(vault: VaultDouble) -> None:
    keys = transit(vault, FakeClock())
    wrapped = await keys.wrap(DATA_KEY)
    assert wrapped.data_key.startswith(b"vault:v1:")
    assert DATA_KEY not in wrapped.data_key
    assert wrapped.master_key.endswith("-v1")
    assert len(wrapped.master_key) <= 64
    assert await keys.unwrap(wrapped) == DATA_KEY


async def test_a_key_that_was_rotated_in_vault_is_another_master_key_and_the_old_one_still_opens(
    vault: VaultDouble,
) -> None:
    keys = transit(vault, FakeClock())
    old = await keys.wrap(DATA_KEY)
    made = await keys.renew()
    assert made == await keys.current() != old.master_key
    assert await keys.unwrap(old) == await keys.unwrap(await keys.wrap(DATA_KEY)) == DATA_KEY


async def test_the_id_does_not_depend_on_where_vault_runs(vault: VaultDouble) -> None:
    with VaultDouble() as moved:
        moved.make_key("shoal")
        assert await transit(vault, FakeClock()).current() == await transit(moved, FakeClock()).current()
        with pytest.raises(CannotOpen, match="cannot unwrap the data key: cipher"):
            await transit(moved, FakeClock()).unwrap(await transit(vault, FakeClock()).wrap(DATA_KEY))


async def test_what_is_under_another_master_key_is_not_sent_to_vault(vault: VaultDouble) -> None:
    with pytest.raises(UnknownMasterKey):
        await transit(vault, FakeClock()).unwrap(Wrapped("mk-1", b"x"))
    assert vault.requests == []


@pytest.mark.parametrize(
    ("denied", "tail", "why"),
    [
        ("transit/encrypt", "transit/shoal", "permission denied; give the token a policy with `update`"),
        ("transit/decrypt", "transit/shoal", "permission denied; give the token a policy with `update`"),
        ("none", "transit/other", "encryption key not found; make the key with `vault write -f transit/keys/other`"),
        ("none", "transit/shoal?mount=elsewhere", "no handler for route"),
        ("kv/data", "kv/shoal/master", "permission denied; give the token a policy with `read`"),
        ("none", "kv/shoal/other", "put a key there with `vault kv put -mount=kv shoal/other key="),
        ("none", "kv/shoal/master?field=none", "the field 'none' has no text"),
        ("none", "kv/bad", "holds a master key of 7 bytes"),
    ],
)
async def test_what_can_never_work_is_said_at_the_start(vault: VaultDouble, denied: str, tail: str, why: str) -> None:
    vault.put("shoal/master", key=key_text(1))
    vault.put("bad", key="aHVudGVyMg==")
    vault.denied = {denied}
    with pytest.raises(ConfigError) as caught:
        await opened(vault, tail)
    assert why in str(caught.value)
    assert vault.token not in str(caught.value)
    assert "aHVudGVyMg" not in str(caught.value)


async def test_a_wrong_token_is_named_without_being_shown(vault: VaultDouble) -> None:
    with pytest.raises(ConfigError, match="permission denied") as caught:
        await opened(vault, "transit/shoal", VAULT_TOKEN="hvs.wrong")
    assert "hvs.wrong" not in str(caught.value)


async def test_the_token_is_read_from_its_file_each_time_since_somebody_else_renews_it(
    vault: VaultDouble, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(f"{vault.token}\n")
    clock = FakeClock()
    keys = transit(vault, clock, token="", token_file=str(path))
    await keys.check()
    vault.token = "hvs.renewed"
    with pytest.raises(KeysAway, match="permission denied"):
        await keys.wrap(DATA_KEY)
    path.write_text("hvs.renewed")
    assert await keys.unwrap(await keys.wrap(DATA_KEY)) == DATA_KEY
    path.unlink()
    with pytest.raises(KeysAway, match="VAULT_TOKEN_FILE is '.*token': No such file"):
        await keys.wrap(DATA_KEY)


async def test_the_namespace_is_sent(vault: VaultDouble) -> None:
    await opened(vault, "transit/shoal", VAULT_NAMESPACE="team-a")
    assert {headers.get("x-vault-namespace") for _, _, headers in vault.requests} == {"team-a"}


async def test_a_control_plane_starts_while_vault_is_away_and_works_when_it_is_back(vault: VaultDouble) -> None:
    vault.sealed = True
    clock = FakeClock()
    sealer = await opened(vault, "transit/shoal", clock=clock)
    with pytest.raises(KeysAway, match=r"Vault at 127\.0\.0\.1:\d+"):
        await sealer.seal({"A": "b"})
    vault.sealed = False
    for _ in range(20):  # a busy machine may miss the deadline of a first call
        await clock.advance(60)
        with suppress(KeysAway):
            await sealer.seal({"A": "b"})
            return
    pytest.fail("Vault is back, but is not used")


async def test_while_vault_is_away_calls_fail_at_once_and_one_finds_out_when_it_is_back(vault: VaultDouble) -> None:
    clock = FakeClock()
    keys = transit(vault, clock)
    vault.failing = 500
    with pytest.raises(KeysAway, match="500 the double was told to fail"):
        await keys.wrap(DATA_KEY)
    asked = len(vault.requests)
    for _ in range(10):
        with pytest.raises(KeysAway, match="calls to it are paused"):
            await keys.wrap(DATA_KEY)
    assert len(vault.requests) == asked
    vault.failing = 0
    await clock.advance(6)
    assert await keys.unwrap(await keys.wrap(DATA_KEY)) == DATA_KEY


async def test_a_refusal_is_not_taken_for_an_outage(vault: VaultDouble) -> None:
    keys = transit(vault, FakeClock())
    wrapped = await keys.wrap(DATA_KEY)
    with pytest.raises(CannotOpen):
        await keys.unwrap(Wrapped(wrapped.master_key, wrapped.data_key[:-4] + b"AAA="))
    assert await keys.unwrap(wrapped) == DATA_KEY


async def test_a_vault_that_does_not_answer_holds_nobody_up_for_longer_than_the_deadline(vault: VaultDouble) -> None:
    vault.hang()
    keys = transit(vault, FakeClock(), timeout_s=0.2)
    began = time.monotonic()
    with pytest.raises(KeysAway, match="no answer"):
        await keys.wrap(DATA_KEY)
    assert time.monotonic() - began < 8  # the double would let it wait for ten
    vault.resume()


async def test_a_vault_that_is_not_there_is_away(vault: VaultDouble) -> None:
    with VaultDouble() as gone:
        address = gone.address
    keys = TransitKeys(Vault(VaultConfig(address=address, token="t"), clock=FakeClock()), "shoal")
    with pytest.raises(KeysAway, match="cannot be reached"):
        await keys.wrap(DATA_KEY)


async def test_the_newest_version_in_kv_seals_and_older_ones_open_until_they_are_deleted(vault: VaultDouble) -> None:
    clock = FakeClock()
    vault.put("shoal/master", key=key_text(1))
    keys = kv(vault, clock)
    first = await keys.wrap(DATA_KEY)
    vault.put("shoal/master", key=key_text(2))
    assert (await keys.wrap(DATA_KEY)).master_key == first.master_key  # not read again yet
    await clock.advance(61)
    second = await keys.wrap(DATA_KEY)
    assert second.master_key != first.master_key
    fresh = kv(vault, clock)
    assert await fresh.unwrap(first) == await fresh.unwrap(second) == DATA_KEY
    vault.delete_version("shoal/master", 1)
    with pytest.raises(UnknownMasterKey, match=first.master_key):
        await kv(vault, clock).unwrap(first)


async def test_a_key_that_another_control_plane_used_first_is_read_when_it_is_met(vault: VaultDouble) -> None:
    clock = FakeClock()
    vault.put("shoal/master", key=key_text(1))
    behind = kv(vault, clock)
    await behind.current()
    await clock.advance(6)
    vault.put("shoal/master", key=key_text(2))
    wrapped = await kv(vault, clock).wrap(DATA_KEY)
    assert await behind.unwrap(wrapped) == DATA_KEY
    asked = len(vault.requests)
    for _ in range(5):
        with pytest.raises(UnknownMasterKey):
            await behind.unwrap(Wrapped("mk-none", b""))
    assert len(vault.requests) == asked  # Vault is not asked again and again for what is not there


async def test_keys_of_kv_stay_good_while_vault_is_away(vault: VaultDouble) -> None:
    clock = FakeClock()
    vault.put("shoal/master", key=key_text(1))
    keys = kv(vault, clock)
    wrapped = await keys.wrap(DATA_KEY)
    vault.failing = 503
    await clock.advance(3600)
    assert await keys.unwrap(wrapped) == await keys.unwrap(await keys.wrap(DATA_KEY)) == DATA_KEY


async def test_a_key_moves_from_a_file_into_vault_with_its_id(vault: VaultDouble, key_file: Path) -> None:
    vault.put("shoal/master", key=lines(key_file)[0])
    before = await open_sealer(f"file:{key_file}", Path("/nowhere"), {})
    assert await before.masters.current() == await kv(vault, FakeClock()).current()


async def test_health_is_told_in_words(vault: VaultDouble) -> None:
    client = Vault(config(vault), clock=FakeClock())
    assert await client.health() == "active"
    vault.standby = True
    assert await client.health() == "standby"
    vault.sealed = True
    assert await client.health() == "sealed"


async def test_no_text_of_any_object_shows_the_token_or_a_key(vault: VaultDouble) -> None:
    vault.put("shoal/master", key=key_text(1))
    keys = kv(vault, FakeClock())
    await keys.current()
    for one in (keys, transit(vault, FakeClock()), config(vault), Vault(config(vault), clock=FakeClock())):
        shown = f"{one} {one!r}"
        assert vault.token not in shown
        assert key_text(1) not in shown


async def test_proxies_of_the_environment_are_not_used_on_this_machine(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    await opened(vault, "transit/shoal")
