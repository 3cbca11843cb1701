"""The operations of a resource, independent of the version of OpenAPI; ``v3`` and ``v2`` write them as documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from shoal.kube.openapi import parameters
from shoal.kube.openapi.parameters import NAMESPACE, PRETTY, OpenApiParameter
from shoal.kube.resources import Resource, Subresource
from shoal.kube.schema.builtin import META, definition_name

STATUS: Final = META + "Status"
DELETE_OPTIONS: Final = META + "DeleteOptions"
PATCH_BODY: Final = META + "Patch"
VERSION_INFO: Final = "io.k8s.apimachinery.pkg.version.Info"
RESOURCE_LIST: Final = META + "APIResourceList"

_PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON: Final = ("application/json",)
_BODY_TYPES: Final = ("application/json", "application/yaml")
_TEXT: Final = ("text/plain",)
_ANYTHING: Final = ("*/*",)

_METHODS: Final = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}
_WORDS: Final = re.compile(r"[^0-9a-zA-Z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOperation:
    """One method of one path. Schemas are names of definitions; a response without one is plain text."""

    path: str
    method: str
    id: str
    description: str
    tag: str
    action: str = ""
    kind: tuple[str, str, str] | None = None  # group, version, kind
    path_parameters: tuple[OpenApiParameter, ...] = ()  # shared by the methods of the path
    parameters: tuple[OpenApiParameter, ...] = ()
    body: str = ""
    body_types: tuple[str, ...] = ()
    body_required: bool = True
    responses: tuple[tuple[int, str], ...] = ()  # status and definition
    response_types: tuple[str, ...] = _JSON


def camel(text: str, *, capital: bool = True) -> str:
    """``rbac.authorization`` as ``RbacAuthorization``, for operation ids and tags."""
    words = [word for word in _WORDS.split(text) if word]
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    return joined if capital else joined[:1].lower() + joined[1:]


def prefix(group: str, version: str) -> str:
    """``api/v1`` or ``apis/apps/v1``: the name of a group version in the index."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def schema_name(group: str, version: str, kind: str, *, custom: bool) -> str:
    """The name of a kind's definition. For a custom kind it begins with the reversed group:
    ``com.example.v1.Widget``."""
    if custom:
        return ".".join([*reversed(group.split(".")), version, kind])
    return definition_name(group, version, kind)


_ROOTS: Final = {
    "api": ("/api/", "getCoreAPIVersions", "Versions of the core group.", "core", META + "APIVersions"),
    "apis": ("/apis/", "getAPIVersions", "Groups and their versions.", "apis", META + "APIGroupList"),
    "version": ("/version/", "getCodeVersion", "Version of the server.", "version", VERSION_INFO),
}
ROOTS: Final = tuple(_ROOTS)


def root_operation(name: str) -> OpenApiOperation:
    """The operation of ``api``, ``apis`` or ``version``."""
    path, id, description, tag, schema = _ROOTS[name]
    return OpenApiOperation(
        path=path, method="get", id=id, description=description, tag=tag, responses=((200, schema),)
    )


def schemas_of(operations: Iterable[OpenApiOperation]) -> set[str]:
    """The definitions that operations refer to."""
    found: set[str] = set()
    for operation in operations:
        found.update(schema for _, schema in operation.responses if schema)
        if operation.body:
            found.add(operation.body)
    return found


def group_version_operations(group: str, version: str, resources: list[Resource]) -> Iterator[OpenApiOperation]:
    """All operations of a group version."""
    naming = _Naming(group, version)
    yield OpenApiOperation(
        path=f"/{prefix(group, version)}/",
        method="get",
        id=f"get{naming.infix}APIResources",
        description="List the resources of this group version.",
        tag=naming.tag,
        responses=((200, RESOURCE_LIST),),
    )
    for resource in resources:
        yield from _Builder(naming, resource).operations()


class _Naming:
    """Ids and tags of the operations of one group version. Ids are unique."""

    def __init__(self, group: str, version: str) -> None:
        short = group.removesuffix(".k8s.io") or "core"
        self.infix = camel(short) + camel(version)
        self.tag = f"{camel(short, capital=False)}_{camel(version, capital=False)}"
        self._used: set[str] = set()

    def id(self, verb: str, rest: str) -> str:
        made = f"{verb}{self.infix}{rest}"
        while made in self._used:
            made += "_"
        self._used.add(made)
        return made


