"""Reading objects without what they contain: the server sends their metadata alone (PartialObjectMetadata)."""

from __future__ import annotations

from shoal.client import EVERYTHING, Obj, Page, ResourceClient, Scope, Watch
from shoal.client.verbs import PAGE

_AS = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
_ONE = {"accept": _AS.format("PartialObjectMetadata")}
_MANY = {"accept": _AS.format("PartialObjectMetadataList")}


class MetadataClient(ResourceClient):
    """The verbs of a resource; what is read has only metadata. A server that cannot do this sends all."""

    __slots__ = ()

    async def get(self, name: str, namespace: str = "", *, resource_version: str = "") -> Obj:
        params = {"resourceVersion": resource_version} if resource_version else None
        found: Obj = await self._client.request("GET", self.type.path(namespace, name), params=params, headers=_ONE)
        return found

    async def page(
        self, scope: Scope = EVERYTHING, *, limit: int = PAGE, continue_token: str = "", resource_version: str = ""
    ) -> Page:
        params = scope.params()
        if limit:
            params["limit"] = limit
        if continue_token:
            params["continue"] = continue_token
        elif resource_version:
            params["resourceVersion"] = resource_version
        path = self.type.path(scope.namespace)
        answer = await self._client.request("GET", path, params=params or None, headers=_MANY)
        about = answer.get("metadata") or {}
        version, token = about.get("resourceVersion", ""), about.get("continue", "")
        return Page(answer.get("items") or [], version, token, about.get("remainingItemCount"))

    async def watch(
        self,
        scope: Scope = EVERYTHING,
        *,
        resource_version: str = "",
        bookmarks: bool = True,
        initial_events: bool = False,
        timeout_s: int = 0,
    ) -> Watch:
        params = scope.params() | {"watch": True}
        if bookmarks or initial_events:
            params["allowWatchBookmarks"] = True
        if initial_events:
            params |= {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}
        if resource_version:
            params["resourceVersion"] = resource_version
        if timeout_s:
            params["timeoutSeconds"] = timeout_s
        return Watch(await self._client.stream("GET", self.type.path(scope.namespace), params=params, headers=_ONE))
