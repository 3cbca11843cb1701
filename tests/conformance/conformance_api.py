"""The client of the conformance tests: plain HTTPS, without any of the server's code.

``Api`` sends requests as one user; ``Resource`` is one collection of it; ``Watch`` reads a watch in the background so
that a test can ask for the next event, or for silence. ``conformance`` ties a test to the upstream test it replays.
"""

from __future__ import annotations

import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pytest

from shoal.kube.objects import Obj

Objs = list[Obj]  # named here because a collection has a method called list
Names = list[str]

EVENT_S = 30.0  # how long an expected event may take on a busy machine
SILENCE_S = 0.15  # how long a test waits to see that no event comes
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def conformance(name: str) -> pytest.MarkDecorator:
    """Says which upstream conformance test a test replays, by its exact name."""
    return pytest.mark.conformance(name)


def unique(prefix: str) -> str:
    """A unique name, for objects without a namespace."""
    return f"{prefix}-{secrets.token_hex(4)}"


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(
            f"{response.request.method} {response.request.url.path}: {response.status_code} {response.text}"
        )
        self.code = response.status_code
        self.status: Obj = response.json()
        self.message = str(self.status.get("message", ""))
        self.reason = str(self.status.get("reason", ""))


class Api:
    """One user's requests."""

    def __init__(self, url: str, ca_file: str, token: str) -> None:
        self.url, self.ca_file, self.token = url, ca_file, token
        self.http = httpx.Client(
            base_url=url,
            verify=ssl.create_default_context(cafile=ca_file),
            headers={"Authorization": f"Bearer {token}", "User-Agent": "conformance/1"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=30.0,
            trust_env=False,
        )

    def close(self) -> None:
        self.http.close()

    def as_user(self, token: str) -> Api:
        return Api(self.url, self.ca_file, token)

    def send(
        self, method: str, path: str, body: Any = None, *,
        content_type: str = "application/json", headers: Mapping[str, str] | None = None, **params: Any,
    ) -> httpx.Response:  # fmt: skip
        """One request; Refused unless it succeeds. A body of bytes or text goes out as it is."""
        sent = {**(headers or {})}
        content: bytes | str | None = None
        if body is not None:
            sent["Content-Type"] = content_type
            content = body if isinstance(body, bytes | str) else orjson.dumps(body)
        response = self.http.request(
            method, path, content=content, headers=sent, params={k: v for k, v in params.items() if v not in ("", None)}
        )
        if response.is_error:
            raise Refused(response)
        return response

    def get(self, path: str, *, accept: str = "application/json", **params: Any) -> Any:
        return self.send("GET", path, headers={"Accept": accept}, **params).json()

    def create(self, path: str, obj: Any, **params: Any) -> Any:
        return self.send("POST", path, obj, **params).json()

    def of(self, group_version: str, plural: str, namespace: str = "") -> Resource:
        """The collection of a resource; over all namespaces, or of a cluster-scoped kind, without a namespace."""
        return Resource(self, group_version, plural, namespace)


class Resource:
    """One collection of objects."""

    def __init__(self, api: Api, group_version: str, plural: str, namespace: str = "") -> None:
        root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
        self.api = api
        self.group_version = group_version
        self.plural = plural
        self.path = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"

    def create(self, obj: Obj, **params: Any) -> Obj:
        found: Obj = self.api.create(self.path, obj, **params)
        return found

    def get(self, name: str, sub: str = "") -> Obj:
        found: Obj = self.api.get(self._of(name, sub))
        return found

    def list(self, selector: str = "", fields: str = "", **params: Any) -> Obj:
        found: Obj = self.api.get(self.path, labelSelector=selector, fieldSelector=fields, **params)
        return found

    def items(self, selector: str = "", fields: str = "") -> Objs:
        items: Objs = self.list(selector, fields)["items"]
        return items

    def names(self, selector: str = "", fields: str = "") -> Names:
        return [item["metadata"]["name"] for item in self.items(selector, fields)]

    def replace(self, obj: Obj, sub: str = "", **params: Any) -> Obj:
        found: Obj = self.api.send("PUT", self._of(obj["metadata"]["name"], sub), obj, **params).json()
        return found

    def update(self, name: str, change: Callable[[Obj], None], sub: str = "") -> Obj:
        """Read, change, replace; again after a conflict, as clients do."""
        for _ in range(10):
            obj = self.get(name, sub)
            change(obj)
            try:
                return self.replace(obj, sub)
            except Refused as error:
                if error.reason != "Conflict":
                    raise
        raise AssertionError(f"{self.path}/{name} changes too fast")

    def patch(self, name: str, body: Any, kind: str = "merge", sub: str = "", **params: Any) -> Obj:
        found: Obj = self.api.send(
            "PATCH", self._of(name, sub), body, content_type=PATCHES[kind], **params
        ).json()  # fmt: skip
        return found

    def apply(self, name: str, body: Any, manager: str = "conformance", sub: str = "", **params: Any) -> Obj:
        return self.patch(name, body, "apply", sub, fieldManager=manager, **params)

    def delete(self, name: str, options: Obj | None = None, **params: Any) -> Obj:
        found: Obj = self.api.send("DELETE", self._of(name, ""), options, **params).json()
        return found

    def delete_collection(self, selector: str = "", fields: str = "", options: Obj | None = None) -> Obj:
        found: Obj = self.api.send(
            "DELETE", self.path, options, labelSelector=selector, fieldSelector=fields
        ).json()  # fmt: skip
        return found

    def is_gone(self, name: str) -> bool:
        try:
            self.get(name)
        except Refused as error:
            assert error.reason == "NotFound", error
            return True
        return False

    @contextmanager
    def watch(self, selector: str = "", fields: str = "", after: Any = "", **params: Any) -> Iterator[Watch]:
        """A watch of the collection; ``after`` is a resourceVersion, or an object or list that has one."""
        revision = after["metadata"]["resourceVersion"] if isinstance(after, dict) else after
        query = {
            "watch": "true",
            "timeoutSeconds": 60,
            "labelSelector": selector,
            "fieldSelector": fields,
            "resourceVersion": revision,
            **params,
        }
        http = self.api.http
        request = http.build_request("GET", self.path, params={k: v for k, v in query.items() if v != ""})
        response = http.send(request, stream=True)
        if response.is_error:
            response.read()
            raise Refused(response)
        stream = Watch(response)
        try:
            yield stream
        finally:
            stream.close()

    def _of(self, name: str, sub: str) -> str:
        return f"{self.path}/{name}/{sub}" if sub else f"{self.path}/{name}"


class Watch:
    """The events of a watch, read by a thread of its own."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._events: queue.Queue[Obj | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                self._events.put(orjson.loads(line))
        except httpx.HTTPError:
            pass  # closed by us, or the server went away: either way there is nothing more
        self._events.put(None)

    def next(self, timeout_s: float = EVENT_S) -> Obj:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"no event within {timeout_s} s") from None
        assert event is not None, "the watch has ended"
        return event

    def expect(self, kind: str, name: str = "") -> Obj:
        """The object of the next event, which is of this type and about this object."""
        event = self.next()
        found: Obj = event["object"]
        assert event["type"] == kind, f"{event['type']} instead of {kind}: {found}"
        assert not name or found["metadata"]["name"] == name, f"{found['metadata']['name']} instead of {name}"
        return found

    def until(self, kind: str, wanted: Callable[[Obj], bool] = lambda obj: True) -> Obj:
        """The object of the first event of this type that is as wanted; others before it are passed over."""
        deadline = time.monotonic() + EVENT_S
        seen = []
        while (left_s := deadline - time.monotonic()) > 0:
            event = self.next(left_s)
            if event["type"] == kind and wanted(event["object"]):
                found: Obj = event["object"]
                return found
            seen.append(event["type"])
        raise AssertionError(f"no {kind} event as wanted; seen: {seen}")

    def silent(self, within_s: float = SILENCE_S) -> None:
        """Assert that no event comes for a while."""
        try:
            event = self._events.get(timeout=within_s)
        except queue.Empty:
            return
        raise AssertionError(f"an unexpected event: {event}")

    def close(self) -> None:
        # The reader sits in a read of the socket: only its end wakes it.
        connection = self._response.extensions["network_stream"].get_extra_info("socket")
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server has closed it already
        self._thread.join(EVENT_S)
        self._response.close()


def refused(reason: str, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Refused:
    """The error of an action that must fail for this reason."""
    try:
        done = action(*args, **kwargs)
    except Refused as error:
        assert error.reason == reason, error
        return error
    raise AssertionError(f"accepted, though it must be refused as {reason}: {done}")


def labelled(obj: Obj, **labels: str) -> Obj:
    """The same object with more labels."""
    metadata = obj.get("metadata", {})
    return {**obj, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}
