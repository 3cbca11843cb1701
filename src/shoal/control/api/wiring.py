"""The API as one ASGI application: every operation, its route, and the gate in front of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.control.api.answers import error_answer, fault_of_ours, unknown_method, unknown_path
from shoal.control.api.apply import Apply
from shoal.control.api.apps import Apps
from shoal.control.api.calls import Call, Operation, check_query
from shoal.control.api.events import Events
from shoal.control.api.gate import METRICS, ApiMetrics, Gate, log_unavailable
from shoal.control.api.health import Health
from shoal.control.api.idempotency import Answers
from shoal.control.api.master_keys import MasterKeyPaths
from shoal.control.api.objects import Objects
from shoal.control.api.openapi import document
from shoal.control.api.operations import Operations
from shoal.control.api.streams import Streams
from shoal.control.api.tokens import TokenPaths
from shoal.control.database.engine import Databases
from shoal.control.database.tokens import Tokens
from shoal.control.domain.access import OPERATORS
from shoal.control.domain.fleet import Fleet
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import ApiError, BadRequest

TITLE = "Shoal"


def make_api(
    fleet: Fleet,
    tokens: Tokens,
    databases: Databases,
    *,
    clock: Clock,
    metrics: Metrics,
    url: str,
    ca: str,
    version: str,
    operators: Collection[str] = OPERATORS,
    sealer: EnvelopeSealer | None = None,
) -> Gate:
    """``url`` and ``ca`` are what agents and people connect with; ``operators`` must be those of ``fleet``. Whoever
    serves it calls ``end_streams`` before it stops. Without ``sealer`` master keys cannot be rotated."""
    counted, streams = ApiMetrics(metrics), Streams(tokens, clock)
    objects = Objects(fleet, Answers(databases))
    operations = [
        *Operations(fleet, databases, version=version).operations(),
        *Apply(fleet).operations(),
        *objects.operations(),
        *Apps(fleet, objects).operations(),
        *Events(fleet, databases, streams, counted).operations(),
        *MasterKeyPaths(databases, sealer, operators=operators).operations(),
        *TokenPaths(fleet, tokens, clock=clock, url=url, ca=ca, operators=operators).operations(),
    ]
    app = _app(operations, version=version)
    _add_public(app, Health(databases, metrics))
    return Gate(app, tokens, databases, streams, clock=clock, metrics=counted, operators=operators)


def _app(operations: list[Operation], *, version: str) -> FastAPI:
    app = FastAPI(
        title=TITLE, version=version, docs_url=None, redoc_url=None, redirect_slashes=False,
        exception_handlers={ApiError: _on_error, HTTPException: _on_http, Exception: _on_fault},
    )  # fmt: skip
    for operation in operations:
        app.add_api_route(
            operation.path, _endpoint(operation), methods=[operation.method], name=operation.id, tags=[operation.tag],
            operation_id=operation.id, response_model=None,
        )  # fmt: skip
    described = document(operations, title=TITLE, version=version, url="/")
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


def _add_public(app: FastAPI, health: Health) -> None:
    paths = {"/livez": health.livez, "/readyz": health.readyz, METRICS: health.metrics, "/docs": health.docs}
    for path, endpoint in paths.items():
        app.add_api_route(
            path, endpoint, methods=["GET"], tags=["health"], include_in_schema=False, response_model=None
        )


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        state = request.scope["state"]
        check_query(operation, request)
        return await operation.handler(Call(request, state["who"], state["principal"], state["token"]))

    return endpoint


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    log_unavailable(error)
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
    """What is possible at the path; the router itself names the methods of one route only."""
    app: FastAPI = request.app
    found = [route for route in app.routes if isinstance(route, Route | APIRoute)]
    matching = [route for route in found if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


def _correlation(request: Request) -> str:
    state: dict[str, Any] = request.scope["state"]
    return str(state["correlation"])
