"""The static cost estimate: an upper bound of what an expression can cost.

Costs are counted in abstract units, roughly one per operation, and sizes come from the limits in the schema: a string
without ``maxLength`` counts as if it filled a whole request. The numbers must be those of Kubernetes, because they
decide which rules a definition may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from shoal.kube.cel.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, Struct
from shoal.kube.cel.macros import ACCUMULATOR
from shoal.kube.cel.types import DYN, Decl, Type

MAX: Final = 2**64 - 1
TRAVERSAL: Final = 0.1  # per character of a scanned string
REGEX: Final = 0.25  # per character of a pattern
LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40
CHECK_COST: Final = 350_000
SELECTOR_COST: Final = 10 + 40
FORMAT_REGEX_SIZE: Final = 128


class Range(NamedTuple):
    """Minimum and maximum of a size or a cost."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        return Range(min(MAX, self.low + other.low), min(MAX, self.high + other.high))

    def times(self, other: Range) -> Range:
        return Range(min(MAX, self.low * other.low), min(MAX, self.high * other.high))

    def scaled(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(value: int, factor: float) -> int:
    return min(MAX, math.ceil(float(value) * factor))


def fixed(value: int) -> Range:
    return Range(value, value)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, MAX)
Path = tuple[str, ...]


class Estimate(NamedTuple):
    """The estimate of one call: its cost without that of its arguments, and the size of its result if known."""

    cost: Range
    size: Range | None = None


class _Entry(NamedTuple):
    """Sizes of the keys and values of a container that the expression builds."""

    kind: str
    key: Range
    value: Range


class _Local(NamedTuple):
    path: Path
    size: Range | None
    entry: _Entry | None


class Operand(NamedTuple):
    """An argument in the estimate of a call."""

    node: Expr
    type: Type
    size: Range  # unknown sizes are UNKNOWN
    element: Range | None  # size of a list's element; None if it is not a list


def estimate(tree: Expr, root: Decl | None) -> Range:
    """The cost of a checked tree; ``root`` is the type of self."""
    return _Coster(root).cost(tree)


