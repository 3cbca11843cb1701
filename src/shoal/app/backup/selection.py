"""The parts of a state directory that are backed up: which there are, and which of their files matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from shoal.errors import ConfigError

CONTROL, NAVIGATOR, CLUSTER = "control", "navigator", "cluster"
LOCKS = {CONTROL: "control.lock", NAVIGATOR: "manager.lock", CLUSTER: "cluster.lock"}
DATABASES = {CONTROL: "fleet.db", NAVIGATOR: "navigator.db", CLUSTER: "store.db"}

# What is made anew, or belongs to processes that run: pods, the claims of addresses, caches, locks, logs, databases.
_LEFT_OUT = (
    "nodes/*", "addresses/*", "krane/*.cache", "*.lock", "*.sock", "*.log", "*.err", "*.pid", ".*", "*/.*",
    *(f"{name}{end}" for name in DATABASES.values() for end in ("", "-wal", "-shm", "-journal", ".copy")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A control plane, a navigator or a cluster. ``name`` is its folder within the state directory of ``shoal up``; a
    directory that is itself one of them has its kind as the name."""

    kind: str
    name: str
    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / LOCKS[self.kind]

    @property
    def database_url(self) -> str:
        """The URL of its database where no other was named."""
        return f"sqlite:///{self.folder / DATABASES[self.kind]}"

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Relative name and content of the files to keep."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if not path.is_symlink() and path.is_file() and is_kept(name):
                yield name, path.read_bytes()


def is_kept(name: str) -> bool:
    return not any(fnmatchcase(name, pattern) for pattern in _LEFT_OUT)


def parts_of(directory: Path) -> list[BackupPart]:
    """What a state directory holds: that of ``shoal up``, or of one process."""
    found = [
        BackupPart(kind, name, directory / name) for kind, name in _named(directory) if _is_used(directory / name, kind)
    ]
    if not found:
        found = [BackupPart(kind, kind, directory) for kind in LOCKS if _is_used(directory, kind)]
    if not found:
        raise ConfigError(
            f"dir is {str(directory)!r}: no control plane, navigator or cluster was started there; "
            "name the state directory with --dir"
        )
    return found


def part_in(directory: Path, kind: str, name: str, *, alone: bool) -> BackupPart:
    """Where a part of a backup goes: one of ``shoal up`` to its folder, a single one (``alone``) to the directory."""
    if kind not in LOCKS:
        raise ConfigError(f"the backup has a part of kind {kind!r}: use a newer Shoal")
    return BackupPart(kind, name, directory if alone else directory / name)


def chosen(names: Iterable[str], only: Iterable[str]) -> list[str]:
    """The parts to work on: all, or those that ``--only`` names."""
    names, wanted = list(names), list(only)
    for name in wanted:
        if name not in names:
            raise ConfigError(f"only has {name!r}: there is {', '.join(names)}")
    return [name for name in names if not wanted or name in wanted]


def _named(directory: Path) -> list[tuple[str, str]]:
    clusters = sorted(path.name for path in (directory / "clusters").glob("*") if path.is_dir())
    return [(CONTROL, CONTROL), (NAVIGATOR, NAVIGATOR), *((CLUSTER, f"clusters/{name}") for name in clusters)]


def _is_used(folder: Path, kind: str) -> bool:
    return (folder / LOCKS[kind]).exists()
