"""Type checking: every node gets its type, every call its overloads, every error its position.

The rules are those of the reference checker. Errors do not stop the check: a node with an error gets an error type.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.kube.cel import types
from shoal.kube.cel.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, Struct
from shoal.kube.cel.errors import EvalError, Issue
from shoal.kube.cel.functions import Library, Overload
from shoal.kube.cel.parser import RESERVED
from shoal.kube.cel.regex import compile_regex
from shoal.kube.cel.types import BOOL, DYN, ERROR, Bindings, Type, assignable, substitute
from shoal.kube.cel.values import UInt

_LITERALS = {
    bool: types.BOOL, int: types.INT, UInt: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    type(None): types.NULL,
}  # fmt: skip

TYPE_NAMES: dict[str, Type] = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING,
    "bytes": types.BYTES, "null_type": Type("null", "null_type"), "type": types.TYPE,
    "list": types.list_of(DYN), "map": types.map_of(DYN, DYN), "optional_type": types.optional_of(DYN),
    "google.protobuf.Timestamp": types.TIMESTAMP, "google.protobuf.Duration": types.DURATION,
    "net.IP": types.opaque("net.IP"), "net.CIDR": types.opaque("net.CIDR"),
    "kubernetes.URL": types.opaque("kubernetes.URL"), "kubernetes.Quantity": types.opaque("kubernetes.Quantity"),
    "kubernetes.Semver": types.opaque("kubernetes.Semver"),
}  # fmt: skip


def check(
    tree: Expr, variables: Mapping[str, Type], library: Library, *, patches: bool = False
) -> tuple[list[Issue], frozenset[str]]:
    """Check a tree in place; return the errors and the names of the used variables.

    ``patches``: whether ``Object`` and ``JSONPatch`` values may be built.
    """
    checker = _Checker(variables, library, patches=patches)
    checker.visit(tree)
    checker.finish(tree)
    if not checker.issues:
        checker.check_literals(tree)
    return checker.issues, frozenset(checker.used)


class _Checker:
    def __init__(self, variables: Mapping[str, Type], library: Library, *, patches: bool) -> None:
        self.variables = variables
        self.patches = patches
        self.functions = library.functions
        self.scopes: list[dict[str, Type]] = []
        self.bindings: Bindings = {}
        self.issues: list[Issue] = []
        self.used: set[str] = set()
        self.counter = 0

    def fault(self, at: Expr, message: str) -> None:
        issue = Issue(at.offset, message)
        if issue not in self.issues:
            self.issues.append(issue)

    def fresh(self) -> Type:
        self.counter += 1
        return types.param(f"_var{self.counter - 1}")

    def assignable(self, wanted: Type, given: Type) -> bool:
        trial = dict(self.bindings)
        if assignable(trial, wanted, given):
            self.bindings = trial
            return True
        return False

    def mismatch(self, at: Expr, wanted: Type, given: Type) -> None:
        self.fault(at, f"expected type '{wanted}' but found '{given}'")

    def undeclared(self, at: Expr, name: str) -> Type:
        self.fault(at, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def visit(self, node: Expr) -> Type:
        """The type of a node, which is also written into it."""
        if isinstance(node, Literal):
            found = _LITERALS[type(node.value)]
        elif isinstance(node, Ident):
            found = self.ident(node)
        elif isinstance(node, Select):
            found = self.select(node)
        elif isinstance(node, Call):
            found = self.call(node)
        elif isinstance(node, ListExpr):
            found = self.built_list(node)
        elif isinstance(node, MapExpr):
            found = self.built_map(node)
        elif isinstance(node, Comprehension):
            found = self.comprehension(node)
        elif isinstance(node, Struct):
            found = self.built_struct(node)
        else:
            raise TypeError(node)
        node.type = found
        return found

    def ident(self, node: Ident) -> Type:
        name = node.name.removeprefix(".")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        declared = self.variables.get(name)
        if declared is not None:
            self.used.add(name)
            return declared
        if name in TYPE_NAMES:
            node.constant = TYPE_NAMES[name]
            return types.type_type(TYPE_NAMES[name])
        return self.undeclared(node, node.name)

    def select(self, node: Select) -> Type:
        qualified = _dotted(node)
        if qualified in TYPE_NAMES and not node.test and not node.optional:
            node.constant = TYPE_NAMES[qualified]
            return types.type_type(TYPE_NAMES[qualified])
        if qualified in self.variables and not node.test and not node.optional and not self.is_variable(qualified):
            node.variable = qualified
            self.used.add(qualified)
            return self.variables[qualified]
        found = self.field(node)
        if node.test:
            return BOOL
        return substitute(self.bindings, found)

    def field(self, node: Select) -> Type:
        operand = substitute(self.bindings, self.visit(node.operand))
        target, was_optional = types.unwrap_optional(operand)
        found = ERROR
        if target.kind == "map":
            found = target.params[1]
        elif target.kind == "struct" and target.decl is not None and target.decl.fields is None:
            found = DYN
        elif target.kind == "struct":
            fields = (target.decl.fields or {}) if target.decl else {}
            entry = fields.get(node.field) or (fields.get(f"__{node.field}__") if node.field in RESERVED else None)
            if entry is None:
                self.fault(node, f"undefined field '{node.field}'")
            else:
                node.key, found = entry[0], entry[1].type
        elif target.kind == "param":
            self.assignable(DYN, target)
            found = DYN
        else:
            if not types.is_dyn_or_error(target):
                self.fault(node, f"type '{target}' does not support field selection")
            found = DYN
        return types.optional_of(found) if was_optional or node.optional else found

    def call(self, node: Call) -> Type:
        args = [self.visit(arg) for arg in node.args]
        if node.target is None:
            overloads = self.functions.get(node.function.removeprefix("."))
            if overloads is None:
                return self.undeclared(node, node.function)
            return self.resolve(node, overloads, args, member=False)
        qualified = _dotted(node.target)
        if qualified and not self.is_variable(qualified):
            overloads = self.functions.get(f"{qualified}.{node.function}")
            if overloads is not None:
                node.function, node.target = f"{qualified}.{node.function}", None
                return self.resolve(node, overloads, args, member=False)
        target = self.visit(node.target)
        overloads = self.functions.get(node.function)
        if overloads is None:
            return self.undeclared(node, node.function)
        return self.resolve(node, overloads, [target, *args], member=True)

    def is_variable(self, qualified: str) -> bool:
        root = qualified.partition(".")[0]
        return any(root in scope for scope in self.scopes)

    def resolve(self, node: Call, overloads: list[Overload], args: list[Type], *, member: bool) -> Type:
        if node.function in ("_&&_", "_||_"):
            return self.logical(node, overloads, args)
        result: Type | None = None
        chosen: list[Overload] = []
        for overload in overloads:
            if overload.member != member or len(overload.args) != len(args):
                continue
            wanted, gives = overload.args, overload.result
            if overload.params:
                renamed: Bindings = {name: self.fresh() for name in overload.params}
                wanted = tuple(substitute(renamed, each) for each in wanted)
                gives = substitute(renamed, gives)
            trial = dict(self.bindings)
            if all(assignable(trial, given, want) for given, want in zip(args, wanted, strict=True)):
                self.bindings = trial
                chosen.append(overload)
                found = substitute(self.bindings, gives)
                if result is None:
                    result = found
                elif result.kind != "dyn" and found != result:
                    result = DYN
        if result is None:
            shown = [str(substitute(self.bindings, each, final=True)) for each in args]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            self.fault(node, f"found no matching overload for '{node.function}' applied to '{signature}'")
            return ERROR
        node.overloads = chosen
        self.check_constant(node)
        return result

    def logical(self, node: Call, overloads: list[Overload], args: list[Type]) -> Type:
        node.overloads = overloads
        result = BOOL
        for arg, given in zip(node.args, args, strict=True):
            if not self.assignable(given, BOOL):
                self.mismatch(arg, BOOL, substitute(self.bindings, given))
                result = ERROR
        return result

    def check_constant(self, node: Call) -> None:
        """Check literal durations, timestamps and patterns at compile time."""
        if node.function == "matches":
            constant = node.args[-1]
        elif node.function in ("duration", "timestamp") and len(node.args) == 1:
            constant = node.args[0]
        else:
            return
        if not isinstance(constant, Literal):
            return
        try:
            if node.function == "matches":
                compile_regex(constant.value)
            else:
                node.overloads[0].impl(constant.value)
        except (EvalError, ValueError, TypeError):
            self.fault(constant, f"invalid {node.function} argument")

    def join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self.assignable(previous, current):
            return types.most_general(previous, current)
        return DYN

    def unwrapped(self, node: Expr, given: Type) -> Type:
        inner, is_optional = types.unwrap_optional(given)
        if not is_optional and inner.kind != "dyn":
            self.mismatch(node, types.optional_of(inner), inner)
        return inner

    def built_list(self, node: ListExpr) -> Type:
        element: Type | None = None
        for place, each in enumerate(node.elements):
            found = self.visit(each)
            if place in node.optional:
                found = self.unwrapped(each, found)
            element = self.join(element, found)
        return types.list_of(element or self.fresh())

    def built_map(self, node: MapExpr) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, optional in node.entries:
            key_type = self.join(key_type, self.visit(key))
            found = self.visit(value)
            if optional:
                found = self.unwrapped(value, found)
            value_type = self.join(value_type, found)
        return types.map_of(key_type or self.fresh(), value_type or self.fresh())

    def built_struct(self, node: Struct) -> Type:
        name = node.name.removeprefix(".")
        if not self.patches or not (name in ("JSONPatch", "Object") or name.startswith("Object.")):
            return self.undeclared(node, node.name)
        made = types.JSON_PATCH if name == "JSONPatch" else types.open_struct(name)
        known = made.decl.fields if made.decl is not None else None
        for offset, field, value, optional in node.fields:
            found = self.visit(value)
            if optional:
                found = self.unwrapped(value, found)
            if known is None:
                continue
            if field not in known:
                self.issues.append(Issue(offset, f"undefined field '{field}'"))
            elif not self.assignable(known[field][1].type, found):
                shown = substitute(self.bindings, found, final=True)
                wanted = known[field][1].type
                text = f"expected type of field '{field}' is '{wanted}' but provided type is '{shown}'"
                self.issues.append(Issue(offset, text))
        return made

    def comprehension(self, node: Comprehension) -> Type:
        over = substitute(self.bindings, self.visit(node.iter_range))
        accu = self.visit(node.accu_init)
        first, second = self.elements(node, over)
        self.scopes.append({node.accu_var: accu})
        names = {node.iter_var: first}
        if node.iter_var2:
            names[node.iter_var2] = second
        self.scopes.append(names)
        condition = self.visit(node.condition)
        if not self.assignable(BOOL, condition):
            self.mismatch(node.condition, BOOL, condition)
        step = self.visit(node.step)
        if not self.assignable(accu, step):
            self.mismatch(node.step, substitute(self.bindings, accu), substitute(self.bindings, step))
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return substitute(self.bindings, result)

    def elements(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        if over.kind == "list":
            element = over.params[0]
            return (types.INT, element) if node.iter_var2 else (element, DYN)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self.assignable(DYN, over)
            return DYN, DYN
        text = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.fault(node.iter_range, text)
        return ERROR, ERROR

    def check_literals(self, node: Expr) -> None:
        """List and map literals must have elements of one type, except as arguments of format."""
        if isinstance(node, Call) and node.function == "format":
            return
        if isinstance(node, ListExpr):
            self.check_alike([(each, place in node.optional) for place, each in enumerate(node.elements)])
        elif isinstance(node, MapExpr):
            self.check_alike([(key, False) for key, _, _ in node.entries])
            self.check_alike([(value, optional) for _, value, optional in node.entries])
        for child in children(node):
            self.check_literals(child)

    def check_alike(self, nodes: list[tuple[Expr, bool]]) -> None:
        first: Type | None = None
        for node, optional in nodes:
            found = node.type or DYN
            if optional and found.params:
                found = found.params[0]
            if first is None:
                first = found
            elif first != found:
                self.mismatch(node, first, found)
                return

    def finish(self, node: Expr) -> None:
        """Write final types: unresolved ones become dyn."""
        if node.type is not None:
            node.type = substitute(self.bindings, node.type, final=True)
        for child in children(node):
            self.finish(child)


def children(node: Expr) -> list[Expr]:
    """The nodes directly below one."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return [*([node.target] if node.target is not None else ()), *node.args]
    if isinstance(node, ListExpr):
        return node.elements
    if isinstance(node, MapExpr):
        return [each for key, value, _ in node.entries for each in (key, value)]
    if isinstance(node, Struct):
        return [value for _, _, value, _ in node.fields]
    if isinstance(node, Comprehension):
        return [node.iter_range, node.accu_init, node.condition, node.step, node.result]
    return []


def _dotted(node: Expr) -> str:
    """``a.b.c`` for a chain of plain selections, empty for anything else."""
    parts: list[str] = []
    while isinstance(node, Select):
        if node.test or node.optional:
            return ""
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return ""
    parts.append(node.name)
    return ".".join(reversed(parts))
