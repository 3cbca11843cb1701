"""Kubernetes' published API: its operations as the official client was generated from them, its types as we load them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import kubernetes

from shoal.crds.sentinel import GROUP
from shoal.kube.schema.compile import OUTPUT

_API = Path(kubernetes.__file__).parent / "client" / "api"
_METHOD = re.compile(r"method='(\w+)',\s+resource_path='([^']+)'")
_PARAMETER = re.compile(r"_query_params\.append\(\('(\w+)'")
_VERBS = {
    "get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE",
    "deletecollection": "DELETE",
}  # fmt: skip


@cache
def operations() -> list[tuple[str, re.Pattern[str], frozenset[str]]]:
    """Method, path and the parameters of the query."""
    found = []
    for file in sorted(_API.glob("*_api.py")):
        if file.name == "custom_objects_api.py":
            continue  # written by hand; what a server publishes of a custom kind is as of any other
        for block in file.read_text().split("_serialize(\n        self,")[1:]:
            match = _METHOD.search(block)
            if match is None:
                continue
            pattern = re.sub(r"\{\w+\}", "[^/]+", match[2].rstrip("/"))
            parameters = frozenset(_PARAMETER.findall(block[: match.start()]))
            found.append((match[1], re.compile(pattern), parameters))
            if "/configmaps" in pattern and "/watch/" not in pattern:
                custom = pattern.replace("/api/v1", f"/apis/{re.escape(GROUP)}/v1").replace("configmaps", "[a-z]+")
                found.append((match[1], re.compile(custom), parameters))
    assert len(found) > 500, "the official client looks otherwise now"
    return found


def operation_faults(verb: str, uri: str) -> list[str]:
    """Why a request is not a published operation; empty if it is one."""
    method, parts = _VERBS.get(verb, verb.upper()), urlsplit(uri)
    path, given = parts.path.rstrip("/"), {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    fits = [known for name, pattern, known in operations() if name == method and pattern.fullmatch(path)]
    if not fits:
        return [f"{method} {path} is not published"]
    unknown = min((given - known for known in fits), key=len)
    return [f"{method} {path} has no parameter {name}" for name in sorted(unknown)]


@cache
def _types() -> dict[str, Any]:
    types: dict[str, Any] = json.loads((OUTPUT / "types.json").read_text())["types"]
    return types


@cache
def _by_kind() -> dict[tuple[str, str], str]:
    return {
        (f"{gvk['group']}/{gvk['version']}".lstrip("/"), gvk["kind"]): name
        for name, definition in _types().items()
        for gvk in definition.get("x-kubernetes-group-version-kind") or ()
    }


def field_faults(obj: dict[str, Any]) -> list[str]:
    """Fields that the published type of a built-in object does not have."""
    name = _by_kind().get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if name is None:
        return [f"{obj.get('apiVersion')} {obj.get('kind')} is not a published type"]
    return _faults(obj, {"$ref": name}, obj["kind"])


def _faults(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    if "$ref" in schema:
        schema = _types()[schema["$ref"]]
    if isinstance(value, list):
        return [fault for each in value for fault in _faults(each, schema.get("items") or {}, f"{path}[]")]
    if not isinstance(value, dict) or "properties" not in schema and "additionalProperties" not in schema:
        return []
    known, rest, faults = schema.get("properties") or {}, schema.get("additionalProperties"), []
    for name, below in value.items():
        if name in known:
            faults += _faults(below, known[name], f"{path}.{name}")
        elif isinstance(rest, dict):
            faults += _faults(below, rest, f"{path}.{name}")
        elif not rest:
            faults.append(f"{path}.{name} is not published")
    return faults
