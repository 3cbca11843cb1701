"""The paths of a REST API with names in them, and a table of who may call them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def filled(path: str, names: Mapping[str, str]) -> str:
    """The path of an operation with the names of objects; the name of an object depends on the collection."""

    def value(found: re.Match[str]) -> str:
        collection = path[: found.start()].rstrip("/").rsplit("/", 1)[-1]
        return names.get(f"{collection}.{found[1]}", names.get(found[1], "x"))

    return re.sub(r"\{(\w+)\}", value, path)


class Table:
    """A file with a line for every operation and a column for every kind of caller."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self.columns = columns

    def rows(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self._path.read_text().splitlines():
            words = line.split("#")[0].split()
            if words:
                assert len(words) == 2 + len(self.columns), f"a line needs a method, a path and {self.columns}: {line}"
                found[f"{words[0]} {words[1]}"] = words[2:]
        return found

    def line(self, operation: str, cells: Iterable[str]) -> str:
        method, _, path = operation.partition(" ")
        shown = (f"{cell:<{max(len(name), 4)}}" for name, cell in zip(self.columns, cells, strict=True))
        return f"{method:<6} {path:<84} {' '.join(shown)}".rstrip()

    def check(self, found: Mapping[str, Sequence[str]]) -> None:
        """Every operation has its line, and every cell is as the table says."""
        expected = self.rows()
        missing = [self.line(name, cells) for name, cells in found.items() if name not in expected]
        assert not missing, "add these lines, after thinking about each cell:\n" + "\n".join(missing)
        gone = sorted(set(expected) - set(found))
        assert not gone, f"no such operation any more: {gone}"
        wrong = [self.line(name, cells) for name, cells in found.items() if list(cells) != expected[name]]
        assert not wrong, "these are answered otherwise than the table says:\n" + "\n".join(wrong)