class _Coster:
    def __init__(self, root: Decl | None) -> None:
        self.root = root
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, _Entry] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expr) -> Range:
        if isinstance(node, Literal):
            return ZERO
        if isinstance(node, Ident):
            found = self.local(node.name)
            self.paths[id(node)] = found.path if found else (node.name,)
            return ONE
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListExpr):
            return self.built_list(node)
        if isinstance(node, MapExpr):
            return self.built_map(node)
        if isinstance(node, Comprehension):
            return self.bind(node) if node.macro == "bind" else self.comprehension(node)
        if isinstance(node, Struct):
            return self.built_struct(node)
        return ZERO

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: Expr) -> Path:
        if isinstance(node, Ident):
            found = self.local(node.name)
            if found is not None:
                return found.path
        return self.paths.get(id(node), ())

    def select(self, node: Select) -> Range:
        if node.variable:
            self.paths[id(node)] = (node.variable,)
            return ONE
        if node.constant is not None:
            self.paths[id(node)] = (node.constant.name,)
            return ONE
        total = self.cost(node.operand)
        if node.test:
            return total
        if node.optional:
            return total.plus(ONE)
        operand = node.operand.type
        if operand is not None and operand.kind in ("map", "struct", "param"):
            total = total.plus(ONE)
        self.paths[id(node)] = (*self.path(node.operand), node.field)
        return total

    def built_list(self, node: ListExpr) -> Range:
        total, item = ZERO, Range(MAX if node.elements else 0, 0)
        for each in node.elements:
            total = total.plus(self.cost(each))
            item = item.union(self.size(each) or UNKNOWN)
        self.entries[id(node)] = _Entry("list", ONE, item)
        return total.plus(fixed(LIST_COST))

    def built_map(self, node: MapExpr) -> Range:
        low = MAX if node.entries else 0
        total, key_size, value_size = ZERO, Range(low, 0), Range(low, 0)
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            key_size = key_size.union(self.size(key) or UNKNOWN)
            value_size = value_size.union(self.size(value) or UNKNOWN)
        self.entries[id(node)] = _Entry("map", key_size, value_size)
        return total.plus(fixed(MAP_COST))

    def built_struct(self, node: Struct) -> Range:
        total = fixed(STRUCT_COST)
        for _, _, value, _ in node.fields:
            total = total.plus(self.cost(value))
        return total

    def push(self, name: str, path: Path, size: Range | None, entry: _Entry | None = None) -> None:
        self.locals.setdefault(name, []).append(_Local(path, size, entry))

    def comprehension(self, node: Comprehension) -> Range:
        total = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self.push_value(node.accu_var, node.accu_init)
        self.push_iterators(node)
        step = self.cost(node.condition).plus(self.cost(node.step))
        self.locals[node.iter_var].pop()
        if node.iter_var2:
            self.locals[node.iter_var2].pop()
        total = total.plus(self.cost(node.result))
        self.locals[node.accu_var].pop()
        count = self.size(node.iter_range) or UNKNOWN
        total = total.plus(count.times(step))
        if isinstance(node.accu_init, Literal):
            self.sizes[id(node)] = self.size(node.accu_init) or ONE
        else:
            self.sizes[id(node)] = count
            below = self.entry(node.step)
            if below is not None:
                self.entries[id(node)] = below
        return total

    def push_value(self, name: str, value: Expr) -> None:
        self.push(name, self.path(value), self.size(value), self.entry(value))

    def push_iterators(self, node: Comprehension) -> None:
        over, path, entry = node.iter_range, self.path(node.iter_range), self.entry(node.iter_range)
        is_list = (entry.kind if entry else over.type.kind if over.type else "") == "list"
        if node.iter_var2:
            key_path, value_path = ("@indices", "@items") if is_list else ("@keys", "@values")
            self.push(node.iter_var, (*path, key_path), entry.key if entry else None)
            self.push(node.iter_var2, (*path, value_path), entry.value if entry else None)
        elif is_list:
            self.push(node.iter_var, (*path, "@items"), entry.value if entry else None)
        else:
            self.push(node.iter_var, (*path, "@keys"), entry.key if entry else None)

    def bind(self, node: Comprehension) -> Range:
        total = fixed(LIST_COST).plus(self.cost(node.accu_init))
        self.push_value(node.accu_var, node.accu_init)
        total = total.plus(self.cost(node.result))
        self.locals[node.accu_var].pop()
        self.copy_sizes(node, node.result)
        return total

    def copy_sizes(self, node: Expr, source: Expr) -> None:
        size, entry = self.size(source), self.entry(source)
        if size is not None:
            self.sizes[id(node)] = size
        if entry is not None:
            self.entries[id(node)] = entry

    def size(self, node: Expr) -> Range | None:
        known = self.sizes.get(id(node)) or _written_size(node) or self.declared_size(self.path(node))
        if known is not None:
            return known
        if node.type is not None and _is_scalar(node.type):
            return ONE
        if isinstance(node, Ident):
            found = self.local(node.name)
            return found.size if found else None
        return None

    def declared_size(self, path: Path) -> Range | None:
        """The size that the schema declares for the value that an expression reads."""
        place = self.root
        if not path or place is None or path[0] == ACCUMULATOR:
            return None
        for name in path[1:]:
            if name in ("@items", "@values"):
                place = place.elem
            elif name == "@keys":
                place = place.key
            else:
                place = (place.fields or {}).get(name, (None, None))[1]
            if place is None:
                return None
        return Range(0, place.max_elements)

    def entry(self, node: Expr) -> _Entry | None:
        known = self.entries.get(id(node))
        if known is None and isinstance(node, Ident):
            found = self.local(node.name)
            return found.entry if found else None
        return known

    def operand(self, node: Expr) -> Operand:
        kind = node.type or DYN
        element: Range | None = None
        if kind.params:
            path = self.path(node)
            element = self.declared_size((*path, "@items")) if path else None
            element = element or UNKNOWN
        return Operand(node, kind, self.size(node) or UNKNOWN, element)

    def call(self, node: Call) -> Range:
        if node.function == "dyn" and node.target is None:
            total = self.cost(node.args[0]).plus(ONE)
            self.copy_sizes(node, node.args[0])
            return total
        costs = [self.cost(each) for each in node.args]
        args = [self.operand(each) for each in node.args]
        total = ZERO
        target: Operand | None = None
        if node.target is not None:
            total = self.cost(node.target)
            target = self.operand(node.target)
        if node.function in ("_&&_", "_||_"):
            return Range(costs[0].low, costs[0].plus(costs[1]).high)
        if node.function == "_?_:_":
            return self.conditional(node, costs, args)
        result: Range | None = None
        spent = Range(MAX, 0)
        for overload in node.overloads:
            found = call_estimate(node.function, overload.id, target, args)
            spent = spent.union(found.cost)
            if found.size is not None:
                result = found.size if result is None else result.union(found.size)
            if overload.id in ("index_list", "index_map"):
                entry = self.entry(node.args[0])
                result = entry.value if entry else None
                place = "@items" if overload.id == "index_list" else "@values"
                self.paths[id(node)] = (*self.path(node.args[0]), place)
            if overload.id in ("add_list", "add_string", "add_bytes"):
                self.join_entries(node)
            result = result or self.size(node)
        if result is not None:
            self.sizes[id(node)] = result
        for each in costs:
            total = total.plus(each)
        return total.plus(spent)

    def conditional(self, node: Call, costs: list[Range], args: list[Operand]) -> Range:
        self.sizes[id(node)] = args[1].size.union(args[2].size)
        left, right = self.entry(node.args[1]), self.entry(node.args[2])
        if left is not None and right is not None:
            self.entries[id(node)] = _Entry(left.kind, left.key.union(right.key), left.value.union(right.value))
        return costs[0].plus(costs[1].union(costs[2]))

    def join_entries(self, node: Call) -> None:
        left, right = self.entry(node.args[0]), self.entry(node.args[1])
        if left is not None and right is not None:
            self.entries[id(node)] = _Entry(left.kind, left.key.union(right.key), left.value.union(right.value))


