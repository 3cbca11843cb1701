"""The interpreter's OpenSSL and the cryptography package give the same answers, also to what is wrong."""

from __future__ import annotations

from collections.abc import Callable

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


BOTH = pytest.mark.parametrize("one", [OURS, Packaged()], ids=["openssl", "cryptography"])


@BOTH
@pytest.mark.parametrize(
    ("private", "public", "agreed"),
    [  # RFC 7748, sections 5.2 and 6.1
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        (
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    ],
)
def test_agreement_gives_the_answers_of_the_rfc(one: Primitives, private: str, public: str, agreed: str) -> None:
    assert one.agree(bytes.fromhex(private), bytes.fromhex(public)).hex() == agreed


@BOTH
def test_a_public_key_is_that_of_the_rfc(one: Primitives) -> None:
    private = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert one.public(private).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


@BOTH
@pytest.mark.parametrize(
    ("key", "nonce", "purpose", "sealed", "plain"),
    [  # the specification of GCM, test cases 13, 14 and 16
        ("00" * 32, "00" * 12, "", "530f8afbc74536b9a963b4f1c4cb738b", ""),
        (
            "00" * 32, "00" * 12, "",
            "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919",
            "00" * 16,
        ),
        (
            "feffe9928665731c6d6a8f9467308308" * 2, "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
            "c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
            "b16aedf5aa0de657ba637b39",
        ),
    ],
)  # fmt: skip
def test_the_cipher_gives_the_answers_of_its_specification(
    one: Primitives, key: str, nonce: str, purpose: str, sealed: str, plain: str
) -> None:
    found = one.decrypt(*(bytes.fromhex(each) for each in (key, nonce, sealed, purpose)))
    assert found.hex() == plain


@BOTH
@pytest.mark.parametrize("length", [0, 1, 8, 15, 16, 24, 31, 33, 64])
def test_a_key_of_another_length_is_refused(one: Primitives, length: int) -> None:
    wrong, right = b"k" * length, b"k" * 32
    sealed = AESGCM(bytes(32)).encrypt(bytes(12), b"x", b"")
    for attempt in (
        lambda: one.public(wrong),
        lambda: one.agree(wrong, right),
        lambda: one.agree(right, wrong),
        lambda: one.decrypt(wrong, bytes(12), sealed, b""),
    ):
        with pytest.raises(ValueError):
            attempt()


@BOTH
@pytest.mark.parametrize("length", [0, 1, 8, 11, 13, 16, 128])
def test_a_nonce_of_another_length_is_refused(one: Primitives, length: int) -> None:
    sealed = AESGCM(bytes(32)).encrypt(bytes(max(8, length)), b"x", b"")
    with pytest.raises(ValueError, match="nonce of 12"):
        one.decrypt(bytes(32), bytes(length), sealed, b"")


@BOTH
@pytest.mark.parametrize("length", range(16))
def test_a_text_shorter_than_its_tag_is_refused(one: Primitives, length: int) -> None:
    with pytest.raises(ValueError, match="at least 16"):
        one.decrypt(bytes(32), bytes(12), bytes(length), b"")


def outcome(attempt: Callable[[], bytes]) -> bytes | type[Exception]:
    try:
        return attempt()
    except ValueError as error:
        return type(error)


@settings(max_examples=200, deadline=None)
@given(
    private=st.binary(max_size=40) | KEYS, public=st.binary(max_size=40) | KEYS,
    nonce=st.binary(max_size=14) | st.just(bytes(12)), text=st.binary(max_size=80), purpose=st.binary(max_size=20),
)  # fmt: skip
def test_whatever_they_are_given_both_do_the_same(
    private: bytes, public: bytes, nonce: bytes, text: bytes, purpose: bytes
) -> None:
    ours, theirs = made(), Packaged()
    assert outcome(lambda: ours.public(private)) == outcome(lambda: theirs.public(private))
    assert outcome(lambda: ours.agree(private, public)) == outcome(lambda: theirs.agree(private, public))
    opened = [outcome(lambda one=one: one.decrypt(private, nonce, text, purpose)) for one in (ours, theirs)]
    assert opened[0] == opened[1]


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
