"""The macros: calls that the parser rewrites, because their arguments are not evaluated like those of functions."""

from __future__ import annotations

from collections.abc import Callable

from shoal.kube.cel.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select
from shoal.kube.cel.errors import Issue

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
UNUSED = "#unused"


class MacroError(Exception):
    """A macro has invalid arguments."""

    def __init__(self, at: Expr, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(at.offset, message)


Expander = Callable[[int, Expr, list[Expr]], Expr]


def _name(arg: Expr, message: str) -> str:
    if not isinstance(arg, Ident) or arg.name.startswith("."):
        raise MacroError(arg, message)
    if arg.name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(arg, "iteration variable overwrites accumulator variable")
    return arg.name


def _two_names(first: Expr, second: Expr) -> tuple[str, str]:
    names = (_name(first, "argument must be a simple name"), _name(second, "argument must be a simple name"))
    if names[0] == names[1]:
        raise MacroError(second, f"duplicate variable name: {names[0]}")
    return names


class _Builder:
    """Creates nodes at the position of the macro's call."""

    def __init__(self, offset: int) -> None:
        self.at = offset

    def call(self, function: str, *args: Expr) -> Call:
        return Call(self.at, function, list(args))

    def accu(self) -> Ident:
        return Ident(self.at, ACCUMULATOR)

    def literal(self, value: object) -> Literal:
        return Literal(self.at, value)

    def loop(
        self, macro: str, over: Expr, names: tuple[str, str], init: Expr, condition: Expr, step: Expr, result: Expr
    ) -> Comprehension:
        return Comprehension(self.at, macro, over, names, (ACCUMULATOR, init), (condition, step, result))


def has(offset: int, args: list[Expr]) -> Expr:
    select = args[0]
    if not isinstance(select, Select) or select.test or select.optional:
        raise MacroError(select, "invalid argument to has() macro")
    return Select(offset, select.operand, select.field, test=True)


def _all(offset: int, target: Expr, names: tuple[str, str], test: Expr) -> Expr:
    make = _Builder(offset)
    condition = make.call("@not_strictly_false", make.accu())
    step = make.call("_&&_", make.accu(), test)
    return make.loop("all", target, names, make.literal(True), condition, step, make.accu())


def _exists(offset: int, target: Expr, names: tuple[str, str], test: Expr) -> Expr:
    make = _Builder(offset)
    condition = make.call("@not_strictly_false", make.call("!_", make.accu()))
    step = make.call("_||_", make.accu(), test)
    return make.loop("exists", target, names, make.literal(False), condition, step, make.accu())


def _exists_one(offset: int, target: Expr, names: tuple[str, str], test: Expr) -> Expr:
    make = _Builder(offset)
    more = make.call("_+_", make.accu(), make.literal(1))
    step = make.call("_?_:_", test, more, make.accu())
    result = make.call("_==_", make.accu(), make.literal(1))
    return make.loop("exists_one", target, names, make.literal(0), make.literal(True), step, result)


def _collect(offset: int, target: Expr, names: tuple[str, str], keep: Expr | None, value: Expr) -> Expr:
    make = _Builder(offset)
    step: Expr = make.call("_+_", make.accu(), ListExpr(offset, [value]))
    if keep is not None:
        step = make.call("_?_:_", keep, step, make.accu())
    return make.loop("map", target, names, ListExpr(offset, []), make.literal(True), step, make.accu())


def _insert(offset: int, target: Expr, names: tuple[str, str], keep: Expr | None, value: Expr, *, entry: bool) -> Expr:
    make = _Builder(offset)
    key = [] if entry else [Ident(offset, names[0])]
    step: Expr = make.call("cel.@mapInsert", make.accu(), *key, value)
    if keep is not None:
        step = make.call("_?_:_", keep, step, make.accu())
    return make.loop("fold", target, names, MapExpr(offset, []), make.literal(True), step, make.accu())


def _map(offset: int, target: Expr, args: list[Expr]) -> Expr:
    name = _name(args[0], "argument is not an identifier")
    keep = args[1] if len(args) == 3 else None
    return _collect(offset, target, (name, ""), keep, args[-1])


def _filter(offset: int, target: Expr, args: list[Expr]) -> Expr:
    name = _name(args[0], "argument is not an identifier")
    return _collect(offset, target, (name, ""), args[1], Ident(args[0].offset, name))


def _quantifier(make: Callable[[int, Expr, tuple[str, str], Expr], Expr]) -> Expander:
    def expand(offset: int, target: Expr, args: list[Expr]) -> Expr:
        if len(args) == 2:
            return make(offset, target, (_name(args[0], "argument must be a simple name"), ""), args[1])
        return make(offset, target, _two_names(args[0], args[1]), args[2])

    return expand


def _transform(kind: str) -> Expander:
    def expand(offset: int, target: Expr, args: list[Expr]) -> Expr:
        names = _two_names(args[0], args[1])
        keep = args[2] if len(args) == 4 else None
        if kind == "list":
            return _collect(offset, target, names, keep, args[-1])
        return _insert(offset, target, names, keep, args[-1], entry=kind == "entry")

    return expand


def _bind(offset: int, name: str, value: Expr, result: Expr) -> Comprehension:
    """``result`` with ``name`` bound to ``value``: a loop over an empty list."""
    loop = (Literal(offset, False), Ident(offset, name), result)
    return Comprehension(offset, "bind", ListExpr(offset, []), (UNUSED, ""), (name, value), loop)


def _opt_map(flat: bool) -> Expander:
    macro = "optFlatMap" if flat else "optMap"

    def expand(offset: int, target: Expr, args: list[Expr]) -> Expr:
        if not isinstance(args[0], Ident):
            raise MacroError(args[0], f"{macro}() variable name must be a simple identifier")
        make = _Builder(offset)
        bound: Expr = _bind(offset, args[0].name, Call(offset, "value", [], target), args[1])
        if not flat:
            bound = make.call("optional.of", bound)
        return make.call("_?_:_", Call(offset, "hasValue", [], target), bound, make.call("optional.none"))

    return expand


def _sort_by(offset: int, target: Expr, args: list[Expr]) -> Expr:
    name = "@__sortBy_input__"
    keys = _map(offset, Ident(offset, name), args)
    return _bind(offset, name, target, Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, name)))


_QUANTIFIERS = {"all": _all, "exists": _exists, "exists_one": _exists_one, "existsOne": _exists_one}

MEMBER_MACROS: dict[tuple[str, int], Expander] = {
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("sortBy", 2): _sort_by,
    **{(name, count): _quantifier(make) for name, make in _QUANTIFIERS.items() for count in (2, 3)},
    **{("transformList", count): _transform("list") for count in (3, 4)},
    **{("transformMap", count): _transform("map") for count in (3, 4)},
    **{("transformMapEntry", count): _transform("entry") for count in (3, 4)},
}
