"""Archives of images: what `docker save` writes, and OCI layouts, as a folder or a tar. Checks each digest."""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from shoal.node.runtime.images.manifests import (
    MOST_CONFIG_BYTES,
    MOST_MANIFEST_BYTES,
    BadImage,
    Descriptor,
    Platform,
    choose,
    descriptor,
    document,
    is_index,
    parse_manifest,
)

_SAVED, _LAYOUT, _MARK = "manifest.json", "index.json", "oci-layout"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_DEEPEST = 4  # indices in indices
_LINKS = 8


class ArchiveFiles(Protocol):
    """The files of an archive, by their paths in it."""

    def has(self, name: str) -> bool: ...

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read a file; raises ``BadImage`` if it is not there."""


@dataclass(frozen=True, slots=True)
class ArchivedLayer:
    """A layer of an archive; ``digest`` is empty where the archive says none."""

    file: str
    digest: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """One image of an archive."""

    names: tuple[str, ...]
    config: bytes
    config_digest: str
    layers: tuple[ArchivedLayer, ...]


@contextmanager
def opened(path: Path) -> Iterator[ArchiveFiles]:
    if path.is_dir():
        yield _Folder(path)
        return
    try:
        with tarfile.open(path, encoding="utf-8") as archive:
            yield _Tar(archive)
    except (tarfile.TarError, EOFError) as error:
        raise BadImage(f"{path} is not a valid archive: {error}") from error


def images_in(files: ArchiveFiles, platform: Platform, *, most_layers: int) -> list[ArchivedImage]:
    """The images of an archive for this machine."""
    if files.has(_SAVED):
        return _saved(files, most_layers)
    if files.has(_LAYOUT) and files.has(_MARK):
        return _layout(files, platform, most_layers)
    raise BadImage("expected an archive of `docker save`, with manifest.json, or an OCI layout, with index.json")


def _saved(files: ArchiveFiles, most_layers: int) -> list[ArchivedImage]:
    try:
        entries = orjson.loads(_read(files, _SAVED, MOST_MANIFEST_BYTES))
    except ValueError as error:
        raise BadImage(f"manifest.json is not valid JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise BadImage("manifest.json lists no images")
    found = []
    for each in entries:
        if not isinstance(each, dict) or not isinstance(each.get("Config"), str):
            raise BadImage("manifest.json names no Config for an image")
        layers, names = _texts(each, "Layers"), _texts(each, "RepoTags")
        if len(layers) > most_layers:
            raise BadImage(f"the image has {len(layers)} layers; the limit is {most_layers}")
        config = _read(files, each["Config"], MOST_CONFIG_BYTES)
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        found.append(ArchivedImage(names, config, digest, tuple(ArchivedLayer(one) for one in layers)))
    return found


def _texts(entry: dict[str, Any], field: str) -> tuple[str, ...]:
    found = entry.get(field) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise BadImage(f"manifest.json: {field} is not a list of texts")
    return tuple(found)


def _layout(files: ArchiveFiles, platform: Platform, most_layers: int) -> list[ArchivedImage]:
    content = document(_read(files, _LAYOUT, MOST_MANIFEST_BYTES), _LAYOUT)
    entries = content.get("manifests")
    if not isinstance(entries, list) or not entries:
        raise BadImage("index.json lists no images")
    named = [(_name_of(each), each) for each in entries if isinstance(each, dict)]
    if len(named) > 1 and len({name for name, _ in named}) == 1:  # one image for several platforms
        named = [
            (named[0][0], {"digest": chosen.digest, "size": chosen.size}) for chosen in (choose(content, platform),)
        ]
    return [_image(files, descriptor(each, "entry"), name, platform, most_layers) for name, each in named]


def _image(files: ArchiveFiles, found: Descriptor, name: str, platform: Platform, most_layers: int) -> ArchivedImage:
    for _ in range(_DEEPEST):
        content = document(_blob(files, found, MOST_MANIFEST_BYTES), "manifest")
        if not is_index(content, found.media_type):
            break
        found = choose(content, platform)
    manifest = parse_manifest(content, most_layers=most_layers)
    config = _blob(files, manifest.config, MOST_CONFIG_BYTES)
    layers = tuple(ArchivedLayer(_file(each.digest), each.digest, each.size) for each in manifest.layers)
    return ArchivedImage((name,) if name else (), config, manifest.config.digest, layers)


def _name_of(entry: dict[str, Any]) -> str:
    notes = entry.get("annotations")
    if not isinstance(notes, dict):
        return ""
    for name in _NAMES:
        found = notes.get(name)
        if isinstance(found, str) and (":" in found or "/" in found or name == _NAMES[0]):
            return found
    return ""


def _blob(files: ArchiveFiles, wanted: Descriptor, most_bytes: int) -> bytes:
    content = _read(files, _file(wanted.digest), most_bytes)
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != wanted.digest or len(content) != wanted.size:
        raise BadImage(f"the archive has a blob with the digest {found} as {wanted.digest}")
    return content


def _file(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"


def _read(files: ArchiveFiles, name: str, most_bytes: int) -> bytes:
    with files.open(name) as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise BadImage(f"{name} in the archive has more than {most_bytes} bytes, which is the limit")
    return found


def copy_layer(files: ArchiveFiles, layer: ArchivedLayer, target: Path) -> None:
    """Copy a layer out of an archive; one with another digest is refused."""
    digest = hashlib.sha256()
    with files.open(layer.file) as source, target.open("wb") as file:
        while piece := source.read(1 << 20):
            digest.update(piece)
            file.write(piece)
    found = f"sha256:{digest.hexdigest()}"
    if layer.digest and found != layer.digest:
        raise BadImage(f"the archive has a layer with the digest {found} as {layer.digest}")


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        return (self._path / name).is_file()

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        path = (self._path / name).resolve()
        if not path.is_relative_to(self._path.resolve()) or not path.is_file():
            raise BadImage(f"the layout has no file {name!r}")
        with path.open("rb") as file:
            yield file


class _Tar:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {posixpath.normpath(each.name): each for each in archive}

    def has(self, name: str) -> bool:
        return name in self._members

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        member = self._member(posixpath.normpath(name))
        file = self._archive.extractfile(member)
        assert file is not None  # a regular file
        with file:
            yield file  # type: ignore[misc]

    def _member(self, name: str) -> tarfile.TarInfo:
        """A file; older archives have a link in the place of a layer that they have twice."""
        for _ in range(_LINKS):
            found = self._members.get(name)
            if found is not None and found.isreg() and not found.issparse():
                return found
            if found is None or not found.issym():
                break
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), found.linkname))
        raise BadImage(f"the archive has no file {name!r}")