class _Builder:
    """The operations of one resource."""

    def __init__(self, naming: _Naming, resource: Resource) -> None:
        self._naming = naming
        self._resource = resource
        root = f"/{prefix(resource.group, resource.version)}"
        self._everywhere = f"{root}/{resource.plural}"
        self._collection = (
            f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else self._everywhere
        )
        self._scope = "Namespaced" if resource.namespaced else ""
        self._schema = self._named(resource.kind)
        self._kind = resource.group, resource.version, resource.kind
        self._patch_types = _PATCH_TYPES if resource.custom else (*_PATCH_TYPES, _STRATEGIC)

    def _named(self, kind: str) -> str:
        resource = self._resource
        return schema_name(resource.group, resource.version, kind, custom=resource.custom)

    def operations(self) -> Iterator[OpenApiOperation]:
        verbs = self._resource.verbs
        if "list" in verbs:
            if self._resource.namespaced:
                yield self._list(self._everywhere, "", "ForAllNamespaces", (PRETTY,))
            yield self._list(self._collection, self._scope, "", self._collection_parameters())
        if "create" in verbs:
            yield self._create()
        if "deletecollection" in verbs:
            yield self._delete_collection()
        yield from self._on_object(self._resource.verbs)
        for sub in sorted(self._resource.subresources, key=lambda each: each.name):
            yield from self._subresource(sub)

    def _collection_parameters(self) -> tuple[OpenApiParameter, ...]:
        return (NAMESPACE, PRETTY) if self._resource.namespaced else (PRETTY,)

    def _object_parameters(self) -> tuple[OpenApiParameter, ...]:
        return (parameters.name_of(self._resource.kind), *self._collection_parameters())

    def _list(self, path: str, scope: str, suffix: str, shared: tuple[OpenApiParameter, ...]) -> OpenApiOperation:
        kind = self._resource.kind
        return OpenApiOperation(
            path=path,
            method="get",
            id=self._naming.id("list", f"{scope}{kind}{suffix}"),
            description=f"List or watch objects of kind {kind}.",
            tag=self._naming.tag,
            action="list",
            kind=self._kind,
            path_parameters=shared,
            parameters=parameters.LIST,
            responses=((200, self._named(self._resource.list_kind)),),
        )

    def _create(self) -> OpenApiOperation:
        kind = self._resource.kind
        return OpenApiOperation(
            path=self._collection,
            method="post",
            id=self._naming.id("create", self._scope + kind),
            description=f"Create an object of kind {kind}.",
            tag=self._naming.tag,
            action="post",
            kind=self._kind,
            path_parameters=self._collection_parameters(),
            parameters=parameters.CREATE,
            body=self._schema,
            body_types=_BODY_TYPES,
            responses=tuple((code, self._schema) for code in (200, 201, 202)),
        )

    def _delete_collection(self) -> OpenApiOperation:
        kind = self._resource.kind
        return OpenApiOperation(
            path=self._collection,
            method="delete",
            id=self._naming.id("delete", f"Collection{self._scope}{kind}"),
            description=f"Delete all objects of kind {kind} that match.",
            tag=self._naming.tag,
            action="deletecollection",
            kind=self._kind,
            path_parameters=self._collection_parameters(),
            parameters=parameters.DELETE_COLLECTION,
            body=DELETE_OPTIONS,
            body_types=_BODY_TYPES,
            body_required=False,
            responses=((200, STATUS),),
        )

    def _on_object(self, verbs: tuple[str, ...], sub: Subresource | None = None) -> Iterator[OpenApiOperation]:
        """Get, update, patch and delete of an object, or of a subresource that is an object."""
        resource = self._resource
        path, rest, of = f"{self._collection}/{{name}}", self._scope + resource.kind, resource.kind
        schema, kind = self._schema, self._kind
        if sub is not None:
            path, rest, of = f"{path}/{sub.name}", rest + camel(sub.name), f"{sub.name} of {resource.kind}"
            schema, kind = self._of_subresource(sub)

        def operation(verb: str, action: str, description: str, **more: object) -> OpenApiOperation:
            return OpenApiOperation(
                path=path,
                method=action,
                id=self._naming.id(verb, rest),
                description=description,
                tag=self._naming.tag,
                action=action,
                kind=kind,
                path_parameters=self._object_parameters(),
                **more,  # type: ignore[arg-type]
            )

        both = ((200, schema), (201, schema))
        if "get" in verbs:
            yield operation("read", "get", f"Read the {of}.", responses=((200, schema),))
        if "update" in verbs:
            write = {"parameters": parameters.UPDATE, "body": schema, "body_types": _BODY_TYPES, "responses": both}
            yield operation("replace", "put", f"Replace the {of}.", **write)
        if "patch" in verbs:
            write = {"parameters": parameters.PATCH, "body": PATCH_BODY, "body_types": self._patch_types}
            yield operation("patch", "patch", f"Change parts of the {of}.", **write, responses=both)
        if "delete" in verbs:
            answer = schema if resource.returns_deleted else STATUS
            yield operation(
                "delete",
                "delete",
                f"Delete the {of}.",
                parameters=parameters.DELETE,
                body=DELETE_OPTIONS,
                body_types=_BODY_TYPES,
                body_required=False,
                responses=((200, answer), (202, answer)),
            )

    def _of_subresource(self, sub: Subresource) -> tuple[str, tuple[str, str, str]]:
        resource = self._resource
        if sub.version:
            kind = sub.group, sub.version, sub.kind
            return schema_name(*kind, custom=False), kind
        return self._named(sub.kind), (resource.group, resource.version, sub.kind)

    def _subresource(self, sub: Subresource) -> Iterator[OpenApiOperation]:
        if sub.kind.endswith("Options"):
            yield from self._connect(sub)
        elif sub.name == "log":
            yield self._log(sub)
        elif "create" in sub.verbs:
            yield self._create_subresource(sub)
        else:
            yield from self._on_object(sub.verbs, sub)

    def _create_subresource(self, sub: Subresource) -> OpenApiOperation:
        schema, kind = self._of_subresource(sub)
        return OpenApiOperation(
            path=f"{self._collection}/{{name}}/{sub.name}",
            method="post",
            id=self._naming.id("create", self._scope + self._resource.kind + camel(sub.name)),
            description=f"Create {sub.name} of the {self._resource.kind}.",
            tag=self._naming.tag,
            action="post",
            kind=kind,
            path_parameters=self._object_parameters(),
            parameters=parameters.CREATE,
            body=schema,
            body_types=_BODY_TYPES,
            responses=tuple((code, schema) for code in (200, 201, 202)),
        )

    def _log(self, sub: Subresource) -> OpenApiOperation:
        return OpenApiOperation(
            path=f"{self._collection}/{{name}}/{sub.name}",
            method="get",
            id=self._naming.id("read", self._scope + self._resource.kind + camel(sub.name)),
            description=f"Read the {sub.name} of the {self._resource.kind}.",
            tag=self._naming.tag,
            action="get",
            kind=self._kind,
            path_parameters=self._object_parameters(),
            parameters=parameters.OF_SUBRESOURCE[self._resource.plural, sub.name],
            responses=((200, ""),),
            response_types=_TEXT,
        )

    def _connect(self, sub: Subresource) -> Iterator[OpenApiOperation]:
        """Subresources that open a connection: exec, attach, port-forward and proxy."""
        resource = self._resource
        own = tuple(p for p in self._object_parameters() if p is not PRETTY)
        query = parameters.OF_SUBRESOURCE[resource.plural, sub.name]
        places = [("", "", query, own)]
        if sub.name == "proxy":
            places.append(("/{path}", "WithPath", (), (*own, parameters.PATH_REST)))
        for extra, suffix, asked, shared in places:
            for verb in sorted(sub.verbs):
                method = _METHODS[verb]
                rest = f"{method.capitalize()}{self._scope}{resource.kind}{camel(sub.name)}{suffix}"
                yield OpenApiOperation(
                    path=f"{self._collection}/{{name}}/{sub.name}{extra}",
                    method=method,
                    id=self._naming.id("connect", rest),
                    description=f"Connect {method.upper()} requests to {sub.name} of the {resource.kind}.",
                    tag=self._naming.tag,
                    action="connect",
                    kind=(resource.group, resource.version, sub.kind),
                    path_parameters=shared,
                    parameters=asked,
                    responses=((200, ""),),
                    response_types=_ANYTHING,
                )
