"""Who asks, and may they: bearer tokens by hash or, for service accounts, by signature; and one rule so far: the
administrators' group may do everything.

Deny by default: a request without a known token is refused unless its path is open to all (health, version).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.apiserver.context import User
from shoal.apiserver.http import Request
from shoal.base.ids import token_digest
from shoal.errors import Forbidden, Unauthorized, qualified

MASTERS = "system:masters"
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


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for, in the terms of authorization."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""  # for requests that are not about resources


class Authorizer:
    """Allows what a user may do, and words the refusal as Kubernetes does."""

    def allows_all(self, user: User) -> bool:
        """Whether there is nothing to ask: the administrators."""
        return MASTERS in user.groups

    def allows(self, user: User, attributes: Attributes) -> bool:
        return self.allows_all(user)

    def check(self, user: User, attributes: Attributes) -> None:
        if not self.allows(user, attributes):
            raise Forbidden(refusal(user, attributes), details=_details(attributes))


def refusal(user: User, asked: Attributes) -> str:
    if asked.path:
        return f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    subject = qualified(asked.resource, asked.group) + (f' "{asked.name}"' if asked.name else "")
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return (
        f'{subject} is forbidden: User "{user.name}" cannot {asked.verb} resource "{resource}" '
        f'in API group "{asked.group}" {where}'
    )


def _details(asked: Attributes) -> dict[str, str]:
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return {name: value for name, value in details.items() if value}
