"""Versions and cursors: moments in the histories of the fleet's databases.

A *version* is the moment an object last changed. A database counts its changes in the order of their commits; each time
it may have gone back (a restored backup) it begins a new *incarnation*, a larger number, so versions of one database
compare as (incarnation, number). Versions of two databases do not compare: the one that comes later is taken.

A *cursor* is a moment of every database at once: what an agent has received. It is text that only the control plane
reads. Each position in it is signed with its database's key, which a backup contains as well. So a cursor that verifies
and lies ahead of its database proves that the database went back; one that does not verify proves nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.errors import BadRequest

MAX_CURSOR_LENGTH = 4096
_TAG_LENGTH = 20  # hex digits: 80 bits


class BadCursor(BadRequest):
    """Not a cursor that this control plane gave out."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cursor is malformed: {why}; leave it empty to begin with a full sync")


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
        """Reads what ``str`` wrote; raises ``ValueError`` for anything else."""
        database, incarnation, number = text.split(":")
        if not database or not _is_number(incarnation) or not _is_number(number):
            raise ValueError(f"{text!r} is not a version: use DATABASE:INCARNATION:NUMBER")
        return cls(database, int(incarnation), int(number))


@dataclass(frozen=True, slots=True)
class Cursor:
    """Per database (incarnation, number)."""

    positions: Mapping[str, tuple[int, int]]

    def covers(self, version: Version) -> bool:
        """Whether whoever is at this cursor has received this version or a later one of the same history."""
        position = self.positions.get(version.database)
        return position is not None and position >= (version.incarnation, version.number)

    def advanced(self, database: str, incarnation: int, number: int) -> Cursor:
        """This cursor with one database moved on; never back within an incarnation."""
        position = max(self.positions.get(database, (0, 0)), (incarnation, number))
        return Cursor({**self.positions, database: position})


START = Cursor({})


def encode_cursor(cursor: Cursor, keys: Mapping[str, bytes]) -> str:
    """The cursor as text, each position signed with its database's key."""
    return ",".join(
        f"{database}.{incarnation}.{number}.{_tag(keys[database], database, incarnation, number)}"
        for database, (incarnation, number) in sorted(cursor.positions.items())
    )


def decode_cursor(text: str, keys: Mapping[str, bytes]) -> Cursor:
    """What ``encode_cursor`` wrote. Databases that are not there any more are left out."""
    if len(text) > MAX_CURSOR_LENGTH:
        raise BadCursor(f"it has {len(text)} characters")
    positions: dict[str, tuple[int, int]] = {}
    for part in text.split(",") if text else ():
        fields = part.split(".")
        if len(fields) != 4 or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise BadCursor("it does not have the form of one")
        database, incarnation, number, tag = fields[0], int(fields[1]), int(fields[2]), fields[3]
        key = keys.get(database)
        if key is None:
            continue
        if not hmac.compare_digest(_tag(key, database, incarnation, number).encode(), tag.encode()):
            raise BadCursor("its signature is wrong")
        positions[database] = (incarnation, number)
    return Cursor(positions)


def read_cursor(text: str) -> Cursor:
    """The positions of a cursor, unproven: for an agent, which has no keys and trusts whom it got the cursor from."""
    positions: dict[str, tuple[int, int]] = {}
    for part in text.split(",") if text else ():
        fields = part.split(".")
        if len(fields) != 4 or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise BadCursor("it does not have the form of one")
        positions[fields[0]] = (int(fields[1]), int(fields[2]))
    return Cursor(positions)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _tag(key: bytes, database: str, incarnation: int, number: int) -> str:
    signed = f"cursor {database} {incarnation} {number}".encode()
    return hmac.digest(key, signed, hashlib.sha256).hex()[:_TAG_LENGTH]
