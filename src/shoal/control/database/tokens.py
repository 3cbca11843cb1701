"""Tokens for the control plane, stored in the fleet's own database.

The text of a token is shown once, when it is made; what is kept is its digest. A token that was checked is believed for
less than a second, so one that is revoked, in whichever process, stops working within a second. Rotating gives a token
a new text and lets the old one work for a while, so that its users can switch.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.clock import Clock
from shoal.base.ids import new_token, token_digest
from shoal.control.database.engine import Databases
from shoal.control.database.tables import FLEET, NAME_LENGTH, Token
from shoal.control.database.transaction import Tx
from shoal.errors import AlreadyExists, Conflict, FieldError, Invalid, NotFound, invalid, not_supported, required

KINDS = ("user", "agent", "edge", "relay")
ROLES = ("admin", "editor", "viewer")
ROTATION_GRACE_S = 3600.0

_BELIEVED_S = 0.9
_MOST_BELIEVED = 20_000
_LONGEST = 256  # characters; a longer text is never a token of ours and is not hashed
_ID_LETTERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The identity of a token. An empty cluster, region or shard means any."""

    kind: str
    workspace_id: str
    role: str
    cluster: str
    region: str
    shard: str
    token_id: str
    name: str


class ApiTokens:
    """Used from one event loop."""

    def __init__(self, databases: Databases, clock: Clock) -> None:
        self._database = databases.fleet
        self._clock = clock
        self._believed: dict[str, tuple[Principal, float]] = {}  # by digest, until a monotonic moment
        self._used: dict[str, int] = {}

    async def create(
        self,
        *,
        kind: str,
        name: str,
        workspace_id: str = FLEET,
        role: str = "",
        cluster: str = "",
        region: str = "",
        shard: str = "",
        ttl_s: float = 0.0,
        actor: str = "system",
    ) -> tuple[str, Token]:
        """Return the text of the new token, which is not stored, and its row. ``ttl_s`` 0: it does not expire.
        A name whose token was revoked or has expired is free again."""
        role = role or ("viewer" if kind == "user" else "")
        if errors := _problems(kind, name, role, cluster, region, ttl_s):
            raise Invalid.of("Token", "shoal.dev", name, errors)
        text, lifetime_ms = f"shoal_{kind}_{new_token()}", round(ttl_s * 1000)
        async with self._database.transaction(actor=actor) as tx:
            found = await self._named(tx.session, workspace_id, kind, name)
            if found is not None and _is_usable(found, tx.now):
                raise AlreadyExists.of("tokens", "shoal.dev", name)
            if found is not None:
                await tx.session.execute(delete(Token).where(Token.id == found.id))
                tx.session.expunge(found)
            row = Token(
                id=f"tok_{self._database.ids.new_suffix(_ID_LETTERS)}", workspace_id=workspace_id, kind=kind, name=name,
                digest=token_digest(text), role=role, cluster=cluster, region=region, shard=shard, created_at=tx.now,
                lifetime_ms=lifetime_ms, expires_at=tx.now + lifetime_ms if lifetime_ms else 0, revoked_at=0,
                last_used_at=0, previous_digest="", previous_until=0,
            )  # fmt: skip
            tx.session.add(row)
            _audit(tx, "create", row)
        return text, row

    async def list_(self, *, workspace_id: str = "", kind: str = "") -> Sequence[Token]:
        """All tokens, those that do not work any more too, by kind and name."""
        asked = select(Token).order_by(Token.workspace_id, Token.kind, Token.name)
        if workspace_id:
            asked = asked.where(Token.workspace_id == workspace_id)
        if kind:
            asked = asked.where(Token.kind == kind)
        async with self._database.reading() as session:
            return (await session.execute(asked)).scalars().all()

    async def find(self, kind: str, name: str, *, workspace_id: str = FLEET) -> Token:
        async with self._database.reading() as session:
            found = await self._named(session, workspace_id, kind, name)
        if found is None:
            raise NotFound.of("tokens", "shoal.dev", name)
        return found

    async def revoke(self, token_id: str, *, actor: str = "system") -> Token:
        """It stops working, everywhere within a second. Doing it twice changes nothing."""
        async with self._database.transaction(actor=actor) as tx:
            row = await self._row(tx, token_id)
            if not row.revoked_at:
                row.revoked_at = tx.now
                _audit(tx, "revoke", row)
        self._forget(token_id)
        return row

    async def rotate(
        self, token_id: str, *, grace_s: float = ROTATION_GRACE_S, actor: str = "system"
    ) -> tuple[str, Token]:
        """A new text for the same token, with the lifetime of the first. The one before it works for ``grace_s``
        longer, older ones not at all."""
        async with self._database.transaction(actor=actor) as tx:
            row = await self._row(tx, token_id)
            if not _is_usable(row, tx.now):
                raise Conflict.of(
                    "tokens", "shoal.dev", row.name, "the token was revoked or has expired; create a new one"
                )
            text = f"shoal_{row.kind}_{new_token()}"
            row.previous_digest, row.digest = row.digest, token_digest(text)
            row.previous_until = tx.now + round(grace_s * 1000)
            if row.expires_at:  # a rotation does not extend the life of the old text
                row.previous_until = min(row.previous_until, row.expires_at)
                row.expires_at = tx.now + row.lifetime_ms
            _audit(tx, "rotate", row)
        self._forget(token_id)
        return text, row

    async def authenticate(self, text: str) -> Principal | None:
        """Return the token's principal or None; raise ``ServiceUnavailable`` while the database is unavailable."""
        if not text or len(text) > _LONGEST:
            return None
        digest = token_digest(text)
        asked_at = self._clock.monotonic()
        believed = self._believed.get(digest)
        if believed is None or believed[1] <= asked_at:
            self._believed.pop(digest, None)
            principal = await self._ask(digest)
            if principal is None:
                return None
            if len(self._believed) >= _MOST_BELIEVED:
                self._believed.clear()
            believed = self._believed[digest] = principal, asked_at + _BELIEVED_S
        self.note_use(believed[0].token_id)
        return believed[0]

    async def working(self, token_ids: Iterable[str]) -> set[str]:
        """Return which of these tokens are still valid: one query for all open streams."""
        asked = sorted(set(token_ids))
        now = self._now()
        found: set[str] = set()
        async with self._database.reading() as session:
            for start in range(0, len(asked), 500):
                rows = await session.execute(select(Token).where(Token.id.in_(asked[start : start + 500])))
                found |= {row.id for row in rows.scalars() if _is_usable(row, now)}
        return found

    def principal_of(self, row: Token) -> Principal | None:
        """Whom a token speaks for; None for one that does not work."""
        if not _is_usable(row, self._now()):
            return None
        return Principal(
            kind=row.kind, workspace_id=row.workspace_id, role=row.role, cluster=row.cluster, region=row.region,
            shard=row.shard, token_id=row.id, name=row.name,
        )  # fmt: skip

    def note_use(self, token_id: str) -> None:
        """Somebody used what stands for this token."""
        self._used[token_id] = self._now()

    def has_expired(self, row: Token) -> bool:
        return bool(row.expires_at) and row.expires_at <= self._now()

    async def save_used(self) -> None:
        """Write down when tokens were last used; to be called now and then."""
        used, self._used = self._used, {}
        if not used:
            return
        async with self._database.transaction(serial=False) as tx:
            for token_id, at in sorted(used.items()):
                await tx.session.execute(
                    update(Token)
                    .where(Token.id == token_id, Token.last_used_at < at)
                    .values(last_used_at=at)
                    .execution_options(synchronize_session=False)
                )

    async def _ask(self, digest: str) -> Principal | None:
        async with self._database.reading() as session:
            asked = select(Token).where(or_(Token.digest == digest, Token.previous_digest == digest))
            row = (await session.execute(asked)).scalars().first()
        if row is None:
            return None
        current = hmac.compare_digest(row.digest, digest)
        previous = hmac.compare_digest(row.previous_digest, digest) and self._now() < row.previous_until
        return self.principal_of(row) if current or previous else None

    @staticmethod
    async def _row(tx: Tx, token_id: str) -> Token:
        row = await tx.session.get(Token, token_id)
        if row is None:
            raise NotFound.of("tokens", "shoal.dev", token_id)
        return row

    @staticmethod
    async def _named(session: AsyncSession, workspace_id: str, kind: str, name: str) -> Token | None:
        asked = select(Token).where(Token.workspace_id == workspace_id, Token.kind == kind, Token.name == name)
        return (await session.execute(asked)).scalar_one_or_none()

    def _forget(self, token_id: str) -> None:
        self._believed = {
            digest: believed for digest, believed in self._believed.items() if believed[0].token_id != token_id
        }

    def _now(self) -> int:
        return self._database.time.now_ms()


