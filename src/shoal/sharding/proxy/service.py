"""The proxy as an application: authenticates requests and routes them to guarded reads and writes."""

from __future__ import annotations

import hmac
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import parse_qsl

import orjson

from shoal.base.asgi import Application, Receive, Scope, Send, answer
from shoal.base.tasks import wait_first
from shoal.client import Client, LostLease, TransportError
from shoal.client.transport import Reply
from shoal.errors import ApiError, Conflict, Expired, ServiceUnavailable, TooLarge, Unauthorized
from shoal.sharding.proxy.kinds import Kinds
from shoal.sharding.proxy.load import ProxyLoad
from shoal.sharding.proxy.reading import VisibleSlots, narrowed_watch, unnarrowed, without_epoch
from shoal.sharding.proxy.requests import target_of
from shoal.sharding.proxy.writing import ProxyWrites
from shoal.sharding.worker import OwnershipLost

_LIMIT_BYTES = 4 * 1024 * 1024
_READING = ("GET", "HEAD", "OPTIONS")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    receive: Receive
    send: Send

    @property
    def whole(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def watches(self) -> bool:
        return self.method == "GET" and dict(parse_qsl(self.query)).get("watch", "").lower() in ("true", "1")

    @property
    def streams(self) -> bool:
        """Whether the answer ends only with the client or the server."""
        return self.watches or "follow=true" in self.query

    @property
    def accept(self) -> dict[str, str]:
        """JSON only: the proxy reads what it passes on."""
        asked = [part for part in self.headers.get("accept", "").split(",") if "json" in part or "*/*" in part]
        return {"accept": ",".join(asked) or _JSON}

    async def reply(self, reply: Reply, config: str = "") -> None:
        """``config``: without its epochs."""
        body = without_epoch(reply.body, config) if config else reply.body
        await answer(self.send, reply.status, body, reply.headers.get("content-type", _JSON))

    async def stream(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Until the pieces end or the client disconnects. The first piece may be empty. It comes once the server has
        accepted the request; an error before it becomes a response of its own."""

        async def pump() -> None:
            async with aclosing(pieces) as reading:
                first = await anext(reading)
                headers = [(b"content-type", _JSON.encode())]
                await self.send({"type": "http.response.start", "status": 200, "headers": headers})
                await self.send({"type": "http.response.body", "body": first, "more_body": True})
                async for piece in reading:
                    await self.send({"type": "http.response.body", "body": piece, "more_body": True})
            await self.send({"type": "http.response.body", "body": b""})

        async def gone() -> None:
            while (await self.receive())["type"] != "http.disconnect":
                pass

        await wait_first(pump(), gone())


def make_app(
    client: Client, kinds: Kinds, share: VisibleSlots, writes: ProxyWrites, load: ProxyLoad, *, token: str
) -> Application:
    """``client`` has the worker's own credentials; callers need ``token``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            authenticate(headers, token)
            query = scope["query_string"].decode()
            body = await _body(receive)
            call = _Call(scope["method"], scope["path"], query, headers, body, receive, send)
            if call.streams:
                await _serve(call)
            else:
                with load.request():
                    await _serve(call)
        except ApiError as error:
            await _refuse(send, error)
        except (OwnershipLost, LostLease) as error:
            await _refuse(send, Conflict(str(error)))
        except TransportError as error:
            await _refuse(send, ServiceUnavailable(str(error)))

    async def _serve(call: _Call) -> None:
        target = target_of(call.path)
        kind = kinds.sharded(target) if target is not None else None
        if kind is None or target is None:
            await _pass(call)
        elif call.method not in _READING:
            reply = await writes.write(call.method, target, kind, call.query, call.headers, call.body)
            await call.reply(reply, share.config)
        elif target.name:
            await _pass(call, share.config)
        elif call.watches:
            await call.stream(narrowed_watch(client, call.path, call.query, share))
        else:
            await _list(call)

    async def _list(call: _Call) -> None:
        generation = share.generation
        narrowed = f"{call.path}?{share.narrowed(call.query)}"
        reply = await client.send(call.method, narrowed, headers=call.accept, retry=False)
        if reply.status < 300:
            version = orjson.loads(reply.body)["metadata"].get("resourceVersion", "")
            if dict(parse_qsl(call.query)).get("continue") and not share.continues(version):
                raise Expired("the shard's slots have changed since the first page: list again")
            share.tell(version, generation)
        await call.reply(reply, share.config)

    async def _pass(call: _Call, config: str = "") -> None:
        """Requests for kinds that are not sharded are forwarded unchanged, with the worker's own rights."""
        if call.streams:
            await call.stream(unnarrowed(client, call.whole, call.accept))
            return
        kind = call.headers.get("content-type", _JSON)
        reply = await client.send(
            call.method, call.whole, body=call.body or None, content_type=kind, headers=call.accept, retry=False
        )
        await call.reply(reply, config)

    return app


def authenticate(headers: Mapping[str, str], token: str) -> None:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise Unauthorized("missing bearer token of the proxy: use the kubeconfig that the proxy wrote")


async def _refuse(send: Send, error: ApiError) -> None:
    await answer(send, error.code, orjson.dumps(error.status()))


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body
        piece: bytes = message.get("body", b"")
        body += piece
        if len(body) > _LIMIT_BYTES:
            raise TooLarge(f"the body is larger than {_LIMIT_BYTES} bytes")
        if not message.get("more_body"):
            return body
