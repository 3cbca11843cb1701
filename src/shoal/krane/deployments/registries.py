"""Credentials of image registries as Kubernetes' nodes read them: one ``config.json`` for all of a deployment; pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

import orjson

from shoal.errors import Invalid, required

VARIABLES = ("SERVER", "USERNAME", "PASSWORD")
_DOCKER_HUB = "https://index.docker.io/v1/"  # under what name nodes look for it
_OF_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


def registries_name(name: str) -> str:
    """The name of the Secret with them, of a deployment's name."""
    return f"{name}-registries"


def docker_config(registries: Iterable[Mapping[str, str]]) -> str:
    """Empty without registries. ``Invalid`` names what is missing, and no value."""
    found: dict[str, dict[str, str]] = {}
    for values in registries:
        missing = [required(f"registries.{name}") for name in VARIABLES if not values.get(name)]
        if missing:
            raise Invalid.of("DeploymentState", "", "registries", missing)
        user, password = values["USERNAME"], values["PASSWORD"]
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        found[_server(values["SERVER"])] = {"username": user, "password": password, "auth": auth}
    return orjson.dumps({"auths": found}, option=orjson.OPT_SORT_KEYS).decode() if found else ""


def _server(given: str) -> str:
    host = given.removeprefix("https://").rstrip("/")
    return _DOCKER_HUB if host.removesuffix("/v1") in _OF_DOCKER_HUB else host