def _written_size(node: Expr) -> Range | None:
    if isinstance(node, Literal):
        value = node.value
        if isinstance(value, str | bytes):
            return fixed(len(value))
        return ONE
    if isinstance(node, ListExpr):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapExpr) else None


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type" and kind.params:
        return _is_scalar(kind.params[0])
    return kind.kind in ("bool", "double", "duration", "int", "timestamp", "uint")


Target = Operand | None
Estimator = Callable[[str, Target, list[Operand]], Estimate]


def call_estimate(function: str, overload: str, target: Target, args: list[Operand]) -> Estimate:
    """Cost and result size of one overload of a call."""
    if function in _NOMINAL:
        return Estimate(ONE)
    made = _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)
    return made(overload, target, args) if made is not None else Estimate(ONE)


_NOMINAL: Final = frozenset({
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error",
    "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
    "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger", "asApproximateFloat",
    "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname",
    "getHost", "getPort", "getEscapedPath", "getQuery",
})  # fmt: skip


def _text_of(target: Target, args: list[Operand]) -> Range:
    return target.size if target is not None else args[0].size


def _scan(_: str, target: Target, args: list[Operand]) -> Estimate:
    return Estimate(_text_of(target, args).scaled(TRAVERSAL))


def _scan_same_size(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = _text_of(target, args)
    return Estimate(size.scaled(TRAVERSAL), size)


def _list_scan(_: str, target: Target, args: list[Operand]) -> Estimate:
    if target is None:
        return Estimate(ONE)
    if target.element is None:
        return Estimate(target.size.scaled(TRAVERSAL))
    each = ONE
    if target.type.params and target.type.params[0].kind in ("string", "bytes"):
        each = ONE.plus(target.element.scaled(TRAVERSAL))
    return Estimate(target.size.times(each))


def _replace(_: str, target: Target, args: list[Operand]) -> Estimate:
    size, old, new = _text_of(target, args), args[0].size, args[1].size
    count_high = kept_high = count_low = kept_low = 0
    if old.low == 0:
        count_high, kept_high = min(MAX, size.high + 1), size.high
    elif new.high <= old.low:
        kept_high = size.high
    else:
        count_high = math.ceil(size.high / old.low)
    if old.high == 0:
        count_low, kept_low = min(MAX, size.low + 1), size.low
    elif old.high <= new.low:
        kept_low = size.low
    else:
        count_low = math.ceil(size.low / old.high)
    result = Range(count_low, count_high).times(new).plus(Range(kept_low, kept_high))
    return Estimate(size.scaled(2 * TRAVERSAL), result)


def _split(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = _text_of(target, args)
    limit = args[1].node if len(args) > 1 else None
    most = size.high
    if isinstance(limit, Literal) and type(limit.value) is int:
        most = limit.value if limit.value >= 0 else MAX
    return Estimate(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(_: str, target: Target, args: list[Operand]) -> Estimate:
    if target is None:
        return Estimate(ONE)
    size = target.size.times(target.element) if target.element is not None else ZERO
    if args:
        gaps = Range(max(0, target.size.low - 1), max(0, target.size.high - 1))
        size = size.plus(args[0].size.times(gaps))
    return Estimate(size.scaled(TRAVERSAL), size)


def _regex(_: str, target: Target, args: list[Operand]) -> Estimate:
    text, pattern = (target, args[0]) if target is not None else (args[0], args[1])
    return Estimate(text.size.plus(ONE).scaled(TRAVERSAL).times(pattern.size.scaled(REGEX)))


def _find(overload: str, target: Target, args: list[Operand]) -> Estimate:
    return Estimate(_regex(overload, target, args).cost, Range(0, _text_of(target, args).high))


def _contains_ip(overload: str, target: Target, args: list[Operand]) -> Estimate:
    cost = Range(8, 32).scaled(TRAVERSAL)
    if overload.startswith("cidr_contains_cidr"):
        cost = cost.plus(Range(4, 16).scaled(TRAVERSAL)).plus(ONE)
    if overload.endswith("_string"):
        cost = cost.plus(args[0].size.scaled(TRAVERSAL))
    return Estimate(cost)


def _validate(_: str, target: Target, args: list[Operand]) -> Estimate:
    return Estimate(args[0].size.scaled(TRAVERSAL).scaled(FORMAT_REGEX_SIZE * REGEX))


def _selector(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = args[0].size
    return Estimate(fixed(LIST_COST).plus(size.scaled(TRAVERSAL)).plus(size.scaled(0.5).scaled(SELECTOR_COST)))


def _compare(_: str, target: Target, args: list[Operand]) -> Estimate:
    left, right = args
    if left.type.kind == "opaque" and left.type == right.type and left.type.name.startswith(("net.", "kubernetes.")):
        return Estimate(ONE)
    high = min(left.size.high, right.size.high)
    return Estimate(Range(1 if high else 0, high).scaled(TRAVERSAL))


def _concat(overload: str, target: Target, args: list[Operand]) -> Estimate:
    size = args[0].size.plus(args[1].size)
    return Estimate(ONE if overload == "add_list" else size.scaled(TRAVERSAL), size)


def _contains_text(_: str, target: Target, args: list[Operand]) -> Estimate:
    return Estimate(_text_of(target, args).scaled(TRAVERSAL).times(args[0].size.scaled(TRAVERSAL)))


def _affix(_: str, target: Target, args: list[Operand]) -> Estimate:
    return Estimate(args[0].size.scaled(TRAVERSAL))


def _to_bytes(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = args[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.low, min(MAX, size.high * 4)))


def _to_text(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = args[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.low // 4, size.high))


def _quote(_: str, target: Target, args: list[Operand]) -> Estimate:
    size = args[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.low + 2, min(MAX, size.high * 2 + 2)))


def _new_list(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_COST)), size)


def _number(operand: Operand, default: int) -> int:
    node = operand.node
    return max(0, node.value) if isinstance(node, Literal) and type(node.value) is int else default


def _slice(_: str, target: Target, args: list[Operand]) -> Estimate:
    count = _number(args[1], _text_of(target, args).high) - _number(args[0], 0)
    return _new_list(1, fixed(count % (MAX + 1)))


def _flatten(_: str, target: Target, args: list[Operand]) -> Estimate:
    return _new_list(_number(args[0], MAX) if args else 1, _text_of(target, args))


def _quadratic(overload: str, target: Target, args: list[Operand]) -> Estimate:
    keys = args[0] if overload.endswith("sortByAssociatedKeys") else target
    size = keys.size if keys is not None else UNKNOWN
    strings = overload.startswith(("list_string_", "list_bytes_"))
    return _new_list(2.1 if strings else 2.0, size.times(size))


def _sets(factor: float) -> Estimator:
    def made(_: str, target: Target, args: list[Operand]) -> Estimate:
        return Estimate(args[0].size.times(args[1].size).scaled(factor).plus(ONE))

    return made


_BY_FUNCTION: Final[Mapping[str, Estimator]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _list_scan),
    **dict.fromkeys(("url", "jsonpatch.escapeKey", "lowerAscii", "upperAscii", "substring", "trim"), _scan_same_size),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _scan),
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_ip),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(("_==_", "_!=_"), _compare),
    "check": lambda *_: Estimate(fixed(CHECK_COST)),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "validate": _validate,
    "ip.isCanonical": lambda _, target, args: Estimate(args[0].size.scaled(2 * TRAVERSAL)),
    "matches": _regex,
    "format": _scan,
    "contains": _contains_text,
    "startsWith": _affix,
    "endsWith": _affix,
    "strings.quote": _quote,
    "lists.range": lambda _, target, args: _new_list(1, fixed(_number(args[0], MAX))),
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
    "sort": _quadratic,
    "@sortByAssociatedKeys": _quadratic,
}
_BY_OVERLOAD: Final[Mapping[str, Estimator]] = {
    "cidr_ip": lambda *_: Estimate(ONE),
    "in_list": lambda _, target, args: Estimate(args[1].size),
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _concat),
    **{
        f"{word}_{kind}": _compare
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_reverse": lambda _, target, args: _new_list(1, _text_of(target, args)),
    "list_distinct": _quadratic,
}
