"""From what a user applies to what an agent reads; what is kept on the way, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secrets_world import key_text, names

from shoal.base.clock import FakeClock
from shoal.control.domain.model import Sealed, Sealer
from shoal.control.secrets.masters import GivenKeys, UnknownMasterKey, Wrapped, parse_keys
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.control.secrets.wiring import open_sealer
from shoal.errors import ConfigError
from shoal.sync.sealing import CannotOpen, open_sealed

VALUES = {"PASSWORD": "hunter2", "TOKEN": "t0ken"}
AGENT = X25519PrivateKey.generate()
PRIVATE, PUBLIC = AGENT.private_bytes_raw(), AGENT.public_key().public_bytes_raw()


class Counting(GivenKeys):
    """Counts how often a data key was unwrapped."""

    unwrapped = 0

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        self.unwrapped += 1
        return await super().unwrap(wrapped)


def keys(*seeds: int) -> Counting:
    return Counting(parse_keys(" ".join(key_text(seed) for seed in seeds), "a test"), "a test")


async def test_an_agent_reads_what_was_sealed_and_the_control_plane_does_not_hold_it() -> None:
    sealer: Sealer = EnvelopeSealer(keys(1), clock=FakeClock())
    sealed = await sealer.seal(VALUES)
    wrapped = await sealer.rewrap(sealed.data_key, sealed.master_key, PUBLIC)
    assert open_sealed(wrapped, sealed.ciphertext, PRIVATE) == VALUES
    for part in (sealed.ciphertext, sealed.data_key, wrapped):
        assert b"hunter2" not in part
    with pytest.raises(CannotOpen):
        open_sealed(wrapped, sealed.ciphertext, X25519PrivateKey.generate().private_bytes_raw())


async def test_every_secret_has_a_data_key_of_its_own() -> None:
    sealer = EnvelopeSealer(keys(1), clock=FakeClock())
    one, two = await sealer.seal(VALUES), await sealer.seal(VALUES)
    wrapped = await sealer.rewrap(one.data_key, one.master_key, PUBLIC)
    with pytest.raises(CannotOpen):
        open_sealed(wrapped, two.ciphertext, PRIVATE)


async def test_a_data_key_is_unwrapped_once_for_many_agents_and_forgotten_after_a_minute() -> None:
    clock, masters = FakeClock(), keys(1)
    sealer = EnvelopeSealer(masters, clock=clock)
    sealed = await sealer.seal(VALUES)
    for _ in range(100):
        await sealer.rewrap(sealed.data_key, sealed.master_key, PUBLIC)
    assert masters.unwrapped == 1
    await clock.advance(59)
    await sealer.rewrap(sealed.data_key, sealed.master_key, PUBLIC)
    assert (masters.unwrapped, clock.pending) == (1, 1)
    await clock.advance(1)
    assert clock.pending == 0, "it was forgotten without a further call"
    await sealer.rewrap(sealed.data_key, sealed.master_key, PUBLIC)
    assert masters.unwrapped == 2


async def test_the_number_of_data_keys_in_memory_is_bounded() -> None:
    clock = FakeClock()
    masters = keys(1)
    sealer = EnvelopeSealer(masters, clock=clock, keep_count=10)
    sealed = [await sealer.seal({"N": str(n)}) for n in range(50)]

    async def unwrapped(some: list[Sealed]) -> int:
        before = masters.unwrapped
        for one in some:
            await sealer.rewrap(one.data_key, one.master_key, PUBLIC)
            await clock.advance(0.1)
        return masters.unwrapped - before

    assert await unwrapped(sealed) == 50
    assert await unwrapped(sealed[-10:]) == 0 and await unwrapped(sealed[:40]) == 40, "ten are kept"
    await clock.advance(60)
    assert clock.pending == 0 and await unwrapped(sealed[39:40]) == 1
    await sealer.close()
    assert clock.pending == 0


async def test_a_missing_master_key_is_an_error_of_the_secrets_that_need_it_only() -> None:
    before, after = EnvelopeSealer(keys(1), clock=FakeClock()), EnvelopeSealer(keys(2), clock=FakeClock())
    lost, fine = await before.seal(VALUES), await after.seal(VALUES)
    with pytest.raises(UnknownMasterKey, match=f"{lost.master_key}, which is not in a test: add that key"):
        await after.rewrap(lost.data_key, lost.master_key, PUBLIC)
    assert open_sealed(await after.rewrap(fine.data_key, fine.master_key, PUBLIC), fine.ciphertext, PRIVATE)


async def test_resealing_changes_the_wrapping_and_not_the_values() -> None:
    old = EnvelopeSealer(keys(1), clock=FakeClock())
    new = EnvelopeSealer(keys(2, 1), clock=FakeClock())
    sealed = await old.seal(VALUES)
    moved = await new.reseal(Wrapped(sealed.master_key, sealed.data_key))
    assert moved.master_key == await new.masters.current() != sealed.master_key
    only_new = EnvelopeSealer(keys(2), clock=FakeClock())
    wrapped = await only_new.rewrap(moved.data_key, moved.master_key, PUBLIC)
    assert open_sealed(wrapped, sealed.ciphertext, PRIVATE) == VALUES


async def test_no_text_of_any_object_shows_a_value_or_a_key() -> None:
    sealer = EnvelopeSealer(keys(1), clock=FakeClock())
    sealed = await sealer.seal(VALUES)
    await sealer.rewrap(sealed.data_key, sealed.master_key, PUBLIC)
    data_key = await sealer.masters.unwrap(Wrapped(sealed.master_key, sealed.data_key))
    for one in (sealer, sealed, *vars(sealer).values()):
        shown = f"{one} {one!r}"
        for secret in ("hunter2", key_text(1), repr(data_key), data_key.hex()):
            assert secret not in shown


@pytest.mark.parametrize(
    ("spec", "environ", "why"),
    [
        ("env:MISSING", {}, "master_key is 'env:MISSING': the variable is not set"),
        ("", {"SHOAL_MASTER_KEY": "hunter2"}, "the variable SHOAL_MASTER_KEY holds a master key"),
        ("env:KEY", {"KEY": "aHVudGVyMg=="}, "the variable KEY holds a master key of 7 bytes"),
        ("file:", {}, "master_key is file:…: use file:PATH"),
        ("hunter2", {}, "master_key is something else: use file:PATH, env:NAME"),
        ("hunter2:x", {}, "master_key is something else: use file:PATH, env:NAME"),
        ("vault:https://v:8200/transit/k", {}, "VAULT_TOKEN is not set"),
        ("vault:http://v:8200/transit/k", {"VAULT_TOKEN": "t"}, "would be sent unencrypted; use https"),
        ("vault:https://v:8200/other/k", {"VAULT_TOKEN": "t"}, "master_key is 'vault:https://v/other/k': use"),
        ("vault:https://v:8200/transit/", {"VAULT_TOKEN": "t"}, "use file:PATH"),
        ("vault:https://v:8200/transit/a/b", {"VAULT_TOKEN": "t"}, "has no slash"),
        ("vault:https://v:8200/kv/k?fild=x", {"VAULT_TOKEN": "t"}, "with ?mount=MOUNT"),
        ("vault:https://user:hunter2@v:8200/kv/k", {"VAULT_TOKEN": "t"}, "put the token into VAULT_TOKEN"),
        ("vault:ftp://v/kv/k", {"VAULT_TOKEN": "t"}, "use file:PATH"),
        ("vault:https://v/kv/k", {"VAULT_TOKEN_FILE": "/missing"}, "VAULT_TOKEN_FILE is '/missing': No such file"),
        (
            "vault:https://v/kv/k",
            {"VAULT_TOKEN": "t", "VAULT_CLIENT_TIMEOUT": "1h"},
            "VAULT_CLIENT_TIMEOUT is '1h': use",
        ),
        ("vault:https://v/kv/k", {"VAULT_TOKEN": "t", "VAULT_CACERT": "/missing"}, "VAULT_CACERT is '/missing'"),
    ],
)
async def test_a_setting_that_is_wrong_is_named_with_the_fix(
    tmp_path: Path, spec: str, environ: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_sealer(spec, tmp_path, environ)
    assert why in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "aHVudGVyMg" not in str(caught.value)
    assert not list(tmp_path.iterdir())


async def test_the_environment_goes_before_the_default_file(tmp_path: Path) -> None:
    sealer = await open_sealer("", tmp_path, {"SHOAL_MASTER_KEY": key_text(1)})
    assert await sealer.masters.current() == await keys(1).current()
    assert not names(tmp_path)


async def test_a_file_may_be_named_from_the_directory_and_several_places_are_separated_by_commas(
    key_file: Path,
) -> None:
    environ = {"NEW": key_text(2)}
    sealer = await open_sealer("env:NEW,file:keys", key_file.parent, environ)
    assert await sealer.masters.current() == await keys(2).current()
    old = await EnvelopeSealer(keys(1), clock=FakeClock()).seal(VALUES)
    wrapped = await sealer.rewrap(old.data_key, old.master_key, PUBLIC)
    assert open_sealed(wrapped, old.ciphertext, PRIVATE) == VALUES
