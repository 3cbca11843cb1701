"""The examples: files for ``shoal apply`` that come with Shoal, and writing them to where a user can change them."""

from __future__ import annotations

from pathlib import Path

import shoal
from shoal.errors import ConfigError

FOLDER = "examples"
HELLO = f"{FOLDER}/hello.yaml"


def source() -> Path:
    """Where the examples lie: in the installed package, or beside ``src`` in a checkout."""
    package = Path(shoal.__file__).parent
    for each in (package / FOLDER, package.parents[1] / FOLDER):
        if (each.parent / HELLO).is_file():
            return each
    raise ConfigError(f"the examples are missing in {package}: install shoal-fleet again")


def summaries() -> dict[str, str]:
    """The names of the files with the first sentence of each, which says what it is."""
    return {path.name: _first_sentence(path) for path in sorted(source().glob("*.yaml"))}


def write(folder: Path, *, force: bool = False) -> list[Path]:
    """Write all examples to ``folder``; returns those that were written. Raise ConfigError, and write nothing, if one
    there has been changed, unless ``force``."""
    wanted = {folder / path.name: path.read_bytes() for path in sorted(source().glob("*.yaml"))}
    there = {path: path.read_bytes() for path in wanted if path.exists()}
    if changed := [str(path) for path, content in there.items() if content != wanted[path] and not force]:
        raise ConfigError(f"{', '.join(changed)} would be overwritten: name another folder with --to, or use --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [path for path, content in wanted.items() if there.get(path) != content]
        for path in written:
            path.write_bytes(wanted[path])
    except OSError as error:
        raise ConfigError(f"to is {str(folder)!r}: {error.strerror}; choose another with --to") from None
    return written


def _first_sentence(path: Path) -> str:
    line = path.read_text().partition("\n")[0].removeprefix("#").strip()
    return line.partition(". ")[0].removesuffix(".")
