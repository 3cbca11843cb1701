"""Authentication: turns the credentials of a request into a user.

Client certificates come first, then bearer tokens: static ones by their digest, then those of service accounts. Deny by
default: a request without known credentials is refused unless its path is open to all (health, version) or anonymous
requests are let through to authorization. Headers of a front proxy (X-Remote-User and the like) are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.apiserver.authn.accounts import AccountReader
from shoal.apiserver.authn.certificates import ClientCertificates
from shoal.apiserver.authn.credential import ANONYMOUS, AUTHENTICATED, Credential, Rejected, Unseen
from shoal.apiserver.context import Core
from shoal.apiserver.http import Request
from shoal.apiserver.user import User
from shoal.base.ids import token_digest
from shoal.errors import Unauthorized

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_CACHE_LIMIT = 10_000
_LONGEST_KEPT = 4096  # bytes of a header that is remembered: padded ones must not fill the memory
_INVALID = "invalid bearer token"


class UnseenCredential(Unauthorized):
    """Rejected with this server's current data; may be valid once it has caught up with other servers."""


class Authenticator:
    """Turns credentials into users. Accepted headers are remembered: a request costs a look-up, a comparison with the
    clock, and for a service account one look-up for each object its token depends on."""

    def __init__(
        self, core: Core, tokens: Mapping[str, User | Credential], accounts: AccountReader | None = None
    ) -> None:
        self.core = core
        self.accounts = accounts  # knows the tokens of service accounts
        self._certificates = ClientCertificates(core.clock)
        self._by_digest: dict[str, Credential] = {}
        self._accepted: dict[bytes, Credential] = {}
        self.replace_tokens(tokens)

    def replace_tokens(self, tokens: Mapping[str, User | Credential]) -> None:
        """Replace the static tokens; keys are digests."""
        self._by_digest = {
            digest: held if isinstance(held, Credential) else Credential(held) for digest, held in tokens.items()
        }
        self.forget()

    def forget(self) -> None:
        """Clear the cache of accepted credentials."""
        self._accepted.clear()

    def user_of(self, request: Request) -> User:
        if request.user is not None:
            return request.user
        if request.peer_certificate is not None:
            user = self._certificates.user_of(request.peer_certificate)
            if user is not None:
                return user
        header = request.headers.get(b"authorization")
        if header is not None:
            known = self._accepted.get(header)
            if known is not None and self._holds(known):
                return known.user
            return self._check(header, known)
        if self.core.config.anonymous or request.path in OPEN_PATHS:
            return ANONYMOUS
        raise Unauthorized("Unauthorized")

    async def user_after_all(self, request: Request) -> User:
        """As ``user_of``, after this server has caught up with the writes of all other servers."""
        await self.core.store.fresh()
        return self.user_of(request)

    def review(self, token: str, audiences: Sequence[str] = ()) -> Credential:
        """Verify a token for a TokenReview; Rejected when it is not valid for the audiences."""
        asked = tuple(audiences) or self.core.config.audiences
        static = self._static(token)
        if static is not None:
            shared = tuple(audience for audience in self.core.config.audiences if audience in asked)
            if shared:
                return Credential(static.user, static.not_after, audiences=shared)
        elif self.accounts is not None and token.count(".") == 2:
            try:
                return self.accounts.accept(self.accounts.claims_of(token), token, asked)
            except Rejected as why:
                raise Rejected(f"[{_INVALID}, {why}]") from None
        raise Rejected(_INVALID)

    def _holds(self, credential: Credential) -> bool:
        if self.core.clock.wall_s() >= credential.not_after:
            return False
        get = self.core.store.get
        for key, entry in credential.rests_on:
            if get(key) is not entry:
                return False
        return True

    def _check(self, header: bytes, known: Credential | None) -> User:
        scheme, _, given = header.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthorized("Unauthorized")
        token = given.strip().decode("latin-1")
        credential = self._static(token)
        if credential is None and self.accounts is not None and token.count(".") == 2:
            claims = known.claims if known is not None else None  # the signature was already checked
            try:
                credential = self.accounts.accept(
                    claims or self.accounts.claims_of(token), token, self.core.config.audiences
                )
            except Unseen:
                self._accepted.pop(header, None)
                raise UnseenCredential("Unauthorized") from None
            except Rejected:
                self._accepted.pop(header, None)
        if credential is None:
            raise Unauthorized("Unauthorized")
        if len(header) <= _LONGEST_KEPT:
            if len(self._accepted) >= _CACHE_LIMIT:
                self._accepted.clear()
            self._accepted[header] = credential
        return credential.user

    def _static(self, token: str) -> Credential | None:
        held = self._by_digest.get(token_digest(token))
        return held if held is not None and self.core.clock.wall_s() < held.not_after else None


__all__ = ["ANONYMOUS", "AUTHENTICATED", "OPEN_PATHS", "Authenticator", "UnseenCredential"]
