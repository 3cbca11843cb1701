"""The tables of people who have logged in to the page: sessions, and the codes that begin one. In the fleet's own
database, beside the tokens that they stand for."""

from __future__ import annotations

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from shoal.control.database.table_base import Base, Key


class Session(Base):
    """A browser that speaks for the owner of a token, as long as that works. Only the digest of its text is stored."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(Key, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    token_id: Mapped[str] = mapped_column(Key)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int]
    used_at: Mapped[int]  # it ends when it is not used for long
    expires_at: Mapped[int]  # it ends then in any case
    ended_at: Mapped[int] = mapped_column(default=0)
    __table_args__ = (Index(None, "expires_at"), Index(None, "token_id"))


class LoginCode(Base):
    """Begins one session for the owner of a token. Kept for a while, to tell a used code from a wrong one."""

    __tablename__ = "login_codes"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Key)
    token_id: Mapped[str] = mapped_column(Key)
    created_at: Mapped[int]
    expires_at: Mapped[int]
    used_at: Mapped[int] = mapped_column(default=0)
    __table_args__ = (Index(None, "expires_at"),)
