"""Reading the source tree for the architecture tests: modules, what they import, what they call."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
Node = TypeVar("Node", bound=ast.AST)
GENERATED = ("shoal.wire.", "shoal.kube.schema.generated")


# A package imports only strictly lower levels; packages of one level never import each other.
LEVEL = {
    "errors": -1,
    "base": 0,
    "wire": 0,
    "kube": 1,
    "rest": 1,
    "store": 1,
    "crds": 2,
    "sync": 1,
    "client": 2,
    "apiserver": 2,
    "reconcile": 3,
    "scheduler": 4,
    "controllers": 4,
    "node": 4,
    "control": 4,
    "krane": 4,
    "sentinel": 4,
    "navigator": 4,
    "sharding": 4,
    "dashboard": 5,
    "cli": 5,
    "app": 6,
    "testing": 7,
    "__main__": 8,
}


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str  # dotted
    path: Path

    @property
    def package(self) -> str:
        """The part after ``shoal``: ``kube`` for ``shoal.kube.patch.json``; the module itself for ``shoal.errors``."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT))


def modules() -> tuple[Module, ...]:
    """Every module of Shoal, without generated ones."""
    return modules_in(SRC)


@cache
def modules_in(root: Path) -> tuple[Module, ...]:
    """The modules of the package ``shoal`` in a folder, without generated ones."""
    found = []
    for path in sorted((root / "shoal").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(GENERATED):
            found.append(Module(name, path))
    return tuple(found)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def nodes(path: Path, kind: type[Node]) -> list[Node]:
    """Every node of one class in a file, in the order of ``ast.walk``."""
    return _nodes_by_class(path)[kind]  # type: ignore[return-value]


@cache
def _nodes_by_class(path: Path) -> defaultdict[type[ast.AST], list[ast.AST]]:
    """Walked once per file: walking every tree for each test took most of the tests' time."""
    found = defaultdict[type[ast.AST], list[ast.AST]](list)
    for node in ast.walk(tree(path)):
        found[type(node)].append(node)
    return found


def imports(module: Module, *, with_typing: bool = True, inside_functions: bool = True) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of everything a module imports, anywhere in it. ``from a import b`` gives ``a`` and ``a.b``.
    Without ``with_typing`` imports under ``if TYPE_CHECKING`` are left out, without ``inside_functions`` those that are only
    made when a function is called."""
    for found in _import_statements(module):
        if (with_typing or not found.for_typing) and (inside_functions or not found.inside_function):
            for name in found.names:
                yield name, found.line


@dataclass(frozen=True, slots=True)
class _ImportStatement:
    names: tuple[str, ...]
    line: int
    for_typing: bool
    inside_function: bool


@cache
def _import_statements(module: Module) -> tuple[_ImportStatement, ...]:
    """Found once per module, among statements only: walking every expression for each test took most of the tests' time."""
    found: list[_ImportStatement] = []

    def visit(nodes: Iterable[ast.AST], for_typing: bool, inside_function: bool) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                names = tuple(alias.name for alias in node.names)
                found.append(_ImportStatement(names, node.lineno, for_typing, inside_function))
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(module, node)
                names = (base, *(f"{base}.{alias.name}" for alias in node.names))
                found.append(_ImportStatement(names, node.lineno, for_typing, inside_function))
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                function = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                typing = (
                    isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
                )
                visit(getattr(node, "body", ()), for_typing or typing, function)
                for field in ("orelse", "finalbody", "handlers", "cases"):
                    visit(getattr(node, field, ()), for_typing, function)

    visit(tree(module.path).body, False, False)
    return tuple(found)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    if module.path.name != "__init__.py":
        parts = parts[:-1]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, node.module] if node.module else parts)


@cache
def calls(module: Module) -> tuple[tuple[str, int], ...]:
    """(dotted name, line) of every call whose function can be named, with import aliases resolved."""
    names, found = _aliases(module.path), []
    for node in nodes(module.path, ast.Call):
        if name := dotted(node.func):
            head, _, rest = name.partition(".")
            full = names.get(head, head)
            found.append(((f"{full}.{rest}" if rest else full), node.lineno))
    return tuple(found)


def _aliases(path: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in nodes(path, ast.Import):
        names |= {
            alias.asname or alias.name.split(".")[0]: alias.asname and alias.name or alias.name.split(".")[0]
            for alias in node.names
        }
    for imported in nodes(path, ast.ImportFrom):
        if imported.module and not imported.level:
            names |= {alias.asname or alias.name: f"{imported.module}.{alias.name}" for alias in imported.names}
    return names


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a chain of names; nothing for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


# Packages whose names are documented for users: nothing inside need use them.
FOR_USERS = ("shoal.client", "shoal.sharding.worker", "shoal.testing")


def unused_names() -> list[str]:
    """The public top-level names, as ``module.name``, that no module of ours uses but for ``shoal.testing``: only tests
    do, or nothing does. A name is used by its own module, by whoever imports it from there or from a package above, by
    whoever has the module and an attribute of that name, and by a string ``module:name``."""
    used = {module.name: _used(module) for module in modules()}
    index = _Index(used)
    return [
        f"{module.name}.{name}"
        for module in modules()
        if not module.name.startswith(FOR_USERS)
        for name in _public_names(tree(module.path))
        if name not in used[module.name].names and not index.is_used(module.name, name)
    ]


@dataclass(frozen=True)
class _Used:
    """What one module uses."""

    names: frozenset[str]
    attributes: frozenset[str]
    imported: frozenset[str]
    targets: frozenset[str]  # of strings such as "shoal.cli.fleet.get:app"


def _used(module: Module) -> _Used:
    path = module.path
    texts = [node.value for node in nodes(path, ast.Constant) if isinstance(node.value, str)]
    return _Used(
        frozenset(node.id for node in nodes(path, ast.Name) if isinstance(node.ctx, ast.Load)),
        frozenset(node.attr for node in nodes(path, ast.Attribute)),
        frozenset(name for name, _ in imports(module)),
        frozenset(name for text in texts if len(text) < 120 for name in re.findall(r"[\w.]+:(\w+)", text)),
    )


def _public_names(top: ast.Module) -> Iterator[str]:
    """Functions that a decorator registers, such as commands, are called by what registered them."""
    for node in top.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


class _Index:
    """Who uses what: modules by the names that they import, the attributes that they read and the targets they name."""

    def __init__(self, used: dict[str, _Used]) -> None:
        self._used = used
        self._importing: defaultdict[str, set[str]] = defaultdict(set)
        self._reading: defaultdict[str, set[str]] = defaultdict(set)
        self._targets: set[str] = set()
        for module, of in used.items():
            if module.startswith("shoal.testing"):
                continue
            self._targets |= of.targets
            for name in of.imported:
                self._importing[name].add(module)
            for name in of.attributes:
                self._reading[name].add(module)

    def is_used(self, module: str, name: str) -> bool:
        if name in self._targets:
            return True
        parts = module.split(".")
        places = {".".join(parts[:count]) for count in range(2, len(parts) + 1)}
        importing = set().union(*(self._importing[f"{place}.{name}"] for place in places)) - {module}
        # a package above that imports the name to pass it on does not use it by that
        if any(other not in places or name in self._used[other].names for other in importing):
            return True
        knowing = set().union(places, *(self._importing[place] for place in places)) - {module}
        return bool(self._reading[name] & knowing)
