"""OpenAPI documents of aggregated servers: what of them belongs to one group version, and joining them with others."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha512
from typing import Any, Final

import orjson

from shoal.kube.openapi.operations import prefix
from shoal.kube.openapi.schemas import Schema
from shoal.kube.openapi.v2 import Part

_REFERENCE: Final = "#/definitions/"
_SHARED: Final = "io.k8s.apimachinery."  # definitions that every server has, each in its own version


@dataclass(frozen=True, slots=True)
class AggregatedOpenApi:
    """The documents of one group version, compressed; empty where the server has none."""

    group: str
    version: str
    hash: str = ""
    v3: bytes = b""
    v2: bytes = b""  # paths and definitions, as a JSON array

    @property
    def name(self) -> str:
        return prefix(self.group, self.version)

    def part(self) -> Part | None:
        if not self.v2:
            return None
        paths, definitions = orjson.loads(gzip.decompress(self.v2))
        return paths, definitions


def hash_of(document: bytes) -> str:
    return sha512(document).hexdigest().upper()


def part_of(document: Mapping[str, Any], group: str, version: str) -> Part:
    """The paths of a group version in a document of version 2, and the definitions that they need. ValueError when it
    refers to definitions that it does not have."""
    root = f"/{prefix(group, version)}"
    paths = {path: item for path, item in document["paths"].items() if path == root or path.startswith(f"{root}/")}
    definitions: dict[str, Schema] = {}
    pending = sorted(_references(paths))
    while pending:
        name = pending.pop()
        if name in definitions:
            continue
        found = (document.get("definitions") or {}).get(name)
        if found is None:
            raise ValueError(f"definition {name} is missing")
        definitions[name] = found
        pending += sorted(_references(found))
    return paths, definitions


def joined(parts: Iterable[Part], known: Mapping[str, Schema]) -> Iterator[Part]:
    """The parts, without definitions that are ``known`` or in an earlier part. A different definition of the same name
    gets another name, as in Kubernetes."""
    taken = dict(known)
    for paths, definitions in parts:
        names: dict[str, str] = {}
        for name, schema in definitions.items():
            other, number = name, 1
            while other in taken and taken[other] != schema and not name.startswith(_SHARED):
                number += 1
                other = f"{name}_v{number}"
            names[name] = other
        changed = {name: other for name, other in names.items() if name != other}
        new = {names[name]: _renamed(each, changed) for name, each in definitions.items() if names[name] not in taken}
        taken.update({names[name]: definitions[name] for name in definitions if names[name] not in taken})
        yield _renamed(paths, changed), new


def _references(value: Any) -> set[str]:
    found: set[str] = set()
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            reference = each.get("$ref")
            if isinstance(reference, str) and reference.startswith(_REFERENCE):
                found.add(reference.removeprefix(_REFERENCE))
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return found


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if not names:
        return value
    if isinstance(value, dict):
        return {key: _reference(each, names) if key == "$ref" else _renamed(each, names) for key, each in value.items()}
    return [_renamed(each, names) for each in value] if isinstance(value, list) else value


def _reference(value: Any, names: Mapping[str, str]) -> Any:
    name = value.removeprefix(_REFERENCE) if isinstance(value, str) else ""
    return _REFERENCE + names[name] if name in names else value
