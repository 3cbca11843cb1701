"""Sessions: browsers that speak for the owner of a token without having the token.

A session stands for a token: it has the rights of that, and ends when that is revoked or expires. It begins with the
token itself, or with a code of 256 bits that somebody with the token asked for, that works once and for two minutes.
It ends when people log out, when it is not used for ``idle_s``, and after ``longest_s`` in any case. What is stored is
the digest of its text, as with tokens. What was checked is believed for less than a second, so all of this holds
within a second in every control plane on the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, or_, select, update

from shoal.base.clock import Clock
from shoal.base.ids import new_token, token_digest
from shoal.control.database.engine import Databases
from shoal.control.database.session_tables import LoginCode, Session
from shoal.control.database.tables import Token
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.database.transaction import Tx
from shoal.errors import ConfigError, NotFound, Unauthorized

CODE_S = 120.0
PREFIX = "shoal_session_"

_BELIEVED_S = 0.9
_MOST_BELIEVED = 20_000
_LONGEST_TEXT = 256  # characters; a longer text is never one of ours and is not hashed
_ID_LETTERS = 20
_CODES_KEPT_MS = 3_600_000  # after their end, to say why they do not work


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    idle_s: float = 12 * 3600.0
    longest_s: float = 7 * 86400.0

    def __post_init__(self) -> None:
        if not 0 < self.idle_s <= self.longest_s:
            raise ConfigError(f"idle_s is {self.idle_s}: use more than 0, and longest_s ({self.longest_s}) at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A session that works. ``text`` is known only when it begins."""

    id: str
    principal: Principal
    created_at: int
    used_at: int
    expires_at: int  # unless it is used before
    ends_at: int  # in any case
    text: str = ""


