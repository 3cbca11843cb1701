"""The file of a backup: a tar archive whose last member, ``manifest.json``, has size and digest of every other.

    clusters/eu-1/store.db        a database, as a SQLite file
    clusters/eu-1/files/pki/ca.key    a file of the state directory
    manifest.json                 format, version, time, what each part holds, sha256 of each member

It is written under another name, synced and renamed, so a file with the name of a backup is complete. It holds keys and
secrets, so only its owner can read it. Nothing in it is trusted: members are regular files with plain relative names,
and nothing of them is used before all digests were compared.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import orjson

from shoal.base.files import PRIVATE_DIR, PRIVATE_FILE, make_private_dirs, sync_dir
from shoal.base.ids import new_token
from shoal.errors import ConfigError, ShoalError

FORMAT = 1
KIND = "shoal backup"
_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9_+=@:,-][A-Za-z0-9._+=@:,-]*(/[A-Za-z0-9_+=@:,-][A-Za-z0-9._+=@:,-]*)*")
_PIECE = 1 << 20


class ArchiveWriter:
    """Adds members to an archive that is being written."""

    def __init__(self, tar: tarfile.TarFile, *, version: str, created_at: str) -> None:
        self._tar = tar
        self._files: dict[str, dict[str, Any]] = {}
        self._about = {"kind": KIND, "format": FORMAT, "version": version, "createdAt": created_at}
        self.parts: dict[str, Any] = {}  # what each part holds, for the manifest

    def add(self, name: str, path: Path) -> None:
        """Add the file at ``path``, which must not change meanwhile."""
        with open(path, "rb") as file:
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def add_bytes(self, name: str, content: bytes) -> None:
        self._add(name, io.BytesIO(content), len(content))

    def finish(self) -> None:
        manifest = orjson.dumps({**self._about, "parts": self.parts, "files": self._files}, option=orjson.OPT_INDENT_2)
        self._tar.addfile(_info(_MANIFEST, len(manifest)), io.BytesIO(manifest))

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        _check_name(name)
        hashing = _Hashing(file)
        self._tar.addfile(_info(name, size), hashing)
        self._files[name] = {"bytes": size, "sha256": hashing.digest}


@contextmanager
def new_archive(path: Path, *, version: str, created_at: str) -> Iterator[ArchiveWriter]:
    """An archive that is at ``path`` when the block ends without an error, and nowhere else."""
    if path.exists():
        raise ConfigError(f"{path} exists; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist; create it")
    work = path.with_name(f".{path.name}.{new_token(8)}")
    descriptor = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                writer = ArchiveWriter(tar, version=version, created_at=created_at)
                yield writer
                writer.finish()
            file.flush()
            os.fsync(descriptor)
        os.replace(work, path)
        sync_dir(path.parent)
    finally:
        work.unlink(missing_ok=True)


def extract(path: Path, folder: Path) -> dict[str, Any]:
    """Write all members to ``folder`` and return the manifest. Raises ``ShoalError`` that names what is damaged."""
    found: dict[str, tuple[int, str]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if manifest is not None or content is None:
                    raise ShoalError(f"backup {path} is damaged: unexpected member {member.name!r}")
                if member.name == _MANIFEST:
                    manifest = _read_manifest(path, content)
                    continue
                _check_name(member.name)
                found[member.name] = _write(content, folder / member.name)
    except (OSError, tarfile.TarError) as error:
        raise ShoalError(f"backup {path} cannot be read: {error}") from error
    if manifest is None:
        raise ShoalError(f"backup {path} is incomplete: its manifest is missing; make another")
    _compare(path, found, manifest["files"])
    return manifest


def _compare(path: Path, found: dict[str, tuple[int, str]], wanted: dict[str, Any]) -> None:
    for name in sorted({*found, *wanted}):
        if name not in found:
            raise ShoalError(f"backup {path} is damaged: {name} is missing")
        expected = wanted.get(name) or {}
        if found[name] != (expected.get("bytes"), expected.get("sha256")):
            raise ShoalError(f"backup {path} is damaged: the content of {name} does not match its checksum")


def _read_manifest(path: Path, content: IO[bytes]) -> dict[str, Any]:
    try:
        manifest = orjson.loads(content.read(_MANIFEST_BYTES))
        kind, format_, files, parts = (manifest[name] for name in ("kind", "format", "files", "parts"))
    except (ValueError, KeyError, TypeError):
        raise ShoalError(f"backup {path} is damaged: its manifest cannot be read") from None
    if kind != KIND or not isinstance(files, dict) or not isinstance(parts, dict):
        raise ShoalError(f"{path} is not a backup made by `shoal backup create`")
    if format_ != FORMAT:
        raise ConfigError(f"backup {path} has format {format_}, this version supports only {FORMAT}: use a newer Shoal")
    return dict(manifest)


def _write(content: IO[bytes], target: Path) -> tuple[int, str]:
    make_private_dirs(target.parent)
    hashing = _Hashing(content)
    size = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with open(descriptor, "wb") as file:
        while piece := hashing.read(_PIECE):
            file.write(piece)
            size += len(piece)
    return size, hashing.digest


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, PRIVATE_FILE
    return info


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or ".." in name.split("/"):
        raise ShoalError(f"{name!r} is not a valid name for a member of a backup")


class _Hashing:
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._hash.update(piece)
        return piece

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def work_folder(beside: Path) -> Iterator[Path]:
    """A private folder in ``beside``, which is on the disk that has room for the data; removed at the end."""
    make_private_dirs(beside)
    folder = beside / f".backup-{new_token(8)}"
    folder.mkdir(mode=PRIVATE_DIR)
    try:
        yield folder
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
