"""One call of the API: who asks, and what the path, the query and the headers say, checked.

An ``Operation`` says everything about a path and method: who answers it, and what it takes. The same data makes the
route, the check of the query, and the OpenAPI document, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shoal.control.database.tokens import Principal
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import Ref, Who
from shoal.control.domain.objects import not_found
from shoal.errors import FieldError, Invalid, NotFound, forbidden, invalid, not_supported, type_invalid

MAX_LIMIT = 500
_is_position = re.compile(r"[\x21-\x7e]{1,256}").fullmatch
_is_number = re.compile(r"-?[0-9]{1,18}").fullmatch
MAX_QUERY_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something a request may carry besides its body. ``where`` is query or header."""

    name: str
    schema: Mapping[str, Any]
    description: str
    where: str = "query"


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose sender is known."""

    request: Request
    who: Who
    principal: Principal
    token: str = field(repr=False)

    def name(self, parameter: str) -> str:
        """A part of the path."""
        return str(self.request.path_params.get(parameter, ""))

    def ref(self, kind: str) -> Ref:
        """The object that the path names. What cannot be a name names nothing."""
        ref = Ref(kind, self.name("name"), self.name("project"), self.name("environment"))
        if any(is_name(part) for part in (ref.name, ref.project, ref.environment) if part):
            raise not_found(ref)
        return ref

    def text(self, parameter: str) -> str:
        found = self.request.query_params.get(parameter, "")
        if len(found) > MAX_QUERY_CHARACTERS or "\0" in found:
            raise bad_query(invalid(parameter, found[:32], f"must be at most {MAX_QUERY_CHARACTERS} characters"))
        return found

    def flag(self, parameter: str) -> bool:
        found = self.text(parameter)
        if found not in ("", "true", "false"):
            raise bad_query(not_supported(parameter, found, ("true", "false")))
        return found == "true"

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

    def position(self) -> str:
        """Where a list goes on."""
        found = self.text("continue")
        if found and not _is_position(found):
            raise bad_query(invalid("continue", found, "is no position in a list: use the one of the last page"))
        return found


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``answers`` names the schema of each successful answer, ``body`` that of the request; empty for none."""

    method: str
    path: str
    id: str
    summary: str
    tag: str
    handler: Handler
    answers: Mapping[int, str]
    description: str = ""
    parameters: Sequence[Parameter] = ()
    body: str = ""
    body_optional: bool = False
    errors: Sequence[int] = ()
    media: str = "application/json"  # of the answer

    @property
    def query(self) -> frozenset[str]:
        return frozenset(each.name for each in self.parameters if each.where == "query")


def check_query(operation: Operation, request: Request) -> None:
    """A parameter that nobody looks at is a mistake: ``?dryrun=true`` must not change anything."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in operation.query:
            known = f"known parameters: {', '.join(sorted(operation.query))}" if operation.query else "there are none"
            raise bad_query(forbidden(name[:64], f"unknown parameter; {known}"))
        if given.count(name) > 1:
            raise bad_query(forbidden(name, "may be given only once"))


def bad_query(error: FieldError) -> Invalid:
    return bad_fields([FieldError(error.cause, f"query.{error.field}", error.detail, error.value)])


def bad_fields(errors: Sequence[FieldError]) -> Invalid:
    """As for an object, but of the request itself."""
    found = Invalid.of("the request", "", "", errors)
    made = Invalid(found.message.replace('the request "" is', "the request is", 1), causes=found.causes)
    made.errors = tuple(errors)
    return made


def no_such(what: str, name: str) -> NotFound:
    return NotFound(f"there is no {what} {name[:100]!r}")
