"""The API as one ASGI application: every operation, its route, and the gate in front of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from shoal import __version__
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.base.metrics import PROCESS, Metrics
from shoal.errors import ApiError, BadRequest
from shoal.navigator.answers.api.analysis import Analysis
from shoal.navigator.answers.api.answers import error_answer, fault_of_ours, unknown_method, unknown_path
from shoal.navigator.answers.api.calls import Call, Operation, check_query
from shoal.navigator.answers.api.describe import document
from shoal.navigator.answers.api.gate import ApiMetrics, Authenticate, Gate
from shoal.navigator.answers.api.live import Live
from shoal.navigator.answers.api.sources import Sources
from shoal.navigator.answers.api.state import State
from shoal.navigator.answers.api.streams import Streams
from shoal.navigator.answers.checks import CheckStore, MemoryChecks
from shoal.navigator.view import Edges, Fleet, History, View

TITLE = "Shoal navigator"


def make_api(
    view: Callable[[], View],
    history: History,
    edges: Edges,
    fleet: Fleet,
    *,
    authenticate: Authenticate,
    clock: Clock,
    checks: CheckStore | None = None,
    metrics: Metrics = PROCESS,
    new_id: Callable[[], str] | None = None,
    version: str = __version__,
) -> Gate:
    """``view`` gives the state now. ``checks`` is where saved checks are kept; in memory by default. Whoever serves it
    calls ``end_streams`` before it stops."""
    counted, streams = ApiMetrics(metrics), Streams(clock)
    counted.streams.follow(lambda: float(streams.open))
    sources = Sources(view, history, edges, fleet, MemoryChecks() if checks is None else checks, clock)
    operations = [
        *State(sources).operations(),
        *Live(sources, streams, authenticate).operations(),
        *Analysis(sources).operations(),
    ]
    app = _app(operations, clock, version=version)
    return Gate(app, authenticate, streams, clock=clock, metrics=counted, new_id=new_id or Ids().new_uid)


def _app(operations: list[Operation], clock: Clock, *, version: str) -> FastAPI:
    app = FastAPI(
        title=TITLE, version=version, docs_url=None, redoc_url=None, redirect_slashes=False,
        exception_handlers={ApiError: _on_error, HTTPException: _on_http, Exception: _on_fault},
    )  # fmt: skip
    for operation in operations:
        app.add_api_route(
            operation.path, _endpoint(operation, clock), methods=[operation.method], name=operation.id,
            tags=[operation.tag], operation_id=operation.id, response_model=None,
        )  # fmt: skip
    described = document(operations, title=TITLE, version=version)
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


def _endpoint(operation: Operation, clock: Clock) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        state: dict[str, Any] = request.scope["state"]
        check_query(operation, request)
        return await operation.handler(Call(request, state["caller"], clock.wall_s(), state["correlation"]))

    return endpoint


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_answer(error, _correlation(request))


async def _on_http(request: Request, error: Exception) -> Response:
    """What the router says: nobody is there, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_answer(unknown_path(request.url.path), _correlation(request))
    if error.status_code == 405:
        answer = error_answer(unknown_method(request.method, request.url.path), _correlation(request))
        answer.headers["Allow"] = ", ".join(_methods(request))
        return answer
    return error_answer(BadRequest(str(error.detail)), _correlation(request))


async def _on_fault(request: Request, error: Exception) -> Response:
    """The gate logs it: whoever handles an unexpected error here sees it raised again there."""
    return error_answer(fault_of_ours(), _correlation(request))


def _methods(request: Request) -> list[str]:
    app: FastAPI = request.app
    found = [route for route in app.routes if isinstance(route, Route | APIRoute)]
    matching = [route for route in found if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


def _correlation(request: Request) -> str:
    return str(request.scope["state"]["correlation"])
