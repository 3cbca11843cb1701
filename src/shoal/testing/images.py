"""Images for tests: layers from a few words, archives of `docker save`, OCI layouts.

layer = layer_of(entry("bin/busybox", program, mode=0o755), link("bin/sh", "busybox"), folder("tmp", mode=0o1777))
image = BuiltImage((layer,), {"Cmd": ["sh"]})
saved(image, folder / "image.tar", "shop/web:1")
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def entry(name: str, content: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """An entry of an archive; ``more`` are fields of its header."""
    found = tarfile.TarInfo(name)
    found.size, found.mode = len(content), 0o644
    for key, value in more.items():
        setattr(found, key, value)
    return found, content


def folder(name: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, **{"type": tarfile.DIRTYPE, "mode": 0o755, **more})


def link(name: str, target: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, **{"type": tarfile.SYMTYPE, "linkname": target, **more})


def hard_link(name: str, target: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, **{"type": tarfile.LNKTYPE, "linkname": target, **more})


def layer_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A plain tar; it may be one that no tool would write."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for header, content in entries:
            tar.addfile(header, io.BytesIO(content))
    return found.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image: plain layers, the lowest first, and the ``config`` of its configuration."""

    layers: tuple[bytes, ...]
    config: dict[str, Any] = field(default_factory=dict)
    architecture: str = ARCHITECTURE

    @property
    def settings(self) -> bytes:
        return json.dumps({
            "architecture": self.architecture, "os": "linux", "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in self.layers]},
        }).encode()  # fmt: skip

    @property
    def packed(self) -> list[bytes]:
        return [gzip.compress(each, 1, mtime=0) for each in self.layers]

    @property
    def manifest(self) -> bytes:
        return json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(self.settings), "digest": digest(self.settings)},
            "layers": [{"mediaType": _LAYER, "size": len(each), "digest": digest(each)} for each in self.packed],
        }).encode()  # fmt: skip

    @property
    def blobs(self) -> dict[str, bytes]:
        return {digest(each): each for each in (self.settings, *self.packed)}


def index_of(images: Iterable[BuiltImage]) -> bytes:
    """One image for several platforms."""
    return json.dumps({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {
                "mediaType": MANIFEST, "size": len(each.manifest), "digest": digest(each.manifest),
                "platform": {"os": "linux", "architecture": each.architecture},
            }
            for each in images
        ],
    }).encode()  # fmt: skip


def saved(image: BuiltImage, path: Path, *names: str, mode: str = "w") -> Path:
    """An archive as `docker save` writes it."""
    layers = {f"{digest(each)[7:]}/layer.tar": each for each in image.layers}
    name = f"{digest(image.settings)[7:]}.json"
    listed = [{"Config": name, "RepoTags": list(names), "Layers": [f"{digest(e)[7:]}/layer.tar" for e in image.layers]}]
    _write(path, {**layers, name: image.settings, "manifest.json": json.dumps(listed).encode()}, mode)
    return path


def layout(image: BuiltImage, path: Path, name: str = "", *, tar: bool = False) -> Path:
    """An OCI layout: a folder, or a tar."""
    notes = {"annotations": {"io.containerd.image.name": name}} if name else {}
    index = {
        "schemaVersion": 2,
        "manifests": [{"mediaType": MANIFEST, "size": len(image.manifest), "digest": digest(image.manifest), **notes}],
    }
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    blobs = {**image.blobs, digest(image.manifest): image.manifest}
    files |= {f"blobs/{name.replace(':', '/')}": content for name, content in blobs.items()}
    if tar:
        _write(path, files, "w")
        return path
    for each, content in files.items():
        (path / each).parent.mkdir(parents=True, exist_ok=True)
        (path / each).write_bytes(content)
    return path


def _write(path: Path, files: dict[str, bytes], mode: str) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            header, body = entry(name, content)
            archive.addfile(header, io.BytesIO(body))
