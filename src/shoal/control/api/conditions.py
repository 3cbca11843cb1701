"""Preconditions of a request (RFC 9110): ``If-Match`` and ``If-None-Match`` over the versions of objects.

An ETag is the version of an object in quotes. A version given in a header that does not hold is 412; one given in the
document itself (``metadata.version``) is 409, as a conflict with somebody else's change.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from shoal.control.api.answers import PreconditionFailed
from shoal.control.api.calls import Call
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Ref
from shoal.errors import AlreadyExists, BadRequest, Conflict, NotFound

T = TypeVar("T")

_ATTEMPTS = 5
_tags = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e]*"\s*)*').fullmatch
_strong = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"').findall


@dataclass(frozen=True, slots=True)
class Condition:
    """``versions``: which it may have; None: any. ``exists``: whether it must; None: no matter."""

    versions: frozenset[int] | None = None
    exists: bool | None = None

    @property
    def given(self) -> bool:
        return self.versions is not None or self.exists is not None


def condition_of(call: Call) -> Condition:
    match, none_match = call.request.headers.get("if-match"), call.request.headers.get("if-none-match")
    if match is not None and none_match is not None:
        raise BadRequest("If-Match and If-None-Match cannot be used together")
    if none_match is not None:
        if none_match.strip() != "*":
            raise BadRequest("If-None-Match can only be * here: the object must not exist")
        return Condition(exists=False)
    if match is None:
        return Condition()
    if match.strip() == "*":
        return Condition(exists=True)
    if not _tags(match):
        raise BadRequest(f'If-Match is {match[:64]!r}: use the ETag of the object, such as "17"')
    strong = [value for weak, value in _strong(match) if not weak]
    return Condition(frozenset(int(value) for value in strong if value.isdecimal() and len(value) < 19))


async def under(
    fleet: Fleet, call: Call, ref: Ref, condition: Condition, change: Callable[[int | None], Awaitable[T]]
) -> T:
    """Make a change under a condition. ``change`` gets the version that the object must have, if any."""
    if not condition.given:
        return await change(None)
    if condition.exists is False:
        try:
            return await change(0)
        except (Conflict, AlreadyExists) as error:
            raise PreconditionFailed(f"{ref.kind} {ref} exists already", details=error.details) from error
    for attempt in range(_ATTEMPTS):
        version = await _version(fleet, call, ref)
        if not version or (condition.versions is not None and version not in condition.versions):
            raise _failed(ref, version)
        try:
            return await change(version)
        except Conflict:
            moved = await _version(fleet, call, ref)
            if moved == version or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def again_on_conflict(change: Callable[[], Awaitable[T]]) -> T:
    """For a change that reads, decides and writes: somebody else's write in between means to begin again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await change()
        except Conflict:
            continue
    return await change()


async def _version(fleet: Fleet, call: Call, ref: Ref) -> int:
    try:
        return int((await fleet.get(call.who, ref))["metadata"]["version"])
    except NotFound:
        return 0


def _failed(ref: Ref, version: int) -> PreconditionFailed:
    why = f"it has version {version}" if version else "it does not exist"
    return PreconditionFailed(f"{ref.kind} {ref} is not what If-Match says: {why}; read it again")
