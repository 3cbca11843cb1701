"""Grants: what one process of a fleet lets a user ask another one, signed with a key that both know. Pure.

The control plane signs them for the navigator, which knows tokens of its own and not those of the fleet's users. A
grant says who asks, what may be read (``shoal.base.access``) and whether something may be changed. It works for a
minute, from a little before to a little after, since the clocks of two machines differ.

    shoal_grant_ base64url(JSON) . base64url(HMAC-SHA256)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass

from shoal.base.access import Access
from shoal.errors import ConfigError

_PREFIX = "shoal_grant_"
LIFETIME_S = 60.0
_APART_S = 30.0  # how far two clocks may be apart
_LONGEST = 8192  # characters
_LEAST_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    user: str  # for logs
    access: Access
    may_write: bool = False


def grant_key(secret: bytes) -> bytes:
    """The key for grants that follows from a secret of the fleet."""
    return hmac.digest(secret, b"shoal: grants for the navigator, 1", hashlib.sha256)


def key_from_text(text: str) -> bytes:
    """A key as files have it, in hexadecimal."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) < _LEAST_KEY_BYTES:
        raise ConfigError(f"not a key of at least {_LEAST_KEY_BYTES} bytes in hexadecimal")
    return key


def is_grant(text: str) -> bool:
    """Whether a bearer's token is meant to be a grant."""
    return text.startswith(_PREFIX)


def sign(key: bytes, grant: Grant, now_s: float) -> str:
    told = {"user": grant.user, "scopes": list(grant.access.texts), "write": grant.may_write, "at": round(now_s, 3)}
    body = _encoded(json.dumps(told, separators=(",", ":")).encode())
    return f"{_PREFIX}{body}.{_encoded(_signature(key, body))}"


def read(key: bytes, text: str, now_s: float, *, however_old: bool = False) -> Grant | None:
    """The grant in a text; None when it is not signed with this key, or not of this minute. ``however_old``: for what
    began while it worked, such as a stream that is held open by whoever signed it."""
    if not is_grant(text) or len(text) > _LONGEST:
        return None
    body, dot, signature = text.removeprefix(_PREFIX).partition(".")
    given = _decoded(signature)
    if not dot or given is None or not hmac.compare_digest(given, _signature(key, body)):
        return None
    told = json.loads(_decoded(body) or b"{}")
    age_s = now_s - float(told["at"])
    if age_s < -_APART_S or (age_s > LIFETIME_S + _APART_S and not however_old):
        return None
    return Grant(user=str(told["user"]), access=Access.parse(told["scopes"]), may_write=bool(told["write"]))


def _signature(key: bytes, body: str) -> bytes:
    return hmac.digest(key, body.encode(), hashlib.sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
