"""The environment of an expression, and the program it compiles to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shoal.kube.cel import types
from shoal.kube.cel.ast import Call, Expr
from shoal.kube.cel.checker import check, children
from shoal.kube.cel.cost import Range, estimate
from shoal.kube.cel.declare import Schema, declare
from shoal.kube.cel.errors import CompileError, Issue
from shoal.kube.cel.evaluator import Compiled
from shoal.kube.cel.library import patching, standard
from shoal.kube.cel.parser import parse
from shoal.kube.cel.types import Decl, Type

PER_CALL_LIMIT: Final = 1_000_000
_COMPARING: Final = frozenset({"_==_", "_!=_", "_+_", "@in", "sets.equivalent", "sets.contains", "sets.intersects"})
_CONTAINERS: Final = frozenset({"list", "map", "struct", "dyn"})


@dataclass(frozen=True, slots=True)
class Env:
    """Declared variables. ``root`` is the type of ``self`` and ``oldSelf`` and gives sizes to the cost estimate;
    ``patches`` allows building ``Object`` and ``JSONPatch`` values."""

    variables: Mapping[str, Type] = field(default_factory=dict)
    root: Decl | None = None
    patches: bool = False

    @classmethod
    def of_schema(cls, schema: Schema, *, resource: bool = False, optional_old: bool = False) -> Env:
        """``self`` and ``oldSelf`` of a structural schema; raises ValueError if expressions cannot use its type."""
        root = declare(schema, resource=resource)
        if root is None:
            raise ValueError("unable to convert structural schema to CEL declarations")
        return cls.of_type(root, optional_old=optional_old)

    @classmethod
    def of_type(cls, root: Decl, *, optional_old: bool = False) -> Env:
        old = types.optional_of(root.type) if optional_old else root.type
        return cls({"self": root.type, "oldSelf": old}, root)

    @classmethod
    def dynamic(cls, *names: str, **declared: Type) -> Env:
        """Variables of any type, for admission policies; ``declared`` ones have the given type."""
        return cls({**dict.fromkeys(names, types.DYN), **declared})


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    source: str
    type: Type
    variables: frozenset[str]
    cost: Range  # static estimate
    compares_lists: bool  # needs lists of type set and map as such
    compiled: Compiled

    def evaluate(
        self,
        values: Mapping[str, Any],
        limit: int = PER_CALL_LIMIT,
        interrupted: Callable[[], bool] | None = None,
    ) -> tuple[Any, int]:
        """Return the value and its cost. Raises ``EvalError``, which also has the cost.

        Loops poll ``interrupted`` and raise ``Interrupted`` if it returns true.
        """
        return self.compiled.run(values, limit, interrupted)


def compile(expression: str, env: Env) -> Program:
    """Parse and check an expression; raises ``CompileError`` with every error found."""
    tree = parse(expression)
    try:
        library = patching() if env.patches else standard()
        issues, used = check(tree, env.variables, library, patches=env.patches)
        if issues:
            raise CompileError(expression, issues)
        result = tree.type or types.DYN
        return Program(expression, result, used, estimate(tree, env.root), _compares_lists(tree), Compiled(tree))
    except RecursionError:
        raise CompileError(expression, [Issue(0, "expression nested too deeply")]) from None


def _compares_lists(tree: Expr) -> bool:
    if isinstance(tree, Call) and tree.function in _COMPARING:
        operands = (each.type for each in children(tree))
        if any(each is not None and each.kind in _CONTAINERS for each in operands):
            return True
    return any(_compares_lists(each) for each in children(tree))