class Sessions:
    """Used from one event loop."""

    def __init__(
        self,
        databases: Databases,
        tokens: ApiTokens,
        clock: Clock,
        limits: SessionLimits = SessionLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._database = databases.fleet
        self._tokens = tokens
        self._clock = clock
        self._idle_ms, self._longest_ms = round(limits.idle_s * 1000), round(limits.longest_s * 1000)
        self._believed: dict[str, tuple[OpenSession, float]] = {}  # by digest, until a monotonic moment
        self._used: dict[str, int] = {}

    async def new_code(self, principal: Principal) -> tuple[str, int]:
        """A code that begins one session for the owner of this token, and when it stops working."""
        text = new_token()
        async with self._database.transaction(actor=principal.name) as tx:
            expires_at = tx.now + round(CODE_S * 1000)
            tx.session.add(
                LoginCode(
                    digest=token_digest(text), workspace_id=principal.workspace_id, token_id=principal.token_id,
                    created_at=tx.now, expires_at=expires_at, used_at=0,
                )
            )  # fmt: skip
        return text, expires_at

    async def begin_with_code(self, code: str) -> OpenSession:
        """``Unauthorized`` says why a code does not work."""
        digest = _digest(code)
        if not digest:
            raise _refused("code", _UNKNOWN_CODE)
        async with self._database.transaction() as tx:
            # The one statement that takes it: of two who use it at once, one finds it used.
            taken = await tx.session.execute(
                update(LoginCode)
                .where(LoginCode.digest == digest, LoginCode.used_at == 0, LoginCode.expires_at > tx.now)
                .values(used_at=tx.now)
                .returning(LoginCode.token_id)
                .execution_options(synchronize_session=False)
            )
            token_id = taken.scalar_one_or_none()
            if token_id is None:
                raise _refused("code", _why_not(await tx.session.get(LoginCode, digest)))
            row = await tx.session.get(Token, token_id)
            principal = self._tokens.principal_of(row) if row is not None else None
            if principal is None:
                raise _refused("code", "the token that asked for this code was revoked or has expired: use another")
            return await self._begin(tx, principal)

    async def begin_with_token(self, text: str) -> OpenSession:
        """``Unauthorized`` says why a token does not work."""
        principal = await self._tokens.authenticate(text.strip())
        if principal is None:
            raise _refused("token", "the token is unknown, revoked or expired: ask an administrator for a new one")
        if principal.kind != "user":
            raise _refused("token", f"a token of kind {principal.kind} cannot log in: use a user's token")
        async with self._database.transaction(actor=principal.name) as tx:
            return await self._begin(tx, principal)

    async def authenticate(self, text: str) -> OpenSession | None:
        """The session with this text, if it works; ``ServiceUnavailable`` while the database is unavailable. Counts as
        use."""
        digest = _digest(text)
        if not digest or not text.startswith(PREFIX):
            return None
        asked_at = self._clock.monotonic()
        believed = self._believed.get(digest)
        if believed is None or believed[1] <= asked_at:
            self._believed.pop(digest, None)
            found = await self._ask(digest)
            if found is None:
                return None
            if len(self._believed) >= _MOST_BELIEVED:
                self._believed.clear()
            believed = self._believed[digest] = found, asked_at + _BELIEVED_S
        session, now = believed[0], self._database.time.now_ms()
        if now >= session.expires_at:
            return None
        self._used[session.id] = now
        self._tokens.note_use(session.principal.token_id)
        return replace(session, expires_at=min(now + self._idle_ms, session.ends_at))

    async def end(self, session_id: str, *, actor: str, workspace_id: str = "") -> None:
        """It stops working, everywhere within a second. With ``workspace_id`` only one of that workspace."""
        async with self._database.transaction(actor=actor) as tx:
            row = await tx.session.get(Session, session_id)
            if row is None or workspace_id not in ("", row.workspace_id):
                raise NotFound.of("sessions", "shoal.dev", session_id)
            if not row.ended_at:
                row.ended_at = tx.now
                await _audit(tx, "logout", row)
        self._believed = {
            digest: believed for digest, believed in self._believed.items() if believed[0].id != session_id
        }

    async def list_(self, workspace_id: str) -> Sequence[OpenSession]:
        """Those of a workspace that work, the newest first."""
        now = self._database.time.now_ms()
        asked = (
            select(Session, Token)
            .join(Token, Token.id == Session.token_id)
            .where(Session.workspace_id == workspace_id, Session.ended_at == 0, Session.expires_at > now)
            .order_by(Session.created_at.desc())
        )
        async with self._database.reading() as session:
            rows = (await session.execute(asked)).all()
        found = (self._open(row.Session, row.Token) for row in rows)
        return [each for each in found if each is not None]

    async def save_used(self) -> None:
        """Write down when sessions were last used, and forget what is over; to be called now and then."""
        used, self._used = self._used, {}
        if used:
            async with self._database.transaction(serial=False) as tx:
                for session_id, at in sorted(used.items()):
                    await tx.session.execute(
                        update(Session)
                        .where(Session.id == session_id, Session.used_at < at)
                        .values(used_at=at)
                        .execution_options(synchronize_session=False)
                    )

    async def forget_old(self) -> int:
        """Remove sessions and codes that are over; returns how many."""
        now = self._database.time.now_ms()
        old = (
            delete(LoginCode).where(LoginCode.expires_at < now - _CODES_KEPT_MS),
            delete(Session).where(
                or_(
                    Session.expires_at < now,
                    Session.used_at < now - self._idle_ms,
                    (Session.ended_at > 0) & (Session.ended_at < now - _CODES_KEPT_MS),
                )
            ),
        )
        async with self._database.transaction(serial=False) as tx:
            gone: list[Any] = [
                await tx.session.execute(each.execution_options(synchronize_session=False)) for each in old
            ]
        return sum(int(each.rowcount) for each in gone)

    async def _begin(self, tx: Tx, principal: Principal) -> OpenSession:
        text = f"{PREFIX}{new_token()}"
        row = Session(
            id=f"ses_{self._database.ids.new_suffix(_ID_LETTERS)}", workspace_id=principal.workspace_id,
            token_id=principal.token_id, digest=token_digest(text), created_at=tx.now, used_at=tx.now,
            expires_at=tx.now + self._longest_ms, ended_at=0,
        )  # fmt: skip
        tx.actor = principal.name
        tx.session.add(row)
        await _audit(tx, "login", row, principal.name)
        return OpenSession(
            id=row.id, principal=principal, created_at=tx.now, used_at=tx.now, expires_at=tx.now + self._idle_ms,
            ends_at=row.expires_at, text=text,
        )  # fmt: skip

    async def _ask(self, digest: str) -> OpenSession | None:
        asked = select(Session, Token).join(Token, Token.id == Session.token_id).where(Session.digest == digest)
        async with self._database.reading() as session:
            row = (await session.execute(asked)).first()
        return self._open(row.Session, row.Token) if row is not None else None

    def _open(self, row: Session, token: Token) -> OpenSession | None:
        now = self._database.time.now_ms()
        used_at = max(row.used_at, self._used.get(row.id, 0))
        expires_at = min(row.expires_at, used_at + self._idle_ms)
        principal = self._tokens.principal_of(token)
        if row.ended_at or now >= expires_at or principal is None:
            return None
        return OpenSession(
            id=row.id, principal=principal, created_at=row.created_at, used_at=used_at, expires_at=expires_at,
            ends_at=row.expires_at,
        )  # fmt: skip


_UNKNOWN_CODE = "the code is not known here: ask for a new link with `shoal open`"


def _why_not(row: LoginCode | None) -> str:
    if row is None:
        return _UNKNOWN_CODE
    if row.used_at:
        return "the link was used already, it works once: ask for a new one with `shoal open`"
    return "the link has expired, it works for two minutes: ask for a new one with `shoal open`"


def _refused(field: str, why: str) -> Unauthorized:
    details: Mapping[str, str] = {"field": field, "message": why}
    return Unauthorized(why, causes=[details])


def _digest(text: str) -> str:
    """Empty for what cannot be one of ours."""
    return token_digest(text) if text and len(text) <= _LONGEST_TEXT else ""


async def _audit(tx: Tx, action: str, row: Session, name: str = "") -> None:
    if not name:
        token = await tx.session.get(Token, row.token_id)
        name = token.name if token is not None else row.token_id
    tx.audit(
        workspace_id=row.workspace_id, action=action, kind="Session", object_id=row.id, name=f"user/{name}", diff=None
    )
