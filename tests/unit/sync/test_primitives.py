"""The interpreter's OpenSSL and the cryptography package give the same answers, also to what is wrong."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sync import primitives as module
from shoal.sync.primitives import Packaged, Primitives, WrongKey, interpreters, primitives

KEYS = st.binary(min_size=32, max_size=32)
OURS = interpreters()


def made() -> Primitives:
    assert OURS is not None, "the interpreter of the tests has an OpenSSL of its own"
    return OURS


def test_the_interpreters_are_used_where_there_are_any() -> None:
    assert type(primitives()) is type(made())


@settings(max_examples=30, deadline=None)
@given(one=KEYS, other=KEYS)
def test_two_sides_agree_whichever_library_they_have(one: bytes, other: bytes) -> None:
    ours, theirs = made(), Packaged()
    assert ours.public(one) == theirs.public(one)
    agreed = ours.agree(one, theirs.public(other))
    assert agreed == theirs.agree(one, ours.public(other)) == theirs.agree(other, ours.public(one))


@settings(max_examples=50, deadline=None)
@given(key=KEYS, nonce=st.binary(min_size=12, max_size=12), plain=st.binary(max_size=5000), purpose=st.binary())
def test_what_one_seals_the_other_opens(key: bytes, nonce: bytes, plain: bytes, purpose: bytes) -> None:
    sealed = AESGCM(key).encrypt(nonce, plain, purpose)
    assert made().decrypt(key, nonce, sealed, purpose) == plain == Packaged().decrypt(key, nonce, sealed, purpose)


@settings(max_examples=50, deadline=None)
@given(plain=st.binary(max_size=100), at=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_a_changed_bit_does_not_open(plain: bytes, at: int, bit: int) -> None:
    sealed = bytearray(AESGCM(bytes(32)).encrypt(bytes(12), plain, b"for"))
    sealed[at % len(sealed)] ^= 1 << bit
    for one in (made(), Packaged()):
        with pytest.raises(WrongKey):
            one.decrypt(bytes(32), bytes(12), bytes(sealed), b"for")


@pytest.mark.parametrize("one", [OURS, Packaged()])
def test_what_is_no_key_is_refused(one: Primitives) -> None:
    sealed = AESGCM(bytes(32)).encrypt(bytes(12), b"x", b"for")
    with pytest.raises(ValueError):
        one.public(b"short")
    for private, public in ((b"k" * 32, b"short"), (b"", b"")):
        with pytest.raises(ValueError):
            one.agree(private, public)
    with pytest.raises(ValueError):
        one.agree(b"k" * 32, bytes(32))  # a point that everybody would agree on
    with pytest.raises(WrongKey):
        one.decrypt(bytes(32), bytes(12), sealed, b"for something else")
    with pytest.raises(WrongKey):
        one.decrypt(b"k" * 32, bytes(12), sealed, b"for")


def test_an_openssl_that_answers_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.OpenSsl, "agree", lambda *_: bytes(32))
    assert interpreters() is None


def test_an_interpreter_without_openssl_uses_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(_: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(module, "CDLL", no_library)
    primitives.cache_clear()
    try:
        assert isinstance(primitives(), Packaged)
    finally:
        primitives.cache_clear()
