"""X25519 and AES-256-GCM decryption with the interpreter's own OpenSSL.

A library of its own for these two would be a sixth of an agent's memory. ``hashlib`` is linked to OpenSSL, and through
it the same functions are called here. Where the interpreter has none that can be called, or one that does not give the
right answers (restricted builds leave curves out), the ``cryptography`` package does it.
"""

from __future__ import annotations

from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import cache
from typing import Any, Protocol

KEY_BYTES = 32
_TAG_BYTES = 16
_NONCE_BYTES = 12
_X25519 = 1034  # EVP_PKEY_X25519
_SET_TAG = 0x11  # EVP_CTRL_AEAD_SET_TAG


class WrongKey(ValueError):
    """The key is wrong, or the data was changed."""


class Primitives(Protocol):
    """``ValueError`` for an invalid key; ``WrongKey`` when decryption fails."""

    def public(self, private: bytes) -> bytes: ...

    def agree(self, private: bytes, public: bytes) -> bytes:
        """The shared secret of a private key and the other side's public key."""

    def decrypt(self, key: bytes, nonce: bytes, text: bytes, purpose: bytes) -> bytes: ...


@cache
def primitives() -> Primitives:
    """The interpreter's, else those of ``cryptography``."""
    return interpreters() or Packaged()


def interpreters() -> Primitives | None:
    """None when the interpreter's OpenSSL cannot be called or gives wrong results."""
    try:
        import _hashlib

        made = OpenSsl(CDLL(_hashlib.__file__))
        return made if _is_right(made) else None
    except (ImportError, AttributeError, OSError, ValueError):
        return None


class OpenSsl:
    """Calls of libcrypto's EVP interface, the same in all versions since 1.1.1."""

    def __init__(self, library: CDLL) -> None:
        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        handle, out_length = c_void_p, POINTER(c_size_t)
        self._private_key = function("EVP_PKEY_new_raw_private_key", handle, c_int, handle, c_char_p, c_size_t)
        self._public_key = function("EVP_PKEY_new_raw_public_key", handle, c_int, handle, c_char_p, c_size_t)
        self._raw_public = function("EVP_PKEY_get_raw_public_key", c_int, handle, c_char_p, out_length)
        self._free_key = function("EVP_PKEY_free", None, handle)
        self._agreement = function("EVP_PKEY_CTX_new", handle, handle, handle)
        self._free_agreement = function("EVP_PKEY_CTX_free", None, handle)
        self._derive_init = function("EVP_PKEY_derive_init", c_int, handle)
        self._derive_peer = function("EVP_PKEY_derive_set_peer", c_int, handle, handle)
        self._derive = function("EVP_PKEY_derive", c_int, handle, c_char_p, out_length)
        self._cipher = function("EVP_aes_256_gcm", handle)
        self._state = function("EVP_CIPHER_CTX_new", handle)
        self._free_state = function("EVP_CIPHER_CTX_free", None, handle)
        self._control = function("EVP_CIPHER_CTX_ctrl", c_int, handle, c_int, c_int, c_char_p)
        self._begin = function("EVP_DecryptInit_ex", c_int, handle, handle, handle, c_char_p, c_char_p)
        self._update = function("EVP_DecryptUpdate", c_int, handle, c_char_p, POINTER(c_int), c_char_p, c_int)
        self._finish = function("EVP_DecryptFinal_ex", c_int, handle, c_char_p, POINTER(c_int))
        self._forget_errors = function("ERR_clear_error", None)

    def public(self, private: bytes) -> bytes:
        made = self._key(self._private_key, private)
        try:
            found, length = create_string_buffer(KEY_BYTES), c_size_t(KEY_BYTES)
            self._must(self._raw_public(made, found, byref(length)) == 1 and length.value == KEY_BYTES)
            return found.raw
        finally:
            self._free_key(made)

    def agree(self, private: bytes, public: bytes) -> bytes:
        own = self._key(self._private_key, private)
        other = agreement = None
        try:
            other = self._key(self._public_key, public)
            agreement = self._agreement(own, None)
            found, length = create_string_buffer(KEY_BYTES), c_size_t(KEY_BYTES)
            self._must(
                agreement is not None
                and self._derive_init(agreement) == 1
                and self._derive_peer(agreement, other) == 1
                and self._derive(agreement, found, byref(length)) == 1
                and length.value == KEY_BYTES
            )
            return found.raw
        finally:
            self._free_agreement(agreement)
            self._free_key(other)
            self._free_key(own)

    def decrypt(self, key: bytes, nonce: bytes, text: bytes, purpose: bytes) -> bytes:
        _check_lengths(key, nonce, text)
        sealed, tag = text[:-_TAG_BYTES], text[-_TAG_BYTES:]
        plain, length, rest = create_string_buffer(len(sealed) + 1), c_int(0), c_int(0)
        state = self._state()
        try:
            self._must(
                state is not None
                and self._begin(state, self._cipher(), None, key, nonce) == 1
                and self._update(state, None, byref(rest), purpose, len(purpose)) == 1
                and self._update(state, plain, byref(length), sealed, len(sealed)) == 1
                and self._control(state, _SET_TAG, _TAG_BYTES, tag) == 1
            )
            if self._finish(state, None, byref(rest)) != 1:
                self._forget_errors()
                raise WrongKey("the key is wrong, or the data was changed")
            return plain.raw[: length.value]
        finally:
            self._free_state(state)

    def _key(self, make: Any, content: bytes) -> Any:
        made = make(_X25519, None, content, len(content)) if len(content) == KEY_BYTES else None
        self._must(made is not None)
        return made

    def _must(self, went_well: bool) -> None:
        if not went_well:
            self._forget_errors()
            raise ValueError("invalid key: expected 32 bytes that are an X25519 point or scalar")


class Packaged:
    """The same from ``cryptography``, loaded at the first use."""

    def public(self, private: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()

    def agree(self, private: bytes, public: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))

    def decrypt(self, key: bytes, nonce: bytes, text: bytes, purpose: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        _check_lengths(key, nonce, text)  # AESGCM would also take shorter keys and other nonces
        try:
            return AESGCM(key).decrypt(nonce, text, purpose)
        except InvalidTag:
            raise WrongKey("the key is wrong, or the data was changed") from None


def _check_lengths(key: bytes, nonce: bytes, text: bytes) -> None:
    if len(key) != KEY_BYTES or len(nonce) != _NONCE_BYTES or len(text) < _TAG_BYTES:
        raise ValueError(
            f"expected a key of 32 bytes, a nonce of 12 and a text of at least 16; got {len(key)}, {len(nonce)} and "
            f"{len(text)}"
        )


# Known answers of a correct implementation
_ONE, _OTHER = bytes(range(KEY_BYTES)), bytes(range(KEY_BYTES, 2 * KEY_BYTES))
_PUBLIC = bytes.fromhex("358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254")
_AGREED = bytes.fromhex("9663aa1da97e848a914a436d04163dfbb89178f107f1b5b77ed3854203382854")
_SEALED = bytes.fromhex("7dd4dabfd9cfca26927c81822f5fabac5c1a55f39d")


def _is_right(made: Primitives) -> bool:
    return (
        made.public(_OTHER) == _PUBLIC
        and made.agree(_ONE, _PUBLIC) == _AGREED
        and made.decrypt(_ONE, bytes(12), _SEALED, b"for") == b"shoal"
    )
