"""The verbs of one resource: read, write, patch, apply, delete, watch, and its subresources. Objects are plain dicts.

Options that Kubernetes calls by long names are keyword arguments here; options that are not given are not sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from shoal.client.resource import ResourceType
from shoal.client.transport import StreamReply
from shoal.client.watch import Watch
from shoal.errors import Expired
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from shoal.client.client import Client

PAGE = 500


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. ``remaining`` is None when the server does not say."""

    items: list[Obj]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list and the revision it shows."""

    items: list[Obj]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects a list, a watch or a collection delete is about; all of them by default."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def params(self) -> dict[str, str | int | bool]:
        found: dict[str, str | int | bool] = {}
        if self.label_selector:
            found["labelSelector"] = self.label_selector
        if self.field_selector:
            found["fieldSelector"] = self.field_selector
        return found


EVERYTHING = Scope()


class ResourceClient:
    """Calls about one resource. Cheap to make."""

    __slots__ = ("_client", "type")

    # in which form answers are asked for; None: whole objects
    _one: ClassVar[Mapping[str, str] | None] = None
    _many: ClassVar[Mapping[str, str] | None] = None

    def __init__(self, client: Client, resource_type: ResourceType) -> None:
        self._client = client
        self.type = resource_type

    @property
    def metadata(self) -> MetadataClient:
        """The same resource, reading only metadata."""
        return MetadataClient(self._client, self.type)

    # reading

    async def get(self, name: str, namespace: str = "", *, resource_version: str = "") -> Obj:
        params = {"resourceVersion": resource_version} if resource_version else None
        path = self.type.path(namespace, name)
        found: Obj = await self._client.request("GET", path, params=params, headers=self._one)
        return found

    async def page(
        self, scope: Scope = EVERYTHING, *, limit: int = PAGE, continue_token: str = "", resource_version: str = ""
    ) -> Page:
        """One part of a list; ``limit`` 0 asks for all at once."""
        params = scope.params()
        if limit:
            params["limit"] = limit
        if continue_token:
            params["continue"] = continue_token
        elif resource_version:
            params["resourceVersion"] = resource_version
        path = self.type.path(scope.namespace)
        answer = await self._client.request("GET", path, params=params or None, headers=self._many)
        about = answer.get("metadata") or {}
        return Page(
            _typed_items(answer),
            about.get("resourceVersion", ""),
            about.get("continue", ""),
            about.get("remainingItemCount"),
        )

    async def pages(
        self, scope: Scope = EVERYTHING, *, limit: int = PAGE, resource_version: str = "", may_move: bool = False
    ) -> AsyncIterator[Page]:
        """A list in parts, all of one revision. When the server drops that revision before the end, the other parts are
        of a later one with ``may_move``, else ``Expired``."""
        page = await self.page(scope, limit=limit, resource_version=resource_version)
        yield page
        while page.continue_token:
            try:
                page = await self.page(scope, limit=limit, continue_token=page.continue_token)
            except Expired as expired:
                if not may_move or not expired.continue_token:
                    raise
                page = await self.page(scope, limit=limit, continue_token=expired.continue_token)
            yield page

    async def list(self, scope: Scope = EVERYTHING, *, limit: int = PAGE, resource_version: str = "") -> Listed:
        """All objects of one revision, fetched in parts; in one request when the parts expire."""
        items: list[Obj] = []
        version = ""
        try:
            async for page in self.pages(scope, limit=limit, resource_version=resource_version):
                items += page.items
                version = version or page.resource_version
        except Expired:
            if not items:
                raise  # the revision that was asked for is gone, not one we got a part of
            whole = await self.page(scope, limit=0)
            return Listed(whole.items, whole.resource_version)
        return Listed(items, version)

    async def watch(
        self,
        scope: Scope = EVERYTHING,
        *,
        resource_version: str = "",
        bookmarks: bool = True,
        initial_events: bool = False,
        timeout_s: int = 0,
    ) -> Watch:
        """Changes after ``resource_version``. With ``initial_events`` the objects that exist come first, ended by a
        bookmark; ``Invalid`` or ``BadRequest`` when the server does not know that."""
        params = scope.params() | {"watch": True}
        if bookmarks or initial_events:
            params["allowWatchBookmarks"] = True
        if initial_events:
            params |= {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}
        if resource_version:
            params["resourceVersion"] = resource_version
        if timeout_s:
            params["timeoutSeconds"] = timeout_s
        reply = await self._client.stream("GET", self.type.path(scope.namespace), params=params, headers=self._one)
        return Watch(reply, self._client.decode)

    # writing

    async def create(self, obj: Obj, namespace: str = "", *, dry_run: bool = False, field_manager: str = "") -> Obj:
        path = self.type.path(namespace or _namespace_of(obj))
        return await self._write("POST", path, self._typed(obj), self._options(dry_run, field_manager))

    async def replace(self, obj: Obj, *, subresource: str = "", dry_run: bool = False, field_manager: str = "") -> Obj:
        """Write the whole object; ``Conflict`` when it changed since the ``resourceVersion`` it carries."""
        path = self.type.path(_namespace_of(obj), obj["metadata"]["name"], subresource)
        return await self._write("PUT", path, self._typed(obj), self._options(dry_run, field_manager))

    async def replace_status(self, obj: Obj, *, field_manager: str = "") -> Obj:
        """Write the object's status and nothing else of it."""
        return await self.replace(obj, subresource="status", field_manager=field_manager)

    async def patch(
        self,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
    ) -> Obj:
        path = self.type.path(namespace, name, subresource)
        return await self._write("PATCH", path, patch, self._options(dry_run, field_manager), content_type=type)

    async def apply(
        self,
        obj: Obj,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Server-side apply: send the fields that this manager wants. ``Conflict`` names fields that others own with
        other values, unless it is forced."""
        path = self.type.path(_namespace_of(obj), obj["metadata"]["name"], subresource)
        params = self._options(dry_run, field_manager) | ({"force": True} if force else {})
        return await self._write("PATCH", path, self._typed(obj), params, content_type=PatchType.APPLY)

    async def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        propagation: Propagation | None = None,
        grace_period_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Delete one object, if ``uid`` and ``resource_version`` are still the ones given. The answer is the object or
        a Status, as its kind has it."""
        options = _delete_options(propagation, grace_period_s, uid, resource_version, dry_run)
        return await self._write("DELETE", self.type.path(namespace, name), options, {})

    async def delete_collection(
        self,
        scope: Scope,
        *,
        propagation: Propagation | None = None,
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> Obj:
        options = _delete_options(propagation, grace_period_s, "", "", dry_run)
        return await self._write("DELETE", self.type.path(scope.namespace), options, scope.params())

    # subresources

    async def get_subresource(self, name: str, subresource: str, namespace: str = "") -> Obj:
        found: Obj = await self._client.request("GET", self.type.path(namespace, name, subresource))
        return found

    async def create_subresource(
        self, name: str, subresource: str, body: Obj, namespace: str = "", *, retry: bool = True
    ) -> Obj:
        return await self._write("POST", self.type.path(namespace, name, subresource), body, {}, retry=retry)

    async def scale(self, name: str, replicas: int, namespace: str = "") -> Obj:
        """Set the number of replicas through the ``scale`` subresource."""
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(name, patch, namespace, subresource="scale")

    async def bind(self, name: str, node: str, namespace: str = "", *, uid: str = "") -> None:
        """Assign a pod to a node; ``uid`` guards against a pod of the same name that came later."""
        about = {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
        await self.create_subresource(name, "binding", binding, namespace)

    async def evict(self, name: str, namespace: str = "", *, grace_period_s: int | None = None) -> None:
        """Delete a pod unless a disruption budget forbids it: then ``TooManyRequests``, which is not retried here."""
        eviction: Obj = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if grace_period_s is not None:
            eviction["deleteOptions"] = {"gracePeriodSeconds": grace_period_s}
        await self.create_subresource(name, "eviction", eviction, namespace, retry=False)

    async def token(
        self, name: str, namespace: str, *, audiences: tuple[str, ...] = (), expires_s: int | None = None
    ) -> str:
        """A token of a service account."""
        spec: Obj = {"audiences": list(audiences)}
        if expires_s is not None:
            spec["expirationSeconds"] = expires_s
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.create_subresource(name, "token", request, namespace)
        found: str = answer["status"]["token"]
        return found

    async def log(
        self, name: str, namespace: str, *, container: str = "", follow: bool = False, tail_lines: int | None = None
    ) -> StreamReply:
        """A container's log, as bytes; close it in the end."""
        params: dict[str, str | int | bool] = {}
        if container:
            params["container"] = container
        if follow:
            params["follow"] = True
        if tail_lines is not None:
            params["tailLines"] = tail_lines
        path = self.type.path(namespace, name, "log")
        return await self._client.stream("GET", path, params=params or None, headers={"accept": "*/*"})

    # shared

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, str | int | bool],
        *,
        content_type: str = "application/json",
        retry: bool = True,
    ) -> Obj:
        found: Obj = await self._client.request(
            method, path, params=params or None, body=body, content_type=str(content_type), retry=retry
        )
        return found

    def _options(self, dry_run: bool, field_manager: str) -> dict[str, str | int | bool]:
        params: dict[str, str | int | bool] = {"fieldManager": field_manager or self._client.field_manager}
        if dry_run:
            params["dryRun"] = "All"
        return params

    def _typed(self, obj: Obj) -> Obj:
        """The object with kind and apiVersion, which items of built-in lists lack."""
        if "kind" in obj and "apiVersion" in obj:
            return obj
        if not self.type.kind:
            return {"apiVersion": self.type.api_version, **obj}
        return {"apiVersion": self.type.api_version, "kind": self.type.kind, **obj}


def _namespace_of(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("namespace") or ""


_AS = "application/json;as={};g=meta.k8s.io;v=v1,application/json"


class MetadataClient(ResourceClient):
    """The verbs of a resource; reads return only metadata. A server without support sends whole objects."""

    __slots__ = ()

    _one = {"accept": _AS.format("PartialObjectMetadata")}
    _many = {"accept": _AS.format("PartialObjectMetadataList")}


def _typed_items(answer: Obj) -> list[Obj]:
    """The items of a list, with the kind and version that built-in lists leave out."""
    items: list[Obj] = answer.get("items") or []
    kind, api_version = answer.get("kind", ""), answer.get("apiVersion", "")
    if not items or "kind" in items[0] or not kind.endswith("List"):
        return items
    head = {"apiVersion": api_version, "kind": kind.removesuffix("List")}
    return [head | item for item in items]


def _delete_options(
    propagation: Propagation | None, grace_period_s: int | None, uid: str, resource_version: str, dry_run: bool
) -> Obj:
    options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation is not None:
        options["propagationPolicy"] = propagation.value
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if preconditions:
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    return options
