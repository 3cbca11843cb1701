"""Which declaration a path leads to; pure.

Paths are trees of segments: a literal segment is preferred to a parameter, whatever the order of declaration. A
parameter stands for one segment that is not empty. A path that ends in ``/*`` also takes everything below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Segment(Generic[T]):
    literals: dict[str, _Segment[T]] = field(default_factory=dict)
    parameter: _Segment[T] | None = None
    methods: dict[str, T] = field(default_factory=dict)
    below: dict[str, T] = field(default_factory=dict)


class Routes(Generic[T]):
    """By path, what there is for each method."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, T]] = {}  # paths without parameters
        self._root: _Segment[T] = _Segment()

    def add(self, method: str, path: str, target: T) -> None:
        open_ended = path.endswith("/*")
        node = self._root
        for segment in path.removesuffix("/*").split("/")[1:]:
            if segment.startswith("{"):
                node.parameter = node = node.parameter or _Segment()
            else:
                node = node.literals.setdefault(segment, _Segment())
        methods = node.below if open_ended else node.methods
        if method in methods:
            raise ValueError(f"{method} {path} is declared twice")
        methods[method] = target
        if not open_ended and "{" not in path:
            self._exact[path] = methods

    def find(self, path: str) -> tuple[dict[str, T], list[str]]:
        """What there is at a path by method, and the values of the parameters; nothing by any method for no path."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, []
        values: list[str] = []
        return _find(self._root, path.split("/")[1:], 0, values), values


def parameters_of(path: str) -> tuple[str, ...]:
    """The names of a path's parameters, in order."""
    return tuple(segment[1:-1] for segment in path.split("/") if segment.startswith("{"))


def _find(node: _Segment[T], segments: list[str], position: int, values: list[str]) -> dict[str, T]:
    if position == len(segments):
        return node.methods or node.below
    segment = segments[position]
    literal = node.literals.get(segment)
    if literal is not None:
        found = _find(literal, segments, position + 1, values)
        if found:
            return found
    if node.parameter is not None and segment:
        values.append(segment)
        found = _find(node.parameter, segments, position + 1, values)
        if found:
            return found
        values.pop()
    return node.below
