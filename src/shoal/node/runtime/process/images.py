"""The image table: maps the name of an image to the program that runs, on nodes without real images.

``images.yaml`` beside this module is the built-in table. Files and flags of the user override it; later ones win.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from shoal.errors import ConfigError
from shoal.node.runtime.model import Image, ImageFailure, ImageFault

BUILT_IN = Path(__file__).with_name("images.yaml")
_HERE = Path(__file__).parent

_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,}))?"
)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The parts of an image's name. ``host`` is empty if the name has no registry."""

    host: str
    path: str
    tag: str
    digest: str = ""

    @property
    def canonical(self) -> str:
        full = f"{self.host}/{self.path}" if self.host else self.path
        return f"{full}@{self.digest}" if self.digest else f"{full}:{self.tag}"


@lru_cache(4096)
def parse_reference(text: str) -> ImageReference:
    """Parse the name of an image; raises ``ImageFailure`` INVALID_NAME."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ImageFailure(ImageFault.INVALID_NAME, f'couldn\'t parse image name "{text}": invalid reference format')
    host, path = found["host"] or "", found["path"]
    if host and not ("." in host or ":" in host or host == "localhost" or host != host.lower()):
        host, path = "", f"{host}/{path}"
    return ImageReference(host, path, found["tag"] or "latest", found["digest"] or "")


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """The program of one image; texts may contain placeholders."""

    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0


class ImageTable:
    """Entries by repository, or by repository and tag."""

    def __init__(self, entries: Mapping[str, ImageEntry], sources: tuple[str, ...] = ("images.yaml",)) -> None:
        self._entries = {_plain(name): entry for name, entry in entries.items()}
        self._sources = sources

    def find(self, text: str) -> Image | None:
        """The image, or None if it is not in the table."""
        reference = parse_reference(text)
        for name in _names(reference):
            entry = self._entries.get(f"{name}:{reference.tag}") or self._entries.get(name)
            if entry is not None:
                return _image(reference, entry)
        return None

    def bare(self, text: str) -> Image:
        """An image without a program, for containers that have a command."""
        return _image(parse_reference(text), ImageEntry())

    def missing(self, text: str) -> ImageFailure:
        where = " and ".join(self._sources)
        return ImageFailure(
            ImageFault.PULL,
            f'"{text}" is not in the image table ({where}). Pods of this cluster run as processes of the machine: '
            f"give the container a command, or add the image to the table with the program to run",
        )


def load_table(files: Iterable[Path] = (), flags: Iterable[str] = ()) -> ImageTable:
    """The built-in table, overridden by ``files`` and then by flags of the form ``REPOSITORY=COMMAND LINE``."""
    entries = _read(BUILT_IN)
    sources = ["the built-in images.yaml"]
    for path in files:
        entries |= _read(path)
        sources.append(str(path))
    for flag in flags:
        name, equals, line = flag.partition("=")
        if not equals or not line.strip():
            raise ConfigError(f"--image is {flag!r}: use REPOSITORY=COMMAND, for example shop/web=python3 web.py")
        entries[_key(name, "--image")] = ImageEntry(argv=tuple(shlex.split(line)))
    return ImageTable(entries, tuple(sources))


def _read(path: Path) -> dict[str, ImageEntry]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"the image table {path} cannot be read: {error}") from error
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, dict):
        raise ConfigError(f"{path}: expected a mapping 'images' from repository to argv, args and env")
    return {_key(name, str(path)): _entry(name, value, path) for name, value in images.items()}


def _key(name: Any, where: str) -> str:
    try:
        parse_reference(str(name))
    except ImageFailure as failure:
        raise ConfigError(f"{where}: {failure}") from failure
    return str(name)


def _entry(name: str, value: Any, path: Path) -> ImageEntry:
    if isinstance(value, list):
        value = {"argv": value}
    if (
        not isinstance(value, dict)
        or not set(value) <= {"argv", "args", "env", "port"}
        or not (value.keys() & {"argv", "args"})
    ):
        raise ConfigError(f"{path}: {name} must have argv or args, and may have env and port; it has {value!r}")
    lists = [value.get(key) or [] for key in ("argv", "args")]
    env = value.get("env") or {}
    if not all(isinstance(each, list) for each in lists) or not isinstance(env, dict):
        raise ConfigError(f"{path}: {name}: argv and args are lists, env is a mapping")
    port = value.get("port", 0)
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigError(f"{path}: {name}: port is {port!r}, it must be a number from 1 to 65535")
    argv, args = (tuple(str(word) for word in each) for each in lists)
    return ImageEntry(argv, args, {str(key): str(text) for key, text in env.items()}, port)


def _names(reference: ImageReference) -> Iterable[str]:
    """The names under which the table may have an image, most specific first."""
    if reference.host:
        yield f"{reference.host}/{reference.path}"
    yield _plain(reference.path)


def _plain(name: str) -> str:
    """The name without the prefixes of Docker Hub."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def _image(reference: ImageReference, entry: ImageEntry) -> Image:
    places = {
        "{tag}": reference.tag, "{repository}": reference.path, "{python}": sys.executable,
        "{source}": str(_HERE.parents[3]), "{programs}": str(_HERE),
    }  # fmt: skip

    def filled(text: str) -> str:
        for name, value in places.items():
            text = text.replace(name, value)
        return text

    return Image(
        id=f"process:{reference.canonical}",
        names=(reference.canonical,),
        entrypoint=tuple(map(filled, entry.argv)),
        command=tuple(map(filled, entry.args)),
        env=tuple((key, filled(value)) for key, value in entry.env.items()),
        port=entry.port,
    )
