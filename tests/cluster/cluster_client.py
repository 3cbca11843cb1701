"""A plain HTTPS client of a server process: one connection, JSON in and out."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from shoal.testing.servers import ServerProcess

GONE = (OSError, http.client.HTTPException)  # what a request raises when the server is not there (any more)


class Client:
    """Every method raises one of ``GONE`` once the server is gone."""

    def __init__(self, server: ServerProcess) -> None:
        parts = urlsplit(server.url)
        context = ssl.create_default_context(cafile=server.ca_file)
        self._http = http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context, timeout=20)
        self._headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None, content_type: str = "") -> tuple[int, Any]:
        headers = {**self._headers, "Content-Type": content_type} if content_type else self._headers
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._http.getresponse()
        return answer.status, json.loads(answer.read())

    def ok(self, method: str, path: str, body: object = None, content_type: str = "") -> Any:
        status, answer = self.call(method, path, body, content_type)
        assert status < 300, (method, path, status, answer)
        return answer

    def watch(self, path: str, seconds: int = 1) -> list[Any]:
        """All events of a watch until the server ends it."""
        self._http.request("GET", f"{path}&timeoutSeconds={seconds}", headers=self._headers)
        answer = self._http.getresponse()
        assert answer.status == 200, answer.read()
        return [json.loads(line) for line in answer.read().splitlines()]

    def close(self) -> None:
        self._http.close()
