"""One call of the API: who asks, and what the path and the query say, checked.

An ``Operation`` says everything about a path and method: the route, the check of the query and the OpenAPI document are
made of it, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import FieldError, Invalid, NotFound, forbidden, invalid, not_supported, type_invalid
from shoal.navigator.answers.api.answers import parts_of_position
from shoal.navigator.answers.query.values import moment_s
from shoal.navigator.model import KINDS
from shoal.navigator.view import View

MAX_LIMIT = 1000
MAX_TEXT = 4096
_is_number = re.compile(r"-?[0-9]{1,15}").fullmatch


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose token is known. Without ``may_write`` nothing can be saved or removed."""

    name: str
    may_write: bool = True


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of the query."""

    name: str
    schema: Mapping[str, Any]
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose sender is known. ``now_s`` is wall time."""

    request: Request
    caller: Caller
    now_s: float
    correlation: str

    def name(self, parameter: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[parameter])

    def text(self, parameter: str, default: str = "") -> str:
        found = self.request.query_params.get(parameter, default)
        if len(found) > MAX_TEXT or "\0" in found:
            raise bad_query(invalid(parameter, found[:32], f"must be at most {MAX_TEXT} characters"))
        return found

    def needed(self, parameter: str) -> str:
        found = self.text(parameter)
        if not found.strip():
            raise bad_query(invalid(parameter, found, "must be given"))
        return found

    def flag(self, parameter: str) -> bool | None:
        """None when it is not given."""
        found = self.text(parameter)
        if found not in ("", "true", "false"):
            raise bad_query(not_supported(parameter, found, ("true", "false")))
        return None if not found else found == "true"

    def integer(self, parameter: str, default: int, low: int, high: int) -> int:
        found = self.text(parameter)
        if not found:
            return default
        if not _is_number(found):
            raise bad_query(type_invalid(parameter, found, "must be a whole number"))
        if not low <= int(found) <= high:
            raise bad_query(invalid(parameter, int(found), f"must be between {low} and {high}, inclusive"))
        return int(found)

    def limit(self, default: int = 100) -> int:
        return self.integer("limit", default, 1, MAX_LIMIT)

    def moment(self, parameter: str) -> float | None:
        """None when it is not given; never later than now."""
        found = self.text(parameter)
        if not found:
            return None
        at_s = moment_s(found, self.now_s)
        if at_s is None:
            hint = "must be a moment such as 2026-01-31T12:00:00Z, or how long ago: 5m, 2h, 1d"
            raise bad_query(invalid(parameter, found, hint))
        if at_s > self.now_s + 1:
            raise bad_query(invalid(parameter, found, "must not lie in the future"))
        return at_s

    def kinds(self, parameter: str = "kind") -> tuple[str, ...]:
        """Kinds by name, with commas between them."""
        found = tuple(part.strip().lower() for part in self.text(parameter).split(",") if part.strip())
        for kind in found:
            if kind not in KINDS:
                raise bad_query(not_supported(parameter, kind, KINDS))
        return found

    def place(self, count: int) -> tuple[str, ...] | None:
        """Where a list goes on; None at its beginning."""
        text = self.text("continue")
        found = parts_of_position(text, count) if text else None
        if text and found is None:
            raise bad_query(invalid("continue", text[:64], "is no position in a list: use the one of the last page"))
        return found

    def cluster(self, view: View, parameter: str = "cluster") -> str:
        """A cluster that is known, or empty."""
        name = self.text(parameter)
        if name and view.cluster(name) is None:
            raise no_cluster(view, name)
        return name


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``answer`` names the schema of the answer, ``body`` that of the request."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    handler: Handler
    answer: str
    description: str = ""
    parameters: Sequence[Parameter] = ()
    body: str = ""
    errors: Sequence[int] = ()
    media: str = "application/json"


def check_query(operation: Operation, request: Request) -> None:
    """A parameter that nobody looks at is a mistake."""
    known = {each.name for each in operation.parameters}
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            listed = f"known parameters: {', '.join(sorted(known))}" if known else "there are none"
            raise bad_query(forbidden(name[:64], f"unknown parameter; {listed}"))
        if given.count(name) > 1:
            raise bad_query(forbidden(name, "may be given only once"))


def bad_query(error: FieldError) -> Invalid:
    found = Invalid.of(
        "the request", "", "", [FieldError(error.cause, f"query.{error.field}", error.detail, error.value)]
    )
    made = Invalid(found.message.replace('the request "" is', "the request is", 1), causes=found.causes)
    made.errors = found.errors
    return made


def no_cluster(view: View, name: str) -> NotFound:
    known = [each.name for each in view.clusters()]
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return NotFound(f"there is no cluster {name[:100]!r}; did you mean {near[0]}?")
    return NotFound(f"there is no cluster {name[:100]!r}; there are: {', '.join(known[:20]) or 'none'}")
