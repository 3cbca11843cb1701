"""Content negotiation: which representation a request's Accept asks for, and which codec its body needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl

from shoal.base.bounded_cache import bounded_cache
from shoal.errors import BadRequest, NotAcceptable, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
BODY_TYPES = (JSON, YAML, PROTOBUF)
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


@dataclass(frozen=True, slots=True)
class Representation:
    """``as_kind`` is empty for the object itself, or Table, PartialObjectMetadata, PartialObjectMetadataList."""

    media: str = JSON
    as_kind: str = ""
    as_version: str = "v1"


PLAIN = Representation()


@lru_cache(maxsize=512)
def representations(accept: bytes) -> tuple[Representation, ...]:
    """The supported representations of an Accept header, best first."""
    text = accept.decode("latin-1").strip()
    if not text:
        return (PLAIN,)
    found = []
    for order, part in enumerate(text.split(",")):
        media, _, rest = part.strip().partition(";")
        parameters = dict(item.strip().split("=", 1) for item in rest.split(";") if "=" in item)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        media = media.strip().lower()
        if media in ("*/*", "application/*"):
            media = JSON
        if media not in (JSON, YAML) or quality <= 0:
            continue
        as_kind, group = parameters.get("as", ""), parameters.get("g", "")
        version = parameters.get("v", "v1")
        if as_kind and (group not in ("meta.k8s.io", "") or version not in ("v1", "v1beta1")):
            continue
        if as_kind not in ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            continue
        found.append((-quality, order, Representation(media, as_kind, version)))
    return tuple(item[2] for item in sorted(found, key=lambda item: item[:2]))


def representation(accept: bytes | None, *, collection: bool, tables: bool = True) -> Representation:
    """The best representation of an object, or of a list of them; NotAcceptable when there is none."""
    if accept is None:
        return PLAIN
    for choice in representations(accept):
        if choice.as_kind == "Table" and not tables:
            continue
        if choice.as_kind == "PartialObjectMetadataList" and not collection:
            continue
        if choice.as_kind == "PartialObjectMetadata" and collection:
            continue
        return choice
    raise NotAcceptable(
        "only the following media types are accepted: application/json, application/yaml, "
        "application/json;as=Table;g=meta.k8s.io;v=v1"
    )


@lru_cache(maxsize=256)
def media_type(content_type: bytes) -> str:
    """The media type of a Content-Type header without its parameters."""
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")


def body_type(content_type: bytes | None) -> str:
    """The codec of a POST, PUT or DELETE body; empty counts as JSON."""
    media = media_type(content_type) if content_type else JSON
    if media not in BODY_TYPES:
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(BODY_TYPES)}"
        )
    return media


def patch_type(content_type: bytes | None, *, strategic: bool) -> str:
    media = media_type(content_type) if content_type else ""
    allowed = PATCH_TYPES if strategic else tuple(p for p in PATCH_TYPES if p != STRATEGIC_PATCH)
    if media not in allowed:
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(allowed)}"
        )
    return media


Query = Mapping[str, str]
NO_QUERY: Query = MappingProxyType({})


@bounded_cache(2048)
def query(text: str) -> Query:
    """Query parameters by name; the last one wins, except that repeated ones are not used on resource paths."""
    if not text:
        return NO_QUERY
    return MappingProxyType(dict(parse_qsl(text, keep_blank_values=True)))


def flag(parameters: Query, name: str) -> bool:
    """A boolean query parameter as Go parses it: absent, ``0`` and ``false`` are false, anything else is true."""
    value = parameters.get(name)
    return value is not None and value.lower() not in ("0", "false", "f")


def integer(parameters: Query, name: str) -> int | None:
    value = parameters.get(name)
    if not value:
        return None
    try:
        number = int(value)
    except ValueError:
        raise BadRequest(f'invalid value for query parameter {name}: "{value[:100]}" is not a number') from None
    if abs(number) >= 1 << 63:
        raise BadRequest(f'invalid value for query parameter {name}: "{value[:100]}" is out of range')
    return number
