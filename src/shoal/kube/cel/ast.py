"""The syntax tree of an expression, after macros are expanded. The checker writes types and overloads into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.kube.cel.functions import Overload
    from shoal.kube.cel.types import Type


class Expr:
    """A node: ``offset`` is its position for messages, ``type`` the checker's result."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type | None = None


class Literal(Expr):
    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Expr):
    """A variable, or a type used as a value (then ``constant`` is that type)."""

    __slots__ = ("constant", "name")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.constant: Type | None = None


class Select(Expr):
    """``operand.field``; with ``test``, whether it is present; with ``optional``, an optional of it.

    ``key`` is the field's name in the data, which differs from the name in the expression if that is escaped.
    ``variable`` is set if the whole chain is the name of a variable (``authorizer.requestResource``).
    """

    __slots__ = ("constant", "field", "key", "operand", "optional", "test", "variable")

    def __init__(self, offset: int, operand: Expr, field: str, *, test: bool = False, optional: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.key = field
        self.test = test
        self.optional = optional
        self.constant: Type | None = None
        self.variable = ""


class Call(Expr):
    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Expr], target: Expr | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: list[Overload] = []


class ListExpr(Expr):
    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Expr], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional  # positions of elements written ``?e``, omitted when they have no value


class MapExpr(Expr):
    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[tuple[Expr, Expr, bool]]) -> None:
        super().__init__(offset)
        self.entries = entries  # key, value, optional


class Struct(Expr):
    """``Name{field: value}``; only mutations can build objects, elsewhere the checker refuses it."""

    __slots__ = ("fields", "name")

    def __init__(self, offset: int, name: str, fields: list[tuple[int, str, Expr, bool]]) -> None:
        super().__init__(offset)
        self.name = name
        self.fields = fields  # offset, name, value, optional


class Comprehension(Expr):
    """A loop over a list or map, the expansion of a macro. ``macro`` and ``parts`` let the evaluator loop directly."""

    __slots__ = ("accu_init", "accu_var", "condition", "iter_range", "iter_var", "iter_var2", "macro", "result", "step")

    def __init__(
        self,
        offset: int,
        macro: str,
        iter_range: Expr,
        iter_vars: tuple[str, str],
        accu: tuple[str, Expr],
        loop: tuple[Expr, Expr, Expr],
    ) -> None:
        super().__init__(offset)
        self.macro = macro
        self.iter_range = iter_range
        self.iter_var, self.iter_var2 = iter_vars  # the second is empty in one-variable loops
        self.accu_var, self.accu_init = accu
        self.condition, self.step, self.result = loop
