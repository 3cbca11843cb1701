"""The OpenAPI documents of a server: built on first use, kept compressed, rebuilt only if a change affects them.

The hash of a document in the index is computed from its input, so that the index can be served without building the
documents.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha512
from typing import Any, Final

import orjson

from shoal import __version__
from shoal.errors import NotAcceptable
from shoal.kube.openapi import v2, v3
from shoal.kube.openapi.aggregated import AggregatedOpenApi, joined
from shoal.kube.openapi.operations import ROOTS, prefix
from shoal.kube.openapi.schemas import Schema
from shoal.kube.resources import BUILTIN, Resource
from shoal.kube.schema.builtin import kubernetes_version

JSON: Final = "application/json"
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_FORMAT: Final = "2"  # increase it when documents change for the same input: clients cache them by hash for a year
_FOR_EVER: Final = "public, immutable, max-age=31536000"


@dataclass(frozen=True, slots=True)
class OpenApiAnswer:
    """A response. Its content is kept compressed and sent unchanged to clients that accept gzip."""

    status: int
    headers: dict[str, str]  # without the content type
    gzipped: bytes = b""
    content_type: str = JSON

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.gzipped) if self.gzipped else b""


@dataclass(frozen=True, slots=True)
class _Served:
    """A resource; the schema of a custom one as compressed JSON, since definitions can be large and are rarely read."""

    resource: Resource
    packed: bytes = b""

    def unpacked(self) -> tuple[Resource, Schema | None]:
        return self.resource, orjson.loads(gzip.decompress(self.packed)) if self.packed else None


class OpenApi:
    """The documents under ``/openapi/v3`` and ``/openapi/v2``."""

    def __init__(self, resources: Iterable[Resource] = BUILTIN) -> None:
        self._builtin = _by_group_version(_Served(resource) for resource in resources)
        self._custom: dict[str, list[_Served]] = {}
        self._aggregated: dict[str, AggregatedOpenApi] = {}
        self._hashes: dict[str, str] = {}
        self._index: OpenApiAnswer | None = None
        self._documents: dict[str, bytes] = {}  # compressed, by name
        self._swagger: dict[str, OpenApiAnswer] = {}  # by content type
        self._builtin_json: tuple[bytes, bytes] | None = None  # paths and definitions without braces, compressed
        self._builtin_protobuf: bytes = b""  # compressed

    def set_custom(self, resources: Iterable[tuple[Resource, Schema | None]]) -> None:
        """Replace the custom resources. A schema is in OpenAPI v3 form, without the type and metadata fields that all
        objects have."""
        wanted = _by_group_version(_Served(resource, _packed(schema)) for resource, schema in resources)
        touched = [name for name in wanted.keys() | self._custom.keys() if wanted.get(name) != self._custom.get(name)]
        if not touched:
            return
        self._custom = wanted
        for name in touched:
            self._hashes.pop(name, None)
            self._documents.pop(name, None)
        self._index = None
        self._swagger.clear()

    def set_aggregated(self, documents: Iterable[AggregatedOpenApi]) -> None:
        """Replace the documents of aggregated servers."""
        wanted = {each.name: each for each in documents}
        if wanted != self._aggregated:
            self._aggregated = wanted
            self._index = None
            self._swagger.clear()

    def resolve(self, path: str, hash: str = "", accept: str = "") -> OpenApiAnswer | None:
        """The response for a path under ``/openapi/``; None if there is none. With the current hash a document can be
        cached without limit; with another hash the client is redirected."""
        if path.rstrip("/") == "/openapi/v2":
            return self.swagger(protobuf=_accepted(accept, (JSON, V2_PROTOBUF)) == V2_PROTOBUF)
        _accepted(accept, (JSON,))
        if path.rstrip("/") == "/openapi/v3":
            return self.index()
        name = path.removeprefix("/openapi/v3/").strip("/")
        if name not in self._names():
            return None
        current = self._hash(name)
        if hash and hash != current:
            return OpenApiAnswer(301, {"Location": self._address(name), "Vary": "Accept"})
        headers = {"ETag": f'"{current}"', "Vary": "Accept"}
        if hash:
            headers["Cache-Control"] = _FOR_EVER
        return OpenApiAnswer(200, headers, self._document(name))

    def index(self) -> OpenApiAnswer:
        """The index: the address of every document of version 3."""
        if self._index is None:
            names = sorted(self._names())
            body = orjson.dumps({"paths": {name: {"serverRelativeURL": self._address(name)} for name in names}})
            self._index = OpenApiAnswer(200, {"ETag": _etag(body), "Vary": "Accept"}, _compressed(body))
        return self._index

    def swagger(self, *, protobuf: bool = False) -> OpenApiAnswer:
        """The document of version 2, in JSON or as the protobuf message that Go clients request."""
        content_type = V2_PROTOBUF if protobuf else JSON
        known = self._swagger.get(content_type)
        if known is None:
            content = self._swagger_protobuf() if protobuf else self._swagger_json()
            headers = {"ETag": _etag(content), "Vary": "Accept"}
            known = self._swagger[content_type] = OpenApiAnswer(200, headers, _compressed(content), content_type)
        return known

    def _names(self) -> set[str]:
        elsewhere = {name for name, each in self._aggregated.items() if each.v3}
        return {*ROOTS, *self._builtin, *self._custom, *elsewhere}

    def _served(self, name: str) -> list[_Served]:
        return [*self._builtin.get(name, ()), *self._custom.get(name, ())]

    def _hash(self, name: str) -> str:
        elsewhere = self._aggregated.get(name)
        if elsewhere is not None and elsewhere.v3:
            return elsewhere.hash
        known = self._hashes.get(name)
        if known is None:
            made = sha512(f"{_FORMAT} {__version__} {kubernetes_version()} {name}".encode())
            for served in self._served(name):
                made.update(repr(served.resource).encode())
                made.update(served.packed)
            known = self._hashes[name] = made.hexdigest().upper()
        return known

    def _address(self, name: str) -> str:
        return f"/openapi/v3/{name}?hash={self._hash(name)}"

    def _document(self, name: str) -> bytes:
        elsewhere = self._aggregated.get(name)
        if elsewhere is not None and elsewhere.v3:
            return elsewhere.v3
        known = self._documents.get(name)
        if known is None:
            version = f"v{kubernetes_version()}"
            if name in ROOTS:
                document = v3.root_document(name, version)
            else:
                resources = [served.unpacked() for served in self._served(name)]
                group, group_version = resources[0][0].group, resources[0][0].version
                document = v3.group_version_document(group, group_version, resources, version)
            known = self._documents[name] = _compressed(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        return known

    def _swagger_json(self) -> bytes:
        if self._builtin_json is None:
            paths, definitions = _joined(v2.builtin_parts(_unpacked(self._builtin)))
            self._builtin_json = _compressed(paths), _compressed(definitions)
        paths, definitions = (gzip.decompress(part) for part in self._builtin_json)
        more_paths, more_definitions = _joined(v2.custom_parts(_unpacked(self._custom)))
        parts = self._elsewhere(definitions, more_definitions)
        other_paths, other_definitions = _joined(parts)
        opened = orjson.dumps(v2.header(f"v{kubernetes_version()}"))[:-1]
        return b"".join(
            (
                opened,
                b',"paths":{',
                b",".join(filter(None, (paths, more_paths, other_paths))),
                b'},"definitions":{',
                b",".join(filter(None, (definitions, more_definitions, other_definitions))),
                b"}}",
            )
        )

    def _swagger_protobuf(self) -> bytes:
        """Concatenated messages are read as one, so parts can be encoded separately."""
        if not self._builtin_protobuf:
            opened = _encoded(v2.header(f"v{kubernetes_version()}"))
            parts = [_encoded_part(part) for part in v2.builtin_parts(_unpacked(self._builtin))]
            self._builtin_protobuf = _compressed(b"".join((opened, *parts)))
        custom = [_encoded_part(part) for part in v2.custom_parts(_unpacked(self._custom))]
        elsewhere: list[bytes] = []
        if self._aggregated:
            self._swagger_json()  # has the definitions of built-in resources
            assert self._builtin_json is not None
            own = gzip.decompress(self._builtin_json[1])
            more = _joined(v2.custom_parts(_unpacked(self._custom)))[1]
            elsewhere = [_encoded_part(part) for part in self._elsewhere(own, more)]
        return b"".join((gzip.decompress(self._builtin_protobuf), *custom, *elsewhere))

    def _elsewhere(self, *definitions: bytes) -> list[v2.Part]:
        """What aggregated servers add to the document of version 2, beside these definitions."""
        parts = [part for each in self._aggregated.values() if (part := each.part()) is not None]
        if not parts:
            return []
        known = orjson.loads(b"{" + b",".join(filter(None, definitions)) + b"}")
        return list(joined(parts, known))


def _by_group_version(resources: Iterable[_Served]) -> dict[str, list[_Served]]:
    found: dict[str, list[_Served]] = {}
    for served in sorted(resources, key=lambda each: each.resource.plural):
        found.setdefault(prefix(served.resource.group, served.resource.version), []).append(served)
    return found


def _unpacked(group_versions: dict[str, list[_Served]]) -> Iterator[v2.GroupVersion]:
    for name in sorted(group_versions):
        served = group_versions[name]
        yield served[0].resource.group, served[0].resource.version, [each.unpacked() for each in served]


def _packed(schema: Schema | None) -> bytes:
    return b"" if schema is None else _compressed(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS))


def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, 5, mtime=0)


def _joined(parts: Iterable[v2.Part]) -> tuple[bytes, bytes]:
    """All paths and all definitions, each as the members of one JSON object, without its braces."""
    paths: list[bytes] = []
    definitions: list[bytes] = []
    for part_paths, part_definitions in parts:
        paths.append(orjson.dumps(part_paths)[1:-1])
        definitions.append(orjson.dumps(part_definitions)[1:-1])
    return b",".join(filter(None, paths)), b",".join(filter(None, definitions))


def _encoded(document: dict[str, Any]) -> bytes:
    from shoal.kube.protobuf import gnostic  # only clients without OpenAPI v3 request this

    return gnostic.encode_openapi_v2(document)


def _encoded_part(part: v2.Part) -> bytes:
    paths, definitions = part
    return _encoded({"paths": paths, "definitions": definitions})


def _etag(content: bytes) -> str:
    return f'"{sha512(content).hexdigest().upper()}"'


def _accepted(accept: str, offered: tuple[str, ...]) -> str:
    """The first offered type of an ``Accept`` header; quality values are ignored, since clients do not send them."""
    for clause in accept.split(",") if accept else ("*/*",):
        wanted = clause.partition(";")[0].strip().lower()
        if wanted in ("*/*", "application/*"):
            return offered[0]
        wanted = wanted.replace("@", ".")  # the older spelling of the protobuf types
        if wanted in offered:
            return wanted
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(offered)}")
