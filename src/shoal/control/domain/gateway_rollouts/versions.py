"""What makes two versions of a gateway the same: what replaces its pods, which are its image and its size. Pure.

A version is JSON: ``{"image": …, "resources": {"cpu": …, "memory": …}}``. An empty image is the agent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from shoal.control.database.tables import Sentinel
from shoal.control.domain.kinds.scopes import GatewaySettings
from shoal.control.domain.model import GatewayDefaults

EARLIER_IMAGE = "shoal/sentinel:latest"
"""The default of earlier releases, which no registry of ours has. It is still what agents are sent where no image is
set: earlier ones refuse a gateway without, later ones choose an image themselves."""

Version = dict[str, Any]
WRITTEN = ("image", "resources")  # fields of an environment's spec.sentinel that a version follows from


def image_of(image: str) -> str:
    """Of a stored one; empty: the agent chooses."""
    return "" if image == EARLIER_IMAGE else image


def wanted_version(settings: GatewaySettings, defaults: GatewayDefaults) -> Version:
    """What an environment asks for."""
    cpu = settings.cpu_millicores or defaults.cpu_millicores
    memory = settings.memory_mib or defaults.memory_mib
    image = settings.image or defaults.image
    return {"image": image_of(image), "resources": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}


def version_of(sentinel: Sentinel) -> Version:
    """What its own pods run, or are to run."""
    resources = (sentinel.spec.get("resources") or {}) if sentinel.spec else {}
    return {"image": image_of(sentinel.image), "resources": dict(resources)}


def digest_of(version: Mapping[str, Any]) -> str:
    found = {name: version[name] for name in ("image", "resources")}
    return hashlib.sha256(orjson.dumps(found, option=orjson.OPT_SORT_KEYS)).hexdigest()


def written_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What people wrote of it in the spec of the environment."""
    return {name: value for name, value in (spec.get("sentinel") or {}).items() if name in WRITTEN}


def with_written(spec: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of an environment that asks for a version again; everything else stays."""
    others = {name: value for name, value in (spec.get("sentinel") or {}).items() if name not in WRITTEN}
    sentinel = {**others, **written}
    rest = {name: value for name, value in spec.items() if name != "sentinel"}
    return rest | ({"sentinel": sentinel} if sentinel else {})


def shown(version: Mapping[str, Any]) -> str:
    """For people."""
    return str(version["image"] or "the agent's image")
