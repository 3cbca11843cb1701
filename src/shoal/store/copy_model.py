"""The two sides of a copy, which SQLite and PostgreSQL implement, and the rows that pass between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Row = tuple[int, str, str, str, int, int, bytes]  # revision, resource, namespace, name, created, hole, value

CHUNK_ROWS = 2000
CHUNK_BYTES = 4 << 20

BEING_COPIED = "it is being copied"  # prefix of the reason on a frozen source
UNFINISHED = "it is an unfinished copy"  # prefix of the reason on an unfinished target


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyHead:
    """Metadata of a store."""

    revision: int
    incarnation: str
    resources: Sequence[str]  # every resource that has or ever had objects
    objects: int


@dataclass(frozen=True, slots=True)
class ExistingStore:
    """What a target holds before a copy; empty and 0 where there is no store yet."""

    incarnation: str = ""
    revision: int = 0


class CopySource(Protocol):
    """The store to read from. Errors are ``ShoalError``."""

    async def freeze(self, reason: str) -> CopyHead:
        """Stop writes until ``close``; nothing changes meanwhile."""

    def rows(self) -> AsyncIterator[list[Row]]:
        """The current objects, in chunks."""

    async def keep(self, reason: str) -> None:
        """Refuse writes permanently, also after ``close`` and after restarts."""

    async def close(self) -> None:
        """Accept writes again, unless ``keep`` was called."""


class CopyTarget(Protocol):
    """The store to write to. Errors are ``ShoalError``."""

    async def open(self, *, force: bool) -> ExistingStore:
        """Lock the target, which must be empty unless ``force``; return what it holds."""

    async def begin(self, unfinished: str) -> None:
        """Prepare for rows; a server that starts on the target refuses writes with the reason ``unfinished``."""

    async def write(self, rows: Sequence[Row]) -> None: ...

    async def finish(self, head: CopyHead) -> None:
        """Make everything durable."""

    def rows(self) -> AsyncIterator[list[Row]]:
        """Read back the written rows."""

    async def hand_over(self) -> None:
        """From now on ``close`` keeps the target, because the source may be marked as moved to it."""

    async def activate(self) -> None:
        """Let the target accept writes."""

    async def close(self) -> None:
        """Release the target; remove it unless it was handed over."""


def pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in lists of limited length and size."""
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row[6])
        if len(piece) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
