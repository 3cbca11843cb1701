"""What holds for every API that is made of ``shoal.rest``: the control plane's, the navigator's, and a small one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import answers_world
import api_world
import httpx
import pytest
from msgspec import Meta, Struct
from openapi_spec_validator import validate

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.errors import Forbidden, Invalid, NotFound, Unauthorized
from shoal.navigator.answers.api import make_api
from shoal.rest.answers import RestAnswer
from shoal.rest.api import RestApi, RestApiDeps, RestMetrics
from shoal.rest.conditions import IfMatch, etag, precondition, under
from shoal.rest.openapi import ApiDescription
from shoal.rest.operations import Operation, RestCall, RestPage, always_public
from shoal.rest.request import RestRequest
from shoal.rest.streams import RestStreams

WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An API and an example of each thing that APIs have. ``forbidden`` is tried with the token of ``reader``."""

    api: RestApi[Any, Any]
    writer: str
    reader: str
    listed: str  # a path that lists
    written: str  # a path that takes a body by PUT or POST
    method: str
    wrong: dict[str, Any]  # a body with one wrong field
    wrong_field: str
    forbidden: tuple[str, str, Any]
    stream: str
    tagged: tuple[str, Any] = ("", None)  # a path with an ETag, and a body that changes it

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.api, client=("10.1.2.3", 1))
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token != "":
            sent["Authorization"] = f"Bearer {self.writer if token is None else token}"
        async with httpx.AsyncClient(transport=transport, base_url="https://api.example") as client:
            if isinstance(body, bytes):
                sent.setdefault("Content-Type", "application/json")
                return await client.request(method, path, content=body, headers=sent)
            return await client.request(method, path, json=body, headers=sent)


class Paging(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=10)] = 5


class Thing(Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=0, le=9)]


class Small:
    """One thing with a version, a stream that goes on, a page, and an application that is mounted."""

    def __init__(self) -> None:
        clock, metrics = RealClock(), RestMetrics(Metrics(), "small")
        self.version, self.size = 1, 0
        self.streams = RestStreams(self.authenticate, clock, metrics.streams, owner="the small one")
        deps = RestApiDeps(
            owner="small", clock=clock, new_id=Ids().new_uid, metrics=metrics, streams=self.streams,
            authenticate=self.authenticate, admit=self.admit, authorize=self.authorize, max_body_bytes=1000,
        )  # fmt: skip
        about = ApiDescription(title="Small", version="1", text="…", errors=(Unauthorized, Invalid))
        operations = [
            self._operation("GET", "/thing", self.get, Thing),
            self._operation("PUT", "/thing", self.put, Thing, needs="write", errors=(Forbidden,)),
            self._operation("GET", "/things", self.list_, list[Thing]),
            self._operation("GET", "/stream", self.stream, str, media="text/event-stream"),
            self._operation("GET", "/fault", self.fault, Thing, errors=(NotFound,)),
        ]
        pages = [RestPage(path="/ui/*", handler=self.mounted, public=always_public), RestPage(path="/own", handler=self.own)]  # fmt: skip
        self.api = RestApi(deps, about, operations, pages)

    @staticmethod
    def _operation(method: str, path: str, handler: Any, answer: Any, **more: Any) -> Operation:
        return Operation(
            method=method, path=path, id=f"{method}{path}", tag="things", summary="…", handler=handler,
            answers={200: answer}, **more,
        )  # fmt: skip

    async def authenticate(self, token: str) -> str | None:
        return token if token in ("writes", "reads") else None

    async def admit(self, request: RestRequest, principal: str) -> str:
        return principal

    def authorize(self, caller: str, needs: str) -> None:
        if needs != "write" or caller != "writes":
            raise Forbidden(f"{caller} may not {needs}")

    async def get(self, call: RestCall[str]) -> RestAnswer:
        return RestAnswer(b'{"size":%d}' % self.size, headers={"ETag": etag(self.version)})

    async def put(self, call: RestCall[str], headers: IfMatch, body: Thing) -> Thing:
        async def version() -> int:
            return self.version

        async def change(wanted: int | None) -> Thing:
            self.version, self.size = self.version + 1, body.size
            return body

        return await under(precondition(headers), "the thing", version, change)

    async def list_(self, call: RestCall[str], query: Paging) -> list[Thing]:
        return [Thing(self.size)] * query.limit

    async def stream(self, call: RestCall[str]) -> Any:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield b"data: 1\n\n"
                await asyncio.sleep(0)

        return self.streams.events(call.request.token, parts(), "things")  # type: ignore[arg-type]

    async def fault(self, call: RestCall[str]) -> Thing:
        raise RuntimeError("a secret")

    async def mounted(self, request: RestRequest) -> Any:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            await RestAnswer(scope["path"].encode(), media="text/plain")(scope, receive, send)

        return application

    async def own(self, request: RestRequest) -> RestAnswer:
        return RestAnswer(b"own", media="text/plain")


