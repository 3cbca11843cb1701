"""Sealed values: how the control plane keeps them, and how the one agent that needs them opens them.

    values    with the data key                  1 │ nonce (12) │ AES-256-GCM of a JSON object
    data key  with a master key                  1 │ nonce (12) │ AES-256-GCM of 32 bytes
    data key  for the holder of a private key    1 │ ephemeral X25519 public key (32) │ AES-256-GCM of 32 bytes

A data key seals one set of values and is never used again. The purpose of each piece is authenticated with it, so
that none can be used as another; the key for an agent is derived from both public keys as well. The first byte
says which of these forms it is: a new form gets a new number, and old ones stay readable.

Failures raise ``CannotOpen``; its text gives the reason and never the content.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from os import urandom

import orjson

from shoal.base.ids import RandomBytes
from shoal.errors import ShoalError
from shoal.sync.primitives import WrongKey, primitives

KEY_BYTES = 32
PUBLIC_KEY_BYTES = 32

_VERSION = 1
_NONCE_BYTES = 12
_TAG_BYTES = 16
_VALUES = b"shoal values\0"
_DATA_KEY = b"shoal data key\0"
_FOR_AGENT = b"shoal data key for an agent\0"


class CannotOpen(ShoalError):
    """Sealed data cannot be opened: wrong key, changed data, or unknown format."""


def new_key(random_bytes: RandomBytes = urandom) -> bytes:
    """A data key or a master key."""
    return random_bytes(KEY_BYTES)


def seal_values(values: Mapping[str, str], data_key: bytes, *, random_bytes: RandomBytes = urandom) -> bytes:
    return _locked(data_key, orjson.dumps(dict(values), option=orjson.OPT_SORT_KEYS), _VALUES, random_bytes)


def open_values(ciphertext: bytes, data_key: bytes) -> dict[str, str]:
    values = _parsed(_unlocked(data_key, ciphertext, _VALUES, "the values"))
    if values is None:
        raise CannotOpen("the values were decrypted, but are not a set of variables")
    return values


def wrap_key(data_key: bytes, master_key: bytes, context: str, *, random_bytes: RandomBytes = urandom) -> bytes:
    """``context`` must be the same when it is unwrapped: the id of the master key."""
    return _locked(master_key, data_key, _DATA_KEY + context.encode(), random_bytes)


def unwrap_key(wrapped: bytes, master_key: bytes, context: str) -> bytes:
    return _sized(_unlocked(master_key, wrapped, _DATA_KEY + context.encode(), "the data key"))


def wrap_for(data_key: bytes, public_key: bytes, *, random_bytes: RandomBytes = urandom) -> bytes:
    """Wrap the data key for the holder of the private key. Raises ``ValueError`` for an invalid public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    recipient = X25519PublicKey.from_public_bytes(public_key)
    ephemeral = X25519PrivateKey.from_private_bytes(random_bytes(KEY_BYTES))
    announced = ephemeral.public_key().public_bytes_raw()
    key, nonce = _agreed(ephemeral.exchange(recipient), announced, public_key)
    return bytes((_VERSION,)) + announced + AESGCM(key).encrypt(nonce, data_key, _FOR_AGENT)


def unwrap_with(wrapped: bytes, private_key: bytes) -> bytes:
    """The data key that was wrapped for the public half of ``private_key``."""
    body = _body(wrapped, PUBLIC_KEY_BYTES, "the wrapped key")
    announced, text = body[:PUBLIC_KEY_BYTES], body[PUBLIC_KEY_BYTES:]
    known = primitives()
    try:
        key, nonce = _agreed(known.agree(private_key, announced), announced, known.public(private_key))
        data_key = known.decrypt(key, nonce, text, _FOR_AGENT)
    except ValueError:  # also an invalid public key
        raise CannotOpen("the wrapped key is for another agent, or was changed in transit") from None
    return _sized(data_key)


def open_sealed(wrapped_key: bytes, ciphertext: bytes, private_key: bytes) -> dict[str, str]:
    """The values of a ``SealedSecret``, for the agent whose key it was wrapped for."""
    if not wrapped_key:
        raise CannotOpen("the values come without a key: the control plane had no public key of this agent")
    return open_values(ciphertext, unwrap_with(wrapped_key, private_key))


def _locked(key: bytes, plain: bytes, purpose: bytes, random_bytes: RandomBytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random_bytes(_NONCE_BYTES)
    return bytes((_VERSION,)) + nonce + AESGCM(key).encrypt(nonce, plain, purpose)


def _unlocked(key: bytes, sealed: bytes, purpose: bytes, what: str) -> bytes:
    body = _body(sealed, _NONCE_BYTES, what)
    try:
        return primitives().decrypt(key, body[:_NONCE_BYTES], body[_NONCE_BYTES:], purpose)
    except WrongKey:
        raise CannotOpen(f"{what} cannot be opened: the key is wrong, or the data was changed") from None


def _body(sealed: bytes, head_bytes: int, what: str) -> bytes:
    if len(sealed) < 1 + head_bytes + _TAG_BYTES:
        raise CannotOpen(f"{what} cannot be opened: {len(sealed)} bytes are too short")
    if sealed[0] != _VERSION:
        raise CannotOpen(f"{what} cannot be opened: unknown format {sealed[0]}; a newer version may support it")
    return sealed[1:]


def _agreed(shared: bytes, announced: bytes, recipient: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of one wrapping. The nonce need not be random: the key is used once."""
    derived = _hkdf(shared, _FOR_AGENT + bytes((_VERSION,)) + announced + recipient, KEY_BYTES + _NONCE_BYTES)
    return derived[:KEY_BYTES], derived[KEY_BYTES:]


def _hkdf(secret: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 with SHA-256 and no salt."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    made, block = b"", b""
    while len(made) < length:
        block = hmac.digest(extracted, block + info + bytes((len(made) // 32 + 1,)), "sha256")
        made += block
    return made[:length]


def _sized(data_key: bytes) -> bytes:
    if len(data_key) != KEY_BYTES:
        raise CannotOpen(f"invalid data key: got {len(data_key)} bytes, expected {KEY_BYTES}")
    return data_key


def _parsed(plain: bytes) -> dict[str, str] | None:
    """None instead of an error: the parser's error contains the whole text."""
    try:
        values = orjson.loads(plain)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        return None
    return values
