"""Reads documents to apply or delete from files, folders or standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from shoal.cli.fleet.kinds import BY_NAME, ORDER
from shoal.errors import BadRequest, ConfigError, TooLarge

SUFFIXES = (".yaml", ".yml", ".json")

# Three dashes at the start of a line always begin a document, even inside a block of text.
_boundary = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """``origin`` names its file, and its number if the file has several."""

    content: dict[str, Any]
    origin: str

    @property
    def kind(self) -> str:
        return str(self.content.get("kind") or "")

    @property
    def metadata(self) -> dict[str, Any]:
        found = self.content.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def shown(self) -> str:
        name = self.metadata.get("name")
        return f"{self.origin} ({self.kind} {name})" if self.kind and name else self.origin


def read_all(sources: Sequence[str], stdin: BinaryIO | None = None) -> list[ManifestDocument]:
    """Every document of files, folders and ``-``; raises ``ConfigError`` if one cannot be read."""
    found: list[ManifestDocument] = []
    for source in sources:
        if source == "-":
            found += parse((stdin or sys.stdin.buffer).read(), "standard input")
            continue
        for path in _files(Path(source)):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
            found += parse(content, str(path))
    if not found:
        raise ConfigError(f"no documents found in {', '.join(sources)}")
    return found


def parse(body: bytes, origin: str) -> list[ManifestDocument]:
    """The documents of one file; each item of a List is a document."""
    from shoal.kube import yamlcodec

    found: list[dict[str, Any]] = []
    line = 0
    for part in _boundary.split(body):
        if not part.strip():
            line += part.count(b"\n")
            continue
        try:
            # keep the lines before it, so that line numbers in errors are right
            decoded = yamlcodec.decode(b"\n" * line + part)
        except (BadRequest, TooLarge) as error:
            raise ConfigError(f"{origin}: {error.message.rpartition('yaml: ')[2]}") from None
        if decoded.duplicates:
            raise ConfigError(f"{origin}: {'; '.join(decoded.duplicates[:10])}")
        line += part.count(b"\n")
        for value in _items(decoded.value):
            if not isinstance(value, dict):
                raise ConfigError(f"{origin}: not a mapping; expected apiVersion, kind, metadata and spec")
            found.append(value)
    if len(found) == 1:
        return [ManifestDocument(found[0], origin)]
    return [ManifestDocument(value, f"{origin}, document {number}") for number, value in enumerate(found, 1)]


def ordered(documents: Sequence[ManifestDocument]) -> list[ManifestDocument]:
    """The documents sorted by the dependencies of their kinds."""
    return sorted(documents, key=lambda each: ORDER.get(each.kind, len(ORDER)))


def placed(document: ManifestDocument, project: str, environment: str) -> ManifestDocument:
    """The document with the default project and environment, if its kind needs them and it has none."""
    kind = BY_NAME.get(document.kind)
    if kind is None or not isinstance(document.content.get("metadata"), dict):
        return document
    said = {"project": project, "environment": environment}
    missing = {part: said[part] for part in kind.parts if said[part] and not document.metadata.get(part)}
    if not missing:
        return document
    return replace(document, content={**document.content, "metadata": {**document.metadata, **missing}})


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ConfigError(f"{path} cannot be read: no such file or folder")
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file())
    if not found:
        raise ConfigError(f"{path} has no files ending with {', '.join(SUFFIXES)}")
    return found


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and isinstance(value.get("items"), list) and not value.keys() & {"metadata", "spec"}:
        return list(value["items"])
    return [value]
