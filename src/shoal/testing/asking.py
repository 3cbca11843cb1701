"""One request to an ASGI application in this process, also to one that answers with a stream.

answer = await ask(api, "GET", "/api/v1/projects", token=token)
assert answer.status == 200
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def cell(self) -> str:
        """401 and 403 are refusals, 404 hides something; everything else was let through."""
        return str(self.status) if self.status in (401, 403, 404) else "ok"


async def ask(
    api: Any, method: str, path: str, *, token: str = "", body: Any = None, query: str = "", **headers: str
) -> Answered:
    """The answer, or its first part where it is a stream."""
    sent = b"" if body is None else orjson.dumps(body)
    given = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    if token:
        given.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [*given, (b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())],
        "http_version": "1.1", "scheme": "https", "server": ("control", 443), "client": ("10.1.2.3", 1),
        "root_path": "",
    }  # fmt: skip
    messages: list[Any] = []
    begun, read = asyncio.Event(), False

    async def receive() -> dict[str, Any]:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": sent, "more_body": False}
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)
        if message["type"] == "http.response.body":
            begun.set()

    async with asyncio.timeout(30):
        await api(scope, receive, send)
    start = messages[0]
    headers_ = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answered(start["status"], headers_, b"".join(each.get("body", b"") for each in messages[1:]))
