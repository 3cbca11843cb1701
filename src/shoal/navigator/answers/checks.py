"""Saved checks: named queries that must find nothing, or something; their storage and their results.

pods-crash:   pods where status = CrashLoopBackOff       must be empty
gateways-up:  pods where proxy = router and ready        must not be
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from shoal.base.files import write_private
from shoal.errors import ConfigError, Invalid, NotFound, invalid
from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.query.model import QueryError
from shoal.navigator.answers.query.parser import parse
from shoal.navigator.answers.query.run import QueryPage, Runner
from shoal.navigator.view import View

EMPTY, SOME = "empty", "some"
EXAMPLES = 5
MOST = 500
_is_name = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?").fullmatch

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheck:
    name: str
    query: str
    expect: str = EMPTY
    description: str = ""


class ConcealedCheck(SavedCheck):
    """A check for callers that may run it, and may not read its query."""

    @classmethod
    def of(cls, check: SavedCheck) -> ConcealedCheck:
        return cls(**asdict(check))


class CheckStore(Protocol):
    """Stores checks."""

    def all(self) -> Mapping[str, SavedCheck]: ...

    def put(self, check: SavedCheck) -> None: ...

    def remove(self, name: str) -> None:
        """``NotFound`` when there is none."""


class MemoryChecks:
    def __init__(self, checks: Mapping[str, SavedCheck] | None = None) -> None:
        self._checks = dict(checks or {})

    def all(self) -> Mapping[str, SavedCheck]:
        return dict(sorted(self._checks.items()))

    def put(self, check: SavedCheck) -> None:
        if check.name not in self._checks and len(self._checks) >= MOST:
            raise Invalid(f"limit of {MOST} checks reached: remove one first")
        self._checks[check.name] = check

    def remove(self, name: str) -> None:
        if self._checks.pop(name, None) is None:
            raise NotFound(f"check {name!r} not found")


class FileChecks(MemoryChecks):
    """Stores checks in a file, which is rewritten with every change."""

    def __init__(self, path: Path) -> None:
        super().__init__(_read(path))
        self._path = path

    def put(self, check: SavedCheck) -> None:
        super().put(check)
        self._write()

    def remove(self, name: str) -> None:
        super().remove(name)
        self._write()

    def _write(self) -> None:
        listed = [asdict(each) for each in self.all().values()]
        write_private(self._path, orjson.dumps({"checks": listed}, option=orjson.OPT_INDENT_2))


def _read(path: Path) -> dict[str, SavedCheck]:
    try:
        content = orjson.loads(path.read_bytes())
        return {str(each["name"]): SavedCheck(**each) for each in content["checks"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a valid file of checks: {error}; fix or remove it") from None


def new_check(name: str, query: str, *, expect: str = EMPTY, description: str = "", now_s: float) -> SavedCheck:
    """A check to save; ``Invalid`` for a bad name, ``QueryError`` for a bad query."""
    if not _is_name(name):
        wrong = invalid("name", name[:64], "must be lower case letters, digits, - and ., at most 63")
        raise Invalid.of("Check", "", name[:64], [wrong])
    parse(query, now_s=now_s)
    return SavedCheck(name=name, query=query, expect=expect, description=description)


def check_json(check: SavedCheck) -> Json:
    return {**asdict(check), "query": ""} if isinstance(check, ConcealedCheck) else asdict(check)


def run_check(check: SavedCheck, view: View, deployments: Callable[[], Deployments]) -> Generator[None, None, Json]:
    """The result of a check, with examples of wrong objects. A check whose query is no longer valid fails."""
    shown: Json = {**check_json(check), "at": view.at_s}
    try:
        query = parse(check.query, now_s=view.at_s)
    except QueryError as error:
        why = "its query is not valid any more" if isinstance(check, ConcealedCheck) else error.message
        return {**shown, "ok": False, "total": None, "examples": [], "error": why}
    result = yield from Runner(view, deployments).steps(query, QueryPage(limit=EXAMPLES))
    total = sum(item["count"] for item in result.items) if query.counted else result.total
    ok = (total == 0) is (check.expect == EMPTY)
    if total == 0 and result.forbidden:  # there may be some where nothing may be read
        unread = ", ".join(f"{each.kind} of {each.cluster}" for each in result.forbidden[:EXAMPLES])
        return {**shown, "ok": None, "total": 0, "examples": [], "error": f"unknown: the edge may not read {unread}"}
    return {**shown, "ok": ok, "total": total, "examples": result.items if not ok and total else [], "error": ""}