@asynccontextmanager
async def control(folder: Path) -> AsyncIterator[Subject]:
    async with api_world.a_world({"main": f"sqlite:///{folder}/fleet.db"}) as world:
        await world.prepare()
        await world.put_app()
        app = f"{api_world.ENV}/apps/web"
        yield Subject(
            api=world.api, writer=world.admin.token, reader=world.viewer.token, listed=f"{api_world.ENV}/apps",
            written=f"{app}/move", method="POST", wrong={"region": "eu", "cluster": 3}, wrong_field="cluster",
            forbidden=("PUT", app, api_world.an_app()), stream="/api/v1/events?follow=true",
            tagged=(app, api_world.an_app(env={"A": "1"})),
        )  # fmt: skip


@asynccontextmanager
async def navigator(folder: Path) -> AsyncIterator[Subject]:
    world = answers_world.the_world()
    api = make_api(
        lambda: world.view, world.history, world.edges, world.fleet, authenticate=answers_world.authenticate,
        clock=answers_world.WorldClock(), changes=world.changes, admin=world.admin, options=world.options, metrics=Metrics(),
    )  # fmt: skip
    check = "/api/v1/checks/mine"
    yield Subject(
        api=api, writer=answers_world.TOKEN, reader=answers_world.READER, listed="/api/v1/services", written=check,
        method="PUT", wrong={"query": "pods", "expect": "many"}, wrong_field="expect",
        forbidden=("PUT", check, {"query": "pods"}), stream="/api/v1/pods/eu-1/shop/web-1/logs",
    )  # fmt: skip


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Subject]:
    yield Subject(
        api=Small().api, writer="writes", reader="reads", listed="/things", written="/thing", method="PUT",
        wrong={"size": 10}, wrong_field="size", forbidden=("PUT", "/thing", {"size": 1}), stream="/stream",
        tagged=("/thing", {"size": 3}),
    )  # fmt: skip


@dataclass(frozen=True)
class Requests:
    """Requests to a subject."""

    subject: Subject

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        async with asyncio.timeout(WAIT_S):
            return await self.subject.ask(method, path, body, **more)

    async def refused(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str, dict[str, Any]]:
        """Status, code and the whole error, which has the shape that all errors have."""
        answer = await self(method, path, body, **more)
        error: dict[str, Any] = answer.json()["error"]
        assert set(error) == {"code", "message", "details", "correlation"}
        assert error["correlation"] == answer.headers["x-correlation-id"]
        assert answer.headers["cache-control"] == "no-store"
        return answer.status_code, error["code"], {**error, "headers": answer.headers}


@pytest.fixture(scope="module", params=[control, navigator, small], ids=lambda each: str(each.__name__))
async def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Requests]:
    async with request.param(tmp_path_factory.mktemp("rest")) as subject:
        yield Requests(subject)


async def test_an_unknown_path_is_404_and_a_wrong_method_405_with_those_that_are_possible(ask: Requests) -> None:
    status, code, error = await ask.refused("GET", "/api/v1/nothing/here")
    assert (status, code) == (404, "NotFound") and "/api/v1/nothing/here" in error["message"]
    status, code, error = await ask.refused("PATCH", ask.subject.listed)
    assert (status, code) == (405, "MethodNotAllowed") and "GET" in error["headers"]["allow"]


async def test_a_request_without_a_token_or_with_one_that_is_not_known_is_401(ask: Requests) -> None:
    for token in ("", "stolen"):
        for path in (ask.subject.listed, "/api/v1/nothing", ask.subject.stream):
            status, code, error = await ask.refused("GET", path, token=token)
            assert (status, code) == (401, "Unauthorized")
            assert error["headers"]["www-authenticate"].startswith("Bearer")


async def test_what_the_sender_may_not_do_is_403(ask: Requests) -> None:
    method, path, body = ask.subject.forbidden
    assert (await ask.refused(method, path, body, token=ask.subject.reader))[:2] == (403, "Forbidden")


@pytest.mark.parametrize("body", [b"{", b'{"a": nul}', b"\xff"])
async def test_a_body_that_is_not_json_is_400(ask: Requests, body: bytes) -> None:
    assert (await ask.refused(ask.subject.method, ask.subject.written, body))[:2] == (400, "BadRequest")


async def test_a_body_that_is_not_there_is_400_and_one_too_large_413(ask: Requests) -> None:
    assert (await ask.refused(ask.subject.method, ask.subject.written, b""))[:2] == (400, "BadRequest")
    large = await ask.refused(ask.subject.method, ask.subject.written, b" " * 2_000_000)
    assert large[:2] == (413, "RequestEntityTooLarge")


