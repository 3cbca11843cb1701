"""Settings of a cluster's images, and the file that a user may put into the cluster's directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from shoal.errors import ConfigError
from shoal.kube import quantity
from shoal.node.runtime.images.limits import LayerLimits

FILE = "image-store.yaml"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """How one registry is reached."""

    ca: Path | None = None  # certificates that it is trusted with, instead of the system's
    insecure: bool = False  # plain HTTP; a registry on a loopback address may do that without


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """Settings of the images of one cluster, which its nodes share."""

    folder: Path
    budget_bytes: int = 20 * _GIB  # of unpacked layers; images in use stay also above it
    layers: int = 127  # of one image
    limits: LayerLimits = field(default_factory=LayerLimits)
    registries: Mapping[str, RegistryConfig] = field(default_factory=dict)
    at_once: int = 3  # layers that are fetched, and that are unpacked, at the same time
    attempts: int = 5  # of one request; a fetch that goes on where it broke off starts to count again
    retry_s: float = 1.0  # before the second attempt; then twice as long each time, up to 10 s
    connect_s: float = 10.0
    stall_s: float = 30.0  # without a byte
    keep_s: float = 120.0  # an image that was used this lately is not removed for the budget

    def __post_init__(self) -> None:
        if self.budget_bytes < 0 or min(self.layers, self.at_once, self.attempts) < 1:
            raise ConfigError("images: budget must be 0 or more, and layers, at_once and attempts 1 or more")
        if min(self.connect_s, self.stall_s, self.retry_s) <= 0 or self.keep_s < 0:
            raise ConfigError("images: connect_s, stall_s and retry_s must be more than 0, and keep_s 0 or more")

    def registry(self, host: str) -> RegistryConfig:
        return self.registries.get(host) or RegistryConfig()


def load_image_config(cluster: Path) -> ImageConfig:
    """The settings of a cluster, from ``image-store.yaml`` in its directory where there is one."""
    folder, path = (cluster / "images").absolute(), cluster / FILE
    if not path.exists():
        return ImageConfig(folder=folder)
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not set(content) <= {"budget", "registries", "layer"}:
        raise ConfigError(f"{path}: expected a mapping with budget, registries and layer; it has {_keys(content)}")
    limits = _checked(content.get("layer") or {}, {"bytes", "entries", "ratio"}, f"{path}: layer")
    amounts = {name: _amount(value, f"{path}: layer.{name}") for name, value in limits.items()}
    more: dict[str, Any] = {"limits": LayerLimits(**amounts)} if amounts else {}
    if "budget" in content:
        more["budget_bytes"] = _amount(content["budget"], f"{path}: budget")
    registries = content.get("registries") or {}
    if not isinstance(registries, dict):
        raise ConfigError(f"{path}: registries is {registries!r}: use a mapping from HOST[:PORT] to ca and insecure")
    more["registries"] = {str(host): _registry(host, value, path) for host, value in registries.items()}
    return ImageConfig(folder=folder, **more)


def _registry(host: Any, value: Any, path: Path) -> RegistryConfig:
    where = f"{path}: registries.{host}"
    found = _checked(value or {}, {"ca", "insecure"}, where)
    insecure, authority = found.get("insecure", False), found.get("ca")
    if not isinstance(insecure, bool):
        raise ConfigError(f"{where}.insecure is {insecure!r}: use true or false")
    if authority is not None and not (path.parent / str(authority)).is_file():
        raise ConfigError(f"{where}.ca is {authority!r}: there is no such file")
    return RegistryConfig(ca=path.parent / str(authority) if authority is not None else None, insecure=insecure)


def _checked(value: Any, known: set[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= known:
        raise ConfigError(f"{where}: expected a mapping with {', '.join(sorted(known))}; it has {_keys(value)}")
    return value


def _keys(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, dict) else repr(value)


def _amount(value: Any, where: str) -> int:
    try:
        found = quantity.parse(str(value)).nano() // 10**9
    except ValueError as error:
        raise ConfigError(f"{where} is {value!r}: use a number or a quantity such as 20Gi") from error
    if found < 0:
        raise ConfigError(f"{where} is {value!r}: use 0 or more")
    return found
