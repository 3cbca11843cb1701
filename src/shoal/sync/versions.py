"""Versions and cursors: moments in the histories of the fleet's databases.

A *version* is the moment an object last changed. A database counts its changes in the order of their commits; each time
it may have gone back (a restored backup) it begins a new *incarnation*, a larger number, so versions of one database
compare as (incarnation, number). Versions of two databases do not compare: the one that comes later is taken.

A *cursor* is a moment of every database at once: what an agent has received. It is text that only the control plane
reads. Each position in it is signed with its database's key, which a backup contains as well. So a cursor that verifies
and lies ahead of its database proves that the database went back; one that does not verify proves nothing. A position
may carry a *mark* of the change it stands behind: where the database has another change there, it went back as well,
and has passed the cursor since.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shoal.errors import BadRequest

MAX_CURSOR_LENGTH = 4096
_TAG_LENGTH = 20  # hex digits: 80 bits


class BadCursor(BadRequest):
    """Not a cursor that this control plane gave out."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cursor is malformed: {why}; leave it empty to start with a full sync")


@dataclass(frozen=True, slots=True)
class Version:
    database: str
    incarnation: int
    number: int

    def is_after(self, other: Version | None) -> bool:
        """Whether this is a later moment. Nothing is before everything, and another database is always later."""
        if other is None or other.database != self.database:
            return True
        return (self.incarnation, self.number) > (other.incarnation, other.number)

    def __str__(self) -> str:
        return f"{self.database}:{self.incarnation}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse the output of ``str``; raise ``ValueError`` for anything else."""
        database, incarnation, number = text.split(":")
        if not database or not _is_number(incarnation) or not _is_number(number):
            raise ValueError(f"invalid version {text!r}: use DATABASE:INCARNATION:NUMBER")
        return cls(database, int(incarnation), int(number))


@dataclass(frozen=True, slots=True)
class Cursor:
    """Per database (incarnation, number), and where known the mark of the change there."""

    positions: Mapping[str, tuple[int, int]]
    marks: Mapping[str, str] = field(default_factory=dict, compare=False)

    def covers(self, version: Version) -> bool:
        """Whether this cursor includes this version or a later one of the same history."""
        position = self.positions.get(version.database)
        return position is not None and position >= (version.incarnation, version.number)

    def advanced(self, database: str, incarnation: int, number: int) -> Cursor:
        """This cursor with one database moved on; never back within an incarnation."""
        position = max(self.positions.get(database, (0, 0)), (incarnation, number))
        return Cursor({**self.positions, database: position})


START = Cursor({})
NO_MARKS: Mapping[str, str] = {}


def encode_cursor(cursor: Cursor, keys: Mapping[str, bytes], marks: Mapping[str, str] = NO_MARKS) -> str:
    """The cursor as text, each position with its mark, if there is one, signed with its database's key."""
    parts: list[str] = []
    for database, (incarnation, number) in sorted(cursor.positions.items()):
        mark = marks.get(database, "")
        said = f"{database}.{incarnation}.{number}.{mark}" if mark else f"{database}.{incarnation}.{number}"
        parts.append(f"{said}.{_tag(keys[database], database, incarnation, number, mark)}")
    return ",".join(parts)


def decode_cursor(text: str, keys: Mapping[str, bytes]) -> Cursor:
    """Decode the output of ``encode_cursor``. Databases that no longer exist are left out."""
    if len(text) > MAX_CURSOR_LENGTH:
        raise BadCursor(f"it has {len(text)} characters")
    positions: dict[str, tuple[int, int]] = {}
    marks: dict[str, str] = {}
    for database, incarnation, number, mark, tag in _parts(text):
        key = keys.get(database)
        if key is None:
            continue
        if not hmac.compare_digest(_tag(key, database, incarnation, number, mark).encode(), tag.encode()):
            raise BadCursor("its signature is invalid")
        positions[database] = (incarnation, number)
        marks[database] = mark
    return Cursor(positions, marks)


def read_cursor(text: str) -> Cursor:
    """The positions of a cursor, not verified: for an agent, which has no keys and trusts its control plane."""
    found = list(_parts(text))
    return Cursor({part[0]: (part[1], part[2]) for part in found}, {part[0]: part[3] for part in found})


def _parts(text: str) -> Iterator[tuple[str, int, int, str, str]]:
    """Database, incarnation, number, mark and signature of each position."""
    for part in text.split(",") if text else ():
        fields = part.split(".")
        if len(fields) not in (4, 5) or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise BadCursor("it has the wrong format")
        mark = fields[3] if len(fields) == 5 else ""
        yield fields[0], int(fields[1]), int(fields[2]), mark, fields[-1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _tag(key: bytes, database: str, incarnation: int, number: int, mark: str) -> str:
    signed = f"cursor {database} {incarnation} {number}{' ' if mark else ''}{mark}".encode()
    return hmac.digest(key, signed, hashlib.sha256).hex()[:_TAG_LENGTH]
