"""Reads one resource for reporting. Each object becomes a row as it is decoded, so that the edge never holds all
objects of a large cluster. Objects that are not reported are left out. A callback gets the outcome of each request."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from shoal.client import (
    EVERYTHING,
    Client,
    MetadataClient,
    Page,
    ResourceClient,
    ResourceType,
    Scope,
    Watch,
    WatchEvent,
)
from shoal.client.verbs import PAGE
from shoal.client.watch import BOOKMARK, DELETED, Decode
from shoal.errors import BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType
from shoal.kube.objects import Obj
from shoal.navigator.edge.reporting import Namespaces, row_of
from shoal.navigator.model import ReportedKind

ROW = "row"
_KEPT = ("name", "namespace", "uid", "resourceVersion")
_NO_WATCH_LISTS = (BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType)


class MonitoredResource(ResourceClient):
    """A resource that calls ``on_answer`` after each request: with None, or with the error."""

    __slots__ = ("_on_answer",)

    def __init__(
        self, client: Client, resource_type: ResourceType, on_answer: Callable[[Exception | None], None]
    ) -> None:
        super().__init__(client, resource_type)
        self._on_answer = on_answer

    async def page(
        self, scope: Scope = EVERYTHING, *, limit: int = PAGE, continue_token: str = "", resource_version: str = ""
    ) -> Page:
        try:
            page = await super().page(
                scope, limit=limit, continue_token=continue_token, resource_version=resource_version
            )
        except Exception as error:
            self._on_answer(error)
            raise
        self._on_answer(None)
        return page

    async def watch(
        self,
        scope: Scope = EVERYTHING,
        *,
        resource_version: str = "",
        bookmarks: bool = True,
        initial_events: bool = False,
        timeout_s: int = 0,
    ) -> Watch:
        try:
            watch = await super().watch(
                scope, resource_version=resource_version, bookmarks=bookmarks, initial_events=initial_events,
                timeout_s=timeout_s,
            )  # fmt: skip
        except Exception as error:
            if not (initial_events and isinstance(error, _NO_WATCH_LISTS)):  # then it is listed instead
                self._on_answer(error)
            raise
        self._on_answer(None)
        return watch


class MonitoredMetadata(MonitoredResource, MetadataClient):
    """The same, reading only metadata."""

    __slots__ = ()


class ReportedResource(MonitoredResource):
    """A resource whose objects are ``{"metadata": {…}, "row": bytes}``."""

    __slots__ = ("_kind", "_namespaces")

    def __init__(
        self,
        client: Client,
        resource_type: ResourceType,
        kind: ReportedKind,
        namespaces: Namespaces,
        on_answer: Callable[[Exception | None], None],
    ) -> None:
        own = copy(client)
        own.decode = self._decoding(client.decode)
        super().__init__(own, resource_type, on_answer)
        self._kind = kind
        self._namespaces = namespaces

    async def page(
        self, scope: Scope = EVERYTHING, *, limit: int = PAGE, continue_token: str = "", resource_version: str = ""
    ) -> Page:
        page = await super().page(scope, limit=limit, continue_token=continue_token, resource_version=resource_version)
        wanted = self._namespaces.wants_object
        items = [self._reported(item) for item in page.items if wanted(self._kind, item["metadata"])]
        return Page(items, page.resource_version, page.continue_token, page.remaining)

    def _decoding(self, decode: Decode) -> Decode:
        def decoded(line: bytes) -> WatchEvent:
            event = decode(line)
            if event.type == BOOKMARK:
                return event
            metadata = event.object["metadata"]
            if not self._namespaces.wants_object(self._kind, metadata):
                return WatchEvent(BOOKMARK, {"metadata": {"resourceVersion": event.resource_version}})
            return WatchEvent(event.type, self._reported(event.object, gone=event.type == DELETED))

        return decoded

    def _reported(self, obj: Obj, *, gone: bool = False) -> Obj:
        metadata = obj["metadata"]
        kept = {name: metadata[name] for name in _KEPT if name in metadata}
        return {"metadata": kept, ROW: b"" if gone else row_of(self._kind, self.type.version, obj)}
