"""An accepted credential: the user, the expiry, and the objects that it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from shoal.apiserver.user import User
from shoal.store import Entry, Key

Claims = dict[str, Any]
AUTHENTICATED = "system:authenticated"
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


class Rejected(Exception):
    """A credential is invalid. The text says why, and never contains the credential."""


class Unseen(Rejected):
    """A credential is correctly signed, but objects it depends on are unknown here. Another server may know them."""


class Credential:
    """An accepted credential. It holds as long as ``not_after`` lies ahead and every entry of ``rests_on`` is still
    the stored one; after a change of an entry it must be checked again."""

    __slots__ = ("audiences", "claims", "not_after", "rests_on", "user")

    def __init__(
        self,
        user: User,
        not_after: float = inf,
        *,
        rests_on: Sequence[tuple[Key, Entry]] = (),
        claims: Claims | None = None,
        audiences: Sequence[str] = (),
    ) -> None:
        self.user = user
        self.not_after = not_after  # wall time in seconds
        self.rests_on = rests_on
        self.claims = claims  # of a token whose signature was checked; None for others
        self.audiences = audiences  # that were asked for and are the token's