def _is_usable(row: Token, now: int) -> bool:
    """Whether a token works at all; a replaced text also has a time of its own."""
    if row.revoked_at:
        return False
    return not row.expires_at or now < row.expires_at


def _audit(tx: Tx, action: str, row: Token) -> None:
    tx.audit(
        workspace_id=row.workspace_id, action=action, kind="Token", object_id=row.id, name=f"{row.kind}/{row.name}",
        diff=None,
    )  # fmt: skip


def _problems(kind: str, name: str, role: str, cluster: str, region: str, ttl_s: float) -> list[FieldError]:
    errors: list[FieldError] = []
    if kind not in KINDS:
        errors.append(not_supported("kind", kind, KINDS))
    if not name:
        errors.append(required("name"))
    elif len(name) > NAME_LENGTH:
        errors.append(invalid("name", name, f"must be no more than {NAME_LENGTH} characters"))
    if kind == "user" and role not in ROLES:
        errors.append(not_supported("role", role, ROLES))
    if kind != "user" and role:
        errors.append(invalid("role", role, "only the token of a user has a role"))
    if kind == "agent":
        errors += [required(field, "an agent needs exactly one cluster and one region") for field, value in
                   (("cluster", cluster), ("region", region)) if not value]  # fmt: skip
    if kind == "relay" and not region:
        errors.append(required("region", "a relay serves the agents of one region"))
    if ttl_s < 0:
        errors.append(invalid("ttl", ttl_s, "must be 0 or more seconds"))
    return errors
