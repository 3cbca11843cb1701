"""Tokens of edges, each bound to one cluster, and of viewers and administrators. Only digests are stored.

Tokens are checked in memory, which is read again several times a second: a token that any process has created, rotated
or revoked takes effect within a second. ``changed`` is called after each read, so that streams of revoked tokens end.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

from shoal.base.access import NOTHING, Access
from shoal.base.clock import Clock
from shoal.base.ids import new_token, token_digest
from shoal.base.logs import get_logger
from shoal.errors import Conflict, NotFound, ServiceUnavailable
from shoal.navigator.manager.rows import Rows, StoredToken

EDGE = "edge"
VIEWER = "viewer"
ADMIN = "admin"  # a viewer that may also save checks
KINDS = (EDGE, VIEWER, ADMIN)
ROTATION_GRACE_S = 3600.0

_LONGEST = 256  # characters; a longer text cannot be a valid token and is not hashed
_REREAD_S = 0.05  # guessed tokens do not load the database
_TRUSTED_S = 5.0  # tokens in memory are used for so long without the database, so that it can restart

_log = get_logger("navigator.tokens")


class NavigatorTokens:
    def __init__(self, rows: Rows, *, clock: Clock, new_id: Callable[[], str]) -> None:
        self._rows = rows
        self._clock = clock
        self._new_id = new_id
        self._tokens: dict[str, StoredToken] = {}  # by id
        self._by_digest: dict[str, StoredToken] = {}
        self._read_s = float("-inf")
        self.changed: Callable[[], None] = lambda: None

    # checks

    def find(self, text: str) -> StoredToken | None:
        """The token with this text, if it is valid according to memory."""
        if not text or len(text) > _LONGEST:
            return None
        digest = token_digest(text)
        token = self._by_digest.get(digest)
        if token is None or not self.works(token.id):
            return None
        if hmac.compare_digest(token.digest, digest):
            return token
        return token if self._now_ms() < token.previous_until_ms else None

    async def authenticate(self, text: str) -> StoredToken | None:
        """Like ``find``, but reads the database if the token is unknown or memory is too old. ``ServiceUnavailable``
        when the database cannot be read."""
        age_s = self._clock.monotonic() - self._read_s
        token = self.find(text)
        if age_s > _TRUSTED_S or (token is None and age_s > _REREAD_S):
            await self.refresh()
            token = self.find(text)
        return token

    def works(self, token_id: str) -> bool:
        token = self._tokens.get(token_id)
        return token is not None and _is_usable(token, self._now_ms())

    async def refresh(self) -> None:
        """Read all tokens; there are a few per cluster."""
        begun_s = self._clock.monotonic()
        tokens = {token.id: token for token in await self._rows.tokens()}
        self._read_s = begun_s
        if tokens == self._tokens:
            return
        self._tokens = tokens
        self._by_digest = {token.previous_digest: token for token in tokens.values() if token.previous_digest}
        self._by_digest |= {token.digest: token for token in tokens.values()}

    async def refresh_every(self, every_s: float) -> None:
        """Refresh periodically, until cancelled."""
        while True:
            try:
                await self.refresh()
                self.changed()
            except ServiceUnavailable as error:
                _log.warning("tokens cannot be read", reason=str(error))
            await self._clock.sleep(every_s)

    # changes

    async def create(
        self, *, kind: str, cluster: str = "", ttl_s: float = 0.0, access: Access = NOTHING
    ) -> tuple[str, StoredToken]:  # fmt: skip
        """Return the text, which is not stored, and the stored token. ``ttl_s`` 0: it does not expire. ``access`` is
        what a viewer or an administrator may read."""
        text, now_ms = f"shoal_{kind}_{new_token()}", self._now_ms()
        token = StoredToken(
            id=self._new_id(), kind=kind, cluster=cluster, digest=token_digest(text), created_ms=now_ms,
            expires_ms=now_ms + round(ttl_s * 1000) if ttl_s else 0, scopes=access.texts,
        )  # fmt: skip
        await self._save(token)
        return text, token

    async def rotate(self, token_id: str, *, grace_s: float = ROTATION_GRACE_S) -> tuple[str, StoredToken]:
        """A new text for the same token; the one before it works for ``grace_s`` longer, older ones not at all."""
        token, now_ms = await self._stored(token_id), self._now_ms()
        if not _is_usable(token, now_ms):
            raise Conflict.of("tokens", "", token_id, "the token was revoked or has expired; create a new one")
        text = f"shoal_{token.kind}_{new_token()}"
        until_ms = now_ms + round(grace_s * 1000)
        rotated = replace(
            token, digest=token_digest(text), previous_digest=token.digest,
            previous_until_ms=min(until_ms, token.expires_ms) if token.expires_ms else until_ms,
            expires_ms=now_ms + token.expires_ms - token.created_ms if token.expires_ms else 0,
            created_ms=now_ms,
        )  # fmt: skip
        await self._save(rotated)
        return text, rotated

    async def revoke(self, token_id: str) -> StoredToken:
        """Revoke a token; it stops working everywhere within a second. Idempotent."""
        token = await self._stored(token_id)
        if not token.revoked_ms:
            token = replace(token, revoked_ms=self._now_ms())
            await self._save(token)
        return token

    async def list_(self) -> list[StoredToken]:
        """All tokens, also expired and revoked ones."""
        return sorted(await self._rows.tokens(), key=lambda token: (token.kind, token.cluster, token.created_ms))

    async def _stored(self, token_id: str) -> StoredToken:
        for token in await self._rows.tokens():
            if token.id == token_id:
                return token
        raise NotFound.of("tokens", "", token_id)

    async def _save(self, token: StoredToken) -> None:
        await self._rows.save_token(token)
        await self.refresh()
        self.changed()

    def _now_ms(self) -> int:
        return round(self._clock.wall_s() * 1000)


def _is_usable(token: StoredToken, now_ms: int) -> bool:
    return not token.revoked_ms and (not token.expires_ms or now_ms < token.expires_ms)
