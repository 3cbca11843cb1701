"""Who asks: credentials of a request turned into a user.

Deny by default: a request without known credentials is refused unless its path is open to all (health, version).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.apiserver.context import User
from shoal.apiserver.http import Request
from shoal.base.ids import token_digest
from shoal.errors import Unauthorized

AUTHENTICATED = "system:authenticated"
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_CACHE_LIMIT = 10_000


class Authenticator:
    """Turns credentials into users. Accepted headers are remembered, so that a request costs one look-up."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self.account_of: Callable[[str], User | None] | None = None  # knows the tokens of service accounts
        self._by_digest = dict(tokens)
        self._accepted: dict[bytes, User] = {}

    def user_of(self, request: Request) -> User:
        header = request.headers.get(b"authorization")
        if header is not None:
            known = self._accepted.get(header)
            return known if known is not None else self._check(header)
        if request.path in OPEN_PATHS:
            return ANONYMOUS
        raise Unauthorized("Unauthorized")

    def _check(self, header: bytes) -> User:
        scheme, _, token = header.partition(b" ")
        user = None
        if scheme.lower() == b"bearer":
            text = token.strip().decode("latin-1")
            user = self._by_digest.get(token_digest(text))
            if user is None and self.account_of is not None and text.count(".") == 2:
                account = self.account_of(text)
                if account is not None:
                    return account  # not remembered here: it lives no longer than its account
        if user is None:
            raise Unauthorized("Unauthorized")
        if len(self._accepted) < _CACHE_LIMIT:
            self._accepted[header] = user
        return user