async def test_a_wrong_field_is_422_with_its_path(ask: Requests) -> None:
    status, code, error = await ask.refused(ask.subject.method, ask.subject.written, ask.subject.wrong)
    assert (status, code) == (422, "Invalid")
    assert [each["field"] for each in error["details"]] == [ask.subject.wrong_field]
    status, code, error = await ask.refused(
        ask.subject.method, ask.subject.written, {**ask.subject.wrong, "colour": "red"}
    )
    assert {each["field"] for each in error["details"]} == {ask.subject.wrong_field, "colour"}, "all at once"


async def test_a_wrong_or_unknown_parameter_is_422_with_its_name(ask: Requests) -> None:
    status, code, error = await ask.refused("GET", f"{ask.subject.listed}?limit=0&colour=red")
    assert (status, code) == (422, "Invalid")
    assert [each["field"] for each in error["details"]] == ["query.limit", "query.colour"]
    assert "known parameters" in error["details"][1]["message"]


@pytest.mark.parametrize("ask", [control, small], indirect=True, ids=lambda each: str(each.__name__))
async def test_a_change_is_made_only_at_the_version_that_it_was_made_for(ask: Requests) -> None:
    path, body = ask.subject.tagged
    tag = (await ask("GET", path)).headers["etag"]
    assert (await ask("PUT", path, body, If_Match=tag)).status_code == 200
    assert (await ask("GET", path)).headers["etag"] != tag
    assert (await ask.refused("PUT", path, body, If_Match=tag))[:2] == (412, "PreconditionFailed")
    assert (await ask.refused("PUT", path, body, If_Match="17"))[:2] == (400, "BadRequest"), "an ETag has quotes"
    assert (await ask("PUT", path, body, If_Match="*")).status_code == 200


async def test_a_stream_ends_when_its_client_goes_away(ask: Requests) -> None:
    subject = ask.subject
    gone, said = asyncio.Event(), asyncio.Event()
    sent: list[dict[str, Any]] = []
    path, _, query = subject.stream.partition("?")

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            said.set()

    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(), "client": ("10.1.2.3", 1),
        "headers": [(b"authorization", f"Bearer {subject.writer}".encode())],
    }  # fmt: skip
    exchange = asyncio.create_task(subject.api(scope, receive, send), name="exchange")
    async with asyncio.timeout(WAIT_S):
        await said.wait()
        assert sent[0]["status"] == 200
        gone.set()
        await exchange


async def test_the_description_is_valid_and_public_and_so_is_the_page_that_shows_it(ask: Requests) -> None:
    described = await ask("GET", "/openapi.json", token="")
    validate(described.json())
    assert {each.path for each in ask.subject.api.operations} == set(described.json()["paths"])
    page = await ask("GET", "/docs", token="")
    assert page.headers["content-type"].startswith("text/html") and "://" not in page.text
    assert "unsafe" not in page.headers["content-security-policy"]
    head = await ask("HEAD", "/openapi.json", token="")
    assert (head.status_code, head.content) == (200, b"")


async def test_correlation_and_trace_go_along(ask: Requests) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = await ask("GET", ask.subject.listed, X_Correlation_Id="deploy-7", traceparent=trace)
    assert (answer.headers["x-correlation-id"], answer.headers["traceparent"]) == ("deploy-7", trace)


@pytest.fixture(scope="module")
async def small_one(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Requests]:
    async with small(tmp_path_factory.mktemp("rest")) as subject:
        yield Requests(subject)


async def test_an_internal_error_is_500_without_details(small_one: Requests) -> None:
    status, code, error = await small_one.refused("GET", "/fault")
    assert (status, code) == (500, "InternalError") and "secret" not in str(error)


async def test_an_application_can_be_mounted_and_a_page_needs_a_token_unless_it_is_public(
    small_one: Requests,
) -> None:
    assert (await small_one("GET", "/ui/app/main.js", token="")).text == "/ui/app/main.js"
    assert (await small_one("GET", "/own", token="")).status_code == 401
    assert (await small_one("GET", "/own")).text == "own"


async def test_a_client_that_takes_nothing_holds_one_part(small_one: Requests) -> None:
    taken, gone = asyncio.Semaphore(3), asyncio.Event()
    sent = 0

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal sent
        sent += 1
        await taken.acquire()

    scope = {
        "type": "http", "method": "GET", "path": "/stream", "query_string": b"", "client": None,
        "headers": [(b"authorization", b"Bearer reads")],
    }  # fmt: skip
    exchange = asyncio.create_task(small_one.subject.api(scope, receive, send), name="exchange")
    for _ in range(100):
        await asyncio.sleep(0)
    gone.set()
    async with asyncio.timeout(WAIT_S):
        await exchange
    assert sent == 4, "the fourth part waits for the client"
