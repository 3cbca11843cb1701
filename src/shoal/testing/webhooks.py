"""An admission and conversion webhook server in this process, with TLS.

    async def deny(review):
        return denied("not today")

    async with webhook_server({"/deny": deny}) as hooks:
        configuration = validating("deny", hook("deny.example.com", hooks, "/deny", rule("configmaps")))

A handler, async or not, takes the decoded ``request`` of a review. It returns ``allowed()``, ``denied(...)``,
``patched(...)`` or another response as a dict; for conversions, the list of converted objects. All requests are kept in
``WebhookServer.reviews``.

``webhook_server_thread`` runs a server in a thread, for tests without an event loop.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from shoal.apiserver.http import HttpServer
from shoal.apiserver.messages import HttpLimits, Request, RequestTimedOut, Response
from shoal.app.pki import Pki
from shoal.base.clock import RealClock
from shoal.kube.objects import Obj

Reply = Any  # a response dict, a list of converted objects, or a whole HTTP Response
HookHandler = Callable[[Obj], Reply | Awaitable[Reply]]

_HOSTS = ("localhost", "127.0.0.1")
_MAX_REVIEW_BYTES = 64 * 1024 * 1024  # lists are converted in one review


# -- what handlers return ----------------------------------------------------------------------------------------------


def allowed(*warnings: str, **more: Any) -> Obj:
    return {"allowed": True, **({"warnings": list(warnings)} if warnings else {}), **more}


def denied(message: str = "", *, code: int = 0, reason: str = "", **more: Any) -> Obj:
    status = {"message": message, "code": code, "reason": reason}
    return {"allowed": False, "status": {name: value for name, value in status.items() if value}, **more}


def patched(*operations: Obj, **more: Any) -> Obj:
    """Allowed, with these operations of a JSON patch."""
    patch = base64.b64encode(orjson.dumps(operations)).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch", **more}


# -- what configurations are made of -----------------------------------------------------------------------------------


def rule(
    *resources: str,
    operations: Sequence[str] = ("CREATE", "UPDATE"),
    groups: Sequence[str] = ("",),
    versions: Sequence[str] = ("v1",),
    scope: str = "*",
) -> Obj:
    return {
        "apiGroups": list(groups), "apiVersions": list(versions), "operations": list(operations),
        "resources": list(resources), "scope": scope,
    }  # fmt: skip


def hook(name: str, server: WebhookServer, path: str, *rules: Obj, **more: Any) -> Obj:
    """One webhook of a configuration, reached by URL; ``more`` are other fields of it."""
    return {
        "name": name,
        "clientConfig": server.client_config(path),
        "rules": list(rules),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        **more,
    }


def mutating(name: str, *hooks: Obj) -> Obj:
    return _configuration("MutatingWebhookConfiguration", name, hooks)


def validating(name: str, *hooks: Obj) -> Obj:
    return _configuration("ValidatingWebhookConfiguration", name, hooks)


def _configuration(kind: str, name: str, hooks: Sequence[Obj]) -> Obj:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


# -- the server --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WebhookServer:
    """A running server. ``handlers`` may be changed while it runs."""

    handlers: dict[str, HookHandler]
    host: str
    port: int
    ca: bytes  # PEM
    reviews: list[tuple[str, Obj]] = field(default_factory=list)  # path and review, in order of arrival
    connections: int = 0  # accepted since the start
    disconnect: Callable[[bool], None] = lambda rudely: None  # close every connection, as a server that restarts does

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.ca).decode()

    def client_config(self, path: str) -> Obj:
        return {"url": f"https://{self.host}:{self.port}{path}", "caBundle": self.ca_bundle}

    def asked(self, path: str) -> list[Obj]:
        """The requests that came to ``path``."""
        return [review["request"] for at, review in self.reviews if at == path]

    async def handle(self, request: Request) -> Response:
        handler = self.handlers.get(request.path)
        if handler is None:
            return Response(404, b"not found")
        review = orjson.loads(request.body)
        self.reviews.append((request.path, review))
        reply = handler(review["request"])
        if inspect.isawaitable(reply):
            reply = await _patiently(asyncio.ensure_future(_awaited(reply)))
        if isinstance(reply, Response):
            return reply
        return Response(200, orjson.dumps(_answer(review, reply)))


async def _awaited(reply: Awaitable[Any]) -> Any:
    return await reply


async def _patiently(task: asyncio.Task[Any]) -> Any:
    """What a handler returns; it may be async, and may take longer than the caller waits."""
    try:
        while True:
            try:
                return await task
            except RequestTimedOut:
                continue
    finally:
        task.cancel()


def _answer(review: Obj, reply: Any) -> Obj:
    uid = review["request"]["uid"]
    if isinstance(reply, list):
        reply = {"convertedObjects": reply, "result": {"status": "Success"}}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {"uid": uid, **reply}}


@asynccontextmanager
async def webhook_server(
    handlers: Mapping[str, HookHandler], *, host: str = "127.0.0.1", port: int = 0, hosts: Sequence[str] = (),
    pki_dir: Path | None = None,
) -> AsyncIterator[WebhookServer]:  # fmt: skip
    """Run a server with a certificate for ``host`` and ``hosts`` (``name.namespace.svc`` for hooks behind services). To
    start the same server again later, give its ``port`` and a folder for its keys."""
    with tempfile.TemporaryDirectory() as directory:
        pki = Pki(pki_dir or Path(directory) / "pki", now=datetime.now(UTC))
        pair = pki.ensure_server([*dict.fromkeys((host, *_HOSTS, *hosts))])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        ca = pki.ca_cert.read_bytes()
    server = WebhookServer(dict(handlers), host, 0, ca)
    loop = asyncio.get_running_loop()
    limits = HttpLimits(body_bytes=_MAX_REVIEW_BYTES)
    http = HttpServer(server.handle, _on_error, loop=loop, clock=RealClock(), limits=limits)

    def accept() -> asyncio.Protocol:
        server.connections += 1
        return http()

    def disconnect(rudely: bool) -> None:
        for connection in list(http.connections):
            if rudely:
                connection.abort()
            elif connection.transport is not None:
                connection.transport.close()

    server.disconnect = disconnect
    listener = await loop.create_server(accept, host, port, ssl=context, ssl_shutdown_timeout=0.5)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await http.stop(grace_s=0.0)


def _on_error(request: Request, error: Exception) -> Response:
    return Response(500, f"{type(error).__name__}: {error}".encode(), b"text/plain")


@contextmanager
def webhook_server_thread(
    handlers: Mapping[str, HookHandler], *, host: str = "127.0.0.1", port: int = 0, hosts: Sequence[str] = (),
    pki_dir: Path | None = None,
) -> Iterator[WebhookServer]:  # fmt: skip
    """``webhook_server`` in a thread."""
    started: list[WebhookServer] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with webhook_server(handlers, host=host, port=port, hosts=hosts, pki_dir=pki_dir) as server:
            started.append(server)
            ready.set()
            await stop.wait()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="webhook-server", daemon=True)
    thread.start()
    ready.wait()
    if not started:
        raise RuntimeError("the webhook server did not start")
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
