"""Declarations of an API: its operations and extra pages.

An ``Operation`` says everything about a method and a path. Its handler takes the call and, by these names, what it
needs of the request: ``query`` and ``headers`` (structs) and ``body`` (a struct; ``dict[str, Any]`` or ``list[Any]``
for documents that the handler reads itself). Their types are read from the handler's signature, so that checks, errors
and the OpenAPI document cannot disagree with what it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, get_type_hints

from shoal.base.asgi_common import Application
from shoal.errors import ApiError
from shoal.rest.answers import JSON
from shoal.rest.request import RestRequest

C = TypeVar("C")
_TAKEN = ("query", "headers", "body")


@dataclass(frozen=True, slots=True)
class RestCall(Generic[C]):
    """A request whose sender is known. ``path`` has the values of the path's parameters."""

    request: RestRequest
    caller: C
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``answers`` has the type of the body by status; the first is that of an answer that is not made by the handler.
    ``body`` describes documents that the handler reads itself. ``needs`` is what the caller must be allowed to do, in
    the words of the API's own ``authorize``; empty when the handler decides."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    handler: Callable[..., Awaitable[Any]]
    answers: Mapping[int, Any]
    description: str = ""
    body: Any = None
    errors: Sequence[type[ApiError]] = ()
    needs: str = ""
    media: str = JSON  # of the answer
    body_media: str = JSON

    def taken(self) -> dict[str, Any]:
        """The types of query, headers and body that the handler takes."""
        function = self.handler.func if isinstance(self.handler, partial) else self.handler
        hints = get_type_hints(function, include_extras=True)
        return {name: hints[name] for name in _TAKEN if name in hints}


def never_public(request: RestRequest) -> bool:
    return False


def always_public(request: RestRequest) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RestPage:
    """Something beside the operations that answers GET: a health check, a file, or with a path that ends in ``/*``
    everything below it. ``public``: for which requests no token is needed. What the handler returns is an ASGI
    application, so another one can be mounted: ``RestPage(path="/ui/*", handler=…)``."""

    path: str
    handler: Callable[[RestRequest], Awaitable[Application]]
    public: Callable[[RestRequest], bool] = never_public
