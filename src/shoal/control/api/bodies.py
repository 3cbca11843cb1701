"""Bodies of requests: JSON or YAML, one document or several. Whatever cannot be read is a ``BadRequest``."""

from __future__ import annotations

import math
import re
from typing import Any

from shoal.control.domain.model import API_VERSION
from shoal.errors import BadRequest, TooLarge, UnsupportedMediaType
from shoal.kube import jsonutil, yamlcodec

MAX_DOCUMENTS = 1000

JSON_TYPES = ("application/json", "application/merge-patch+json")
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "application/vnd.yaml")

# Three dashes at the start of a line begin a document wherever they stand, also inside of a text.
_split_documents = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE).split


def parse_documents(body: bytes, media_type: str) -> list[Any]:
    """Every document of a body, as written; the items of lists are documents of their own."""
    if media_type in JSON_TYPES:
        values = [_json(body)]
    elif media_type in YAML_TYPES or not media_type:
        values = _yaml(body)
    else:
        raise UnsupportedMediaType(
            f"the content type {media_type[:100]!r} is not supported: use application/json or application/yaml"
        )
    found = [document for value in values for document in _items(value)]
    if len(found) > MAX_DOCUMENTS:
        raise TooLarge(f"{len(found)} documents are too many for one request: send up to {MAX_DOCUMENTS}")
    return found


def _json(body: bytes) -> Any:
    value = jsonutil.loads(body)
    repeated = jsonutil.find_duplicate_fields(body, value)
    if repeated:
        raise BadRequest(f"the body has these fields more than once: {', '.join(repeated[:10])}")
    _check_values(value)
    return value


def _yaml(body: bytes) -> list[Any]:
    found: list[Any] = []
    for number, part in enumerate(_split_documents(body)):
        if not part.strip():
            continue
        try:
            value, repeated = yamlcodec.decode(part)
        except BadRequest as error:
            raise BadRequest(f"part {number} of the body: {error.message}") from None
        if repeated:
            raise BadRequest(f"part {number} of the body: {'; '.join(repeated[:10])}")
        if value is not None:
            _check_values(value)
            found.append(value)
    if not found:
        raise BadRequest("the body has no document")
    return found


def _items(value: Any) -> list[Any]:
    """A JSON array, or an object with ``items``, is read as the documents in it."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and isinstance(value.get("items"), list) and not value.keys() & {"metadata", "spec"}:
        if value.get("apiVersion", API_VERSION) != API_VERSION:
            raise BadRequest(f"apiVersion {value['apiVersion']!r} is not known: use {API_VERSION}")
        items: list[Any] = value["items"]
        return items
    return [value]


def _check_values(value: Any) -> None:
    """Refuse values that the databases cannot store."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += each.keys()
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str):
            if "\0" in each:
                raise BadRequest("a string may not contain the NUL character")
        elif isinstance(each, float) and not math.isfinite(each):
            raise BadRequest("a number is too large")
