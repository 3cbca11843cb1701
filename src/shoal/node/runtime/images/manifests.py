"""What registries and archives say about an image: manifests, indices and configurations; pure.

Everything here was written by someone else: each field is checked before it is used. A fault is a ``BadImage``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.errors import ShoalError
from shoal.node.runtime.model import Image

MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MOST_MANIFEST_BYTES = 4 << 20
MOST_CONFIG_BYTES = 8 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LAYER_TYPES = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar|docker\.image\.rootfs\.diff\.tar)([+.](gzip|zstd))?"
)


class BadImage(ShoalError):
    """The image is invalid, or cannot be used here; the text says why."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob as a manifest names it."""

    digest: str
    size: int
    media_type: str = ""

    @classmethod
    def of(cls, content: bytes) -> Descriptor:
        return cls(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image for one platform."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    architecture: str
    os: str = "linux"
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """The configuration of an image."""

    id: str
    diff_ids: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    user: str = ""
    stop_signal: str = ""
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()

    def image(self, names: tuple[str, ...], size_bytes: int) -> Image:
        tcp = [int(each.removesuffix("/tcp")) for each in self.ports if not each.endswith(("/udp", "/sctp"))]
        return Image(
            id=self.id, names=names, size_bytes=size_bytes, entrypoint=self.entrypoint, command=self.command,
            env=self.env, working_dir=self.working_dir, user=self.user, port=min(tcp, default=0),
            stop_signal=self.stop_signal, volumes=self.volumes,
        )  # fmt: skip


def checked_digest(text: Any) -> str:
    if not isinstance(text, str) or _DIGEST.fullmatch(text) is None:
        raise BadImage(f"invalid digest {str(text)[:100]!r}: expected sha256: and 64 digits")
    return text


def descriptor(value: Any, what: str) -> Descriptor:
    if not isinstance(value, dict):
        raise BadImage(f"the manifest has no valid {what}")
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise BadImage(f"the manifest's {what} has an invalid size: {str(size)[:40]}")
    return Descriptor(checked_digest(value.get("digest")), size, _text(value.get("mediaType"), f"type of the {what}"))


def document(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = orjson.loads(raw)
    except ValueError as error:
        raise BadImage(f"the {what} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadImage(f"the {what} is not a JSON object")
    return found


def is_index(content: Mapping[str, Any], media_type: str = "") -> bool:
    kind = content.get("mediaType") or media_type
    return kind in INDEX_TYPES or (kind not in MANIFEST_TYPES and "manifests" in content)


def parse_manifest(content: Mapping[str, Any], *, most_layers: int) -> Manifest:
    if content.get("schemaVersion") == 1 or "fsLayers" in content:
        raise BadImage("the image has a manifest of version 1, which is not supported: push it again with a newer tool")
    layers = content.get("layers")
    if not isinstance(layers, list):
        raise BadImage("the manifest has no list of layers")
    if len(layers) > most_layers:
        raise BadImage(f"the image has {len(layers)} layers; the limit is {most_layers}")
    found = tuple(descriptor(each, "layer") for each in layers)
    for each in found:
        if each.media_type and _LAYER_TYPES.fullmatch(each.media_type) is None:
            raise BadImage(f"layers of the type {each.media_type[:100]!r} are not supported")
    return Manifest(descriptor(content.get("config"), "config"), found)


def choose(content: Mapping[str, Any], platform: Platform) -> Descriptor:
    """The manifest of an index for a platform. A machine runs programs for older variants of its architecture."""
    entries = content.get("manifests")
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise BadImage("the index has no list of manifests")
    found: list[tuple[str, Descriptor]] = []
    others = []
    for each in entries:
        stated = each.get("platform")
        if not isinstance(stated, dict):
            if len(entries) == 1:
                return descriptor(each, "entry")
            continue
        has = Platform(*(_text(stated.get(key), f"platform.{key}") for key in ("architecture", "os", "variant")))
        if (has.os, has.architecture) == (platform.os, platform.architecture) and has.variant <= (
            platform.variant or has.variant
        ):
            found.append((has.variant, descriptor(each, "entry")))
        elif has.os != "unknown":  # those are attestations
            others.append(str(has))
    if not found:
        raise BadImage(f"there is no image for {platform}: there are {', '.join(sorted(set(others))) or 'none'}")
    best = max(variant for variant, _ in found) if platform.variant else min(variant for variant, _ in found)
    return next(each for variant, each in found if variant == best)


def parse_settings(raw: bytes, digest: str, platform: Platform) -> ImageSettings:
    content = document(raw, "configuration of the image")
    roots = content.get("rootfs")
    diffs = roots.get("diff_ids") if isinstance(roots, dict) else None
    if not isinstance(diffs, list):
        raise BadImage("the configuration of the image has no rootfs.diff_ids")
    has = Platform(_text(content.get("architecture"), "architecture"), _text(content.get("os"), "os"))
    if (has.architecture or platform.architecture) != platform.architecture or (has.os or "linux") != platform.os:
        raise BadImage(f"the image is for {has}, this machine is {platform}")
    config = content.get("config") or {}
    if not isinstance(config, dict):
        raise BadImage("the config in the configuration of the image is not an object")
    variables = [each.partition("=") for each in _texts(config, "Env")]
    working_dir = _text(config.get("WorkingDir"), "WorkingDir")
    return ImageSettings(
        id=digest, diff_ids=tuple(map(checked_digest, diffs)), entrypoint=_texts(config, "Entrypoint"),
        command=_texts(config, "Cmd"), env=tuple((name, value) for name, _, value in variables if name),
        working_dir=working_dir if working_dir.startswith("/") or not working_dir else f"/{working_dir}",
        user=_text(config.get("User"), "User"), stop_signal=_text(config.get("StopSignal"), "StopSignal"),
        volumes=tuple(_volume(each) for each in _names(config, "Volumes")),
        ports=tuple(_port(each) for each in _names(config, "ExposedPorts")),
    )  # fmt: skip


def _volume(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or not path.strip("/"):
        raise BadImage(f"the image has an invalid volume {path!r}: expected an absolute path below /")
    return path


def _port(text: str) -> str:
    number, _, protocol = text.partition("/")
    if not number.isdigit() or not 0 < int(number) < 65536 or protocol not in ("", "tcp", "udp", "sctp"):
        raise BadImage(f"the image exposes an invalid port {text[:40]!r}")
    return text


def _text(value: Any, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise BadImage(f"{field} of the image is invalid: {str(value)[:100]!r} is not a text")
    return value


def _texts(config: Mapping[str, Any], field: str) -> tuple[str, ...]:
    found = config.get(field) or []
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list):
        raise BadImage(f"{field} of the image is invalid: expected a list of texts")
    return tuple(_text(each, field) for each in found)


def _names(config: Mapping[str, Any], field: str) -> tuple[str, ...]:
    found = config.get(field) or {}
    if not isinstance(found, dict):
        raise BadImage(f"{field} of the image is invalid: expected an object")
    return tuple(sorted(_text(each, field) for each in found))
