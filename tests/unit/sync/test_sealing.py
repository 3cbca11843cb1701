"""What was sealed opens with its own key and no other, and nothing of it is shown on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from shoal.sync.sealing import (
    CannotOpen,
    new_key,
    open_sealed,
    open_values,
    seal_values,
    unwrap_key,
    unwrap_with,
    wrap_for,
    wrap_key,
)
from shoal.testing.seeded import seeded_bytes

VALUES = {"PASSWORD": "correct horse battery staple", "EMPTY": "", "GREEK": "λ"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.dictionaries(texts, texts, max_size=6)
keys = st.binary(min_size=32, max_size=32)


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def flipped(sealed: bytes, bit: int) -> bytes:
    changed = bytearray(sealed)
    changed[bit // 8 % len(sealed)] ^= 1 << bit % 8
    return bytes(changed)


@settings(max_examples=60, deadline=None)
@given(values, keys, keys)
def test_an_agent_opens_what_was_sealed_for_it(found: dict[str, str], data_key: bytes, private: bytes) -> None:
    assert open_sealed(wrap_for(data_key, public(private)), seal_values(found, data_key), private) == found


@settings(max_examples=60, deadline=None)
@given(keys, keys, st.text(max_size=20))
def test_a_master_key_opens_what_it_wrapped(data_key: bytes, master: bytes, context: str) -> None:
    assert unwrap_key(wrap_key(data_key, master, context), master, context) == data_key


@settings(max_examples=40, deadline=None)
@given(keys, keys, keys)
def test_another_key_opens_nothing(one: bytes, other: bytes, data_key: bytes) -> None:
    assume(public(one) != public(other))
    for attempt in (
        lambda: open_values(seal_values(VALUES, one), other),
        lambda: unwrap_key(wrap_key(data_key, one, "m"), other, "m"),
        lambda: unwrap_with(wrap_for(data_key, public(one)), other),
    ):
        with pytest.raises(CannotOpen):
            attempt()


def test_a_data_key_that_was_wrapped_in_another_context_does_not_open() -> None:
    with pytest.raises(CannotOpen):
        unwrap_key(wrap_key(new_key(), key := new_key(), "mk-1"), key, "mk-2")


SEALING = seeded_bytes(3)
MASTER, DATA, PRIVATE = SEALING(32), SEALING(32), SEALING(32)
SEALED = seal_values(VALUES, DATA)
UNDER_MASTER = wrap_key(DATA, MASTER, "m")
FOR_AGENT = wrap_for(DATA, public(PRIVATE))


@pytest.mark.parametrize(
    ("sealed", "attempt"),
    [
        (SEALED, lambda text: open_values(text, DATA)),
        (UNDER_MASTER, lambda text: unwrap_key(text, MASTER, "m")),
        (FOR_AGENT, lambda text: unwrap_with(text, PRIVATE)),
    ],
    ids=["values", "data key", "for an agent"],
)
def test_no_bit_can_be_changed_and_no_byte_is_missing(sealed: bytes, attempt) -> None:  # type: ignore[no-untyped-def]
    attempt(sealed)
    for bit in range(len(sealed) * 8):
        with pytest.raises(CannotOpen):
            attempt(flipped(sealed, bit))
    for length in range(len(sealed)):
        with pytest.raises(CannotOpen):
            attempt(sealed[:length])
    with pytest.raises(CannotOpen):
        attempt(sealed + b"\0")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120), st.binary(max_size=120))
@example(b"", b"")
def test_whatever_arrives_there_is_one_kind_of_error(wrapped: bytes, ciphertext: bytes) -> None:
    with pytest.raises(CannotOpen):
        open_sealed(wrapped, ciphertext, PRIVATE)
    with pytest.raises(CannotOpen):
        open_sealed(FOR_AGENT, ciphertext, PRIVATE)


def test_a_piece_cannot_be_passed_off_as_another() -> None:
    with pytest.raises(CannotOpen):
        open_values(wrap_key(DATA, MASTER, ""), MASTER)
    with pytest.raises(CannotOpen):
        unwrap_key(seal_values(VALUES, MASTER), MASTER, "")


def test_the_same_values_look_different_every_time() -> None:
    assert seal_values(VALUES, DATA) != seal_values(VALUES, DATA)
    assert wrap_for(DATA, public(PRIVATE)) != wrap_for(DATA, public(PRIVATE))
    assert wrap_key(DATA, MASTER, "m") != wrap_key(DATA, MASTER, "m")


@pytest.mark.parametrize("point", [b"\0" * 32, b"\1" + b"\0" * 31, b"short"])
def test_a_public_key_that_agrees_with_everybody_is_refused(point: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        wrap_for(DATA, point)


def test_a_form_of_tomorrow_is_named() -> None:
    with pytest.raises(CannotOpen, match="unknown format 2"):
        open_values(b"\2" + SEALED[1:], DATA)


@pytest.mark.parametrize("content", [b"[1]", b'{"A": 1}', b'"hunter2', b'{"PASSWORD": "hunter2"', b"\xff hunter2"])
def test_an_error_shows_nothing_of_the_content(content: bytes) -> None:
    nonce = b"n" * 12
    ciphertext = b"\1" + nonce + AESGCM(DATA).encrypt(nonce, content, b"shoal values\0")
    with pytest.raises(CannotOpen) as caught:
        open_values(ciphertext, DATA)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "hunter2" not in shown
    assert caught.value.__context__ is None  # a parser's error holds the whole text


def test_without_a_wrapped_key_the_agent_is_told_why() -> None:
    with pytest.raises(CannotOpen, match="no public key of this agent"):
        open_sealed(b"", SEALED, PRIVATE)


def test_the_content_is_a_json_object_so_that_other_programs_can_read_it() -> None:
    plain = AESGCM(DATA).decrypt(SEALED[1:13], SEALED[13:], b"shoal values\0")
    assert json.loads(plain) == VALUES


def test_importing_it_does_not_load_the_library() -> None:
    program = "import sys, shoal.sync.sealing; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
