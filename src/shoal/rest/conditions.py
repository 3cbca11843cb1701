"""Preconditions of a request (RFC 9110): ``If-Match`` and ``If-None-Match`` over the versions of objects.

An ETag is the version of an object in quotes. A version given in a header that does not hold is 412.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from shoal.errors import AlreadyExists, BadRequest, Conflict
from shoal.rest.answers import PreconditionFailed

T = TypeVar("T")

_ATTEMPTS = 5
_tags = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e]*"\s*)*').fullmatch
_strong = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"').findall


class IfMatch(msgspec.Struct, frozen=True):
    """For changes of an object that exists."""

    if_match: Annotated[
        str | None, Meta(description='The ETag that the object must have, such as `"17"`; 412 if it has another')
    ] = msgspec.field(name="If-Match", default=None)


class IfMatchOrNone(IfMatch, frozen=True):
    """For writes that may also create an object."""

    if_none_match: Annotated[
        str | None,
        Meta(description="The object must not exist; 412 if it does", extra_json_schema={"examples": ["*"]}),
    ] = msgspec.field(name="If-None-Match", default=None)


@dataclass(frozen=True, slots=True)
class Precondition:
    """``versions``: which it may have; None: any. ``exists``: whether it must; None: no matter."""

    versions: frozenset[int] | None = None
    exists: bool | None = None

    @property
    def given(self) -> bool:
        return self.versions is not None or self.exists is not None


def etag(version: int) -> str:
    return f'"{version}"'


def precondition(headers: IfMatch) -> Precondition:
    """What the headers ask for; ``BadRequest`` when they cannot be understood."""
    match = headers.if_match
    none_match = headers.if_none_match if isinstance(headers, IfMatchOrNone) else None
    if match is not None and none_match is not None:
        raise BadRequest("If-Match and If-None-Match cannot be used together")
    if none_match is not None:
        if none_match.strip() != "*":
            raise BadRequest("If-None-Match can only be * here: the object must not exist")
        return Precondition(exists=False)
    if match is None:
        return Precondition()
    if match.strip() == "*":
        return Precondition(exists=True)
    if not _tags(match):
        raise BadRequest(f'If-Match is {match[:64]!r}: use the ETag of the object, such as "17"')
    strong = [value for weak, value in _strong(match) if not weak]
    return Precondition(frozenset(int(value) for value in strong if value.isdecimal() and len(value) < 19))


async def under(
    condition: Precondition,
    what: str,
    version: Callable[[], Awaitable[int]],
    change: Callable[[int | None], Awaitable[T]],
) -> T:
    """Make a change of ``what`` under a condition. ``version`` reads its version, 0 when it does not exist; ``change``
    gets the version that it must have, if any."""
    if not condition.given:
        return await change(None)
    if condition.exists is False:
        try:
            return await change(0)
        except (Conflict, AlreadyExists) as error:
            raise PreconditionFailed(f"{what} exists already", details=error.details) from error
    for attempt in range(_ATTEMPTS):
        found = await version()
        if not found or (condition.versions is not None and found not in condition.versions):
            raise _failed(what, found)
        try:
            return await change(found)
        except Conflict:
            if await version() == found or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def again_on_conflict(change: Callable[[], Awaitable[T]]) -> T:
    """For a change that reads, decides and writes: a write by others in between means to begin again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await change()
        except Conflict:
            continue
    return await change()


def _failed(what: str, version: int) -> PreconditionFailed:
    why = f"it has version {version}" if version else "it does not exist"
    return PreconditionFailed(f"{what} does not match If-Match: {why}; read it again")
