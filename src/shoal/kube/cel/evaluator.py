"""Compiles a checked tree into nested functions, one per node, that compute the value and count the cost.

Errors are exceptions. ``&&``, ``||`` and the quantifiers absorb an error if the other side decides alone; an exceeded
budget is never absorbed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.kube.cel.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, Struct
from shoal.kube.cel.charges import charge_of, compared
from shoal.kube.cel.cost import LIST_COST, MAP_COST, STRUCT_COST
from shoal.kube.cel.errors import CostExceeded, EvalError, ProgramError
from shoal.kube.cel.frame import Frame, Step, is_fatal
from shoal.kube.cel.functions import Overload, no_such_overload
from shoal.kube.cel.library.operators import shown
from shoal.kube.cel.loops import Pairs, collected, exactly_one, inserted, pairs, quantified
from shoal.kube.cel.regex import compile_regex
from shoal.kube.cel.types import unwrap_optional
from shoal.kube.cel.values import NONE, Built, Lazy, Optional, contains, equal, type_name

_FAULTS = (TypeError, AttributeError, ValueError, OverflowError, KeyError, IndexError)
_SCALARS = frozenset({"int", "uint", "double", "bool", "timestamp", "duration"})


class Compiled:
    """A compiled tree; ``places`` maps each variable to its slot."""

    __slots__ = ("places", "size", "step")

    def __init__(self, tree: Expr) -> None:
        compiler = _Compiler()
        self.step = compiler.compile(tree)
        self.places: Mapping[str, int] = compiler.globals
        self.size = compiler.count

    def run(
        self, values: Mapping[str, Any], limit: int, interrupted: Callable[[], bool] | None = None
    ) -> tuple[Any, int]:
        """Return the value and its cost. An ``EvalError`` has the cost until the error."""
        frame = Frame(self.size, limit, interrupted)
        try:
            for name, place in self.places.items():
                if name not in values:
                    raise EvalError(f"no such attribute(s): {name}")
                frame.slots[place] = values[name]
            result = self.step(frame)
            if frame.cost > limit:
                raise CostExceeded
            return result, frame.cost
        except EvalError as error:
            error.cost = frame.cost
            raise
        except RecursionError:
            deep = EvalError("evaluation nested too deeply")
            deep.cost = frame.cost
            raise deep from None


class _Compiler:
    def __init__(self) -> None:
        self.globals: dict[str, int] = {}
        self.scopes: list[dict[str, int]] = []
        self.count = 0

    def new_slot(self) -> int:
        self.count += 1
        return self.count - 1

    def compile(self, node: Expr) -> Step:
        constant, value = folded(node)
        if constant:
            return lambda frame: value
        if isinstance(node, Ident):
            return self.ident(node)
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListExpr):
            return self.build_list(node)
        if isinstance(node, MapExpr):
            return self.build_map(node)
        if isinstance(node, Comprehension):
            return self.comprehension(node)
        if isinstance(node, Struct):
            return self.build_struct(node)
        raise TypeError(node)

    def slot(self, name: str) -> int:
        name = name.removeprefix(".")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name not in self.globals:
            self.globals[name] = self.new_slot()
        return self.globals[name]

    def ident(self, node: Ident) -> Step:
        return self.variable(node.name)

    def variable(self, name: str) -> Step:
        place = self.slot(name)

        def read(frame: Frame) -> Any:
            frame.cost += 1
            return frame.slots[place]

        return read

    def select(self, node: Select) -> Step:
        if node.variable:
            return self.variable(node.variable)
        if node.test:
            return _presence(self.compile(node.operand), node.key, _is_struct(node.operand))
        if node.optional:
            return _optional_field(self.compile(node.operand), node.key, _is_struct(node.operand))
        return self.chain(node)

    def chain(self, node: Select) -> Step:
        """``a.b.c`` in one step."""
        keys: list[tuple[str, bool]] = []
        inner: Expr = node
        while isinstance(inner, Select) and _is_plain(inner):
            keys.append((inner.key, _is_struct(inner.operand)))
            inner = inner.operand
        keys.reverse()
        names, charge = tuple(keys), len(keys) + (not _is_attribute(inner))
        start = self.compile(inner)

        def read(frame: Frame) -> Any:
            value = start(frame)
            frame.cost += charge
            for name, struct in names:
                found = value.get(name) if type(value) is dict else None
                value = found if found is not None else _field(value, name, struct)
            return value

        return read

    def build_list(self, node: ListExpr) -> Step:
        steps = [self.compile(each) for each in node.elements]
        optional = node.optional

        def build(frame: Frame) -> Any:
            frame.cost += LIST_COST
            return [step(frame) for step in steps]

        def build_optional(frame: Frame) -> Any:
            frame.cost += LIST_COST
            result = []
            for place, step in enumerate(steps):
                value = step(frame)
                if place in optional:
                    if not isinstance(value, Optional):
                        raise EvalError("no such overload")
                    if not value.some:
                        continue
                    value = value.value
                result.append(value)
            return result

        return build_optional if optional else build

    def build_map(self, node: MapExpr) -> Step:
        steps = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]

        def build(frame: Frame) -> Any:
            frame.cost += MAP_COST
            result: dict[Any, Any] = {}
            for key_step, value_step, optional in steps:
                key, value = key_step(frame), value_step(frame)
                if optional:
                    if not value.some:
                        continue
                    value = value.value
                if type_name(key) not in ("string", "int", "uint", "bool"):
                    raise EvalError(f"unsupported key type: {type_name(key)}")
                if key in result:
                    raise EvalError(f"Failed with repeated key: {shown(key)}")
                result[key] = value
            return result

        return build

    def build_struct(self, node: Struct) -> Step:
        steps = [(name, self.compile(value), optional) for _, name, value, optional in node.fields]
        type_ = node.name.removeprefix(".")

        def build(frame: Frame) -> Any:
            frame.cost += STRUCT_COST
            result = Built(type_)
            for name, step, optional in steps:
                value = step(frame)
                if optional:
                    if not isinstance(value, Optional):
                        raise EvalError("no such overload")
                    if not value.some:
                        continue
                    value = value.value
                result[name] = value
            return result

        return build

    def call(self, node: Call) -> Step:
        name = node.function
        if name == "_&&_":
            return _logical(self.compile(node.args[0]), self.compile(node.args[1]), stop=False)
        if name == "_||_":
            return _logical(self.compile(node.args[0]), self.compile(node.args[1]), stop=True)
        if name == "_?_:_":
            return _conditional(self.compile(node.args[0]), self.branch(node.args[1]), self.branch(node.args[2]))
        if name in ("find", "findAll"):
            _check_pattern(node.args[0])
        nodes = [*([node.target] if node.target is not None else ()), *node.args]
        steps = [self.compile(each) for each in nodes]
        if name in ("or", "orValue") and node.target is not None:
            return _optional_or(steps[0], steps[1], value=name == "orValue")
        if name in ("_[_]", "_[?_]"):
            steps[1] = self.branch(nodes[1])
        if name == "@in" and folded(nodes[1])[0] and isinstance(nodes[1], ListExpr):
            return _one_of(steps[0], folded(nodes[1])[1])
        kinds = [each.type.kind if each.type is not None else "dyn" for each in nodes]
        if name in ("_==_", "_!=_"):
            return _equality(steps[0], steps[1], kinds, negated=name == "_!=_")
        if len(node.overloads) == 1 and "dyn" not in kinds:
            return _direct(node.overloads[0], steps)
        return _dispatched(name, node.overloads, steps)

    def branch(self, node: Expr) -> Step:
        """A node inside a larger attribute, where reading a variable is free."""
        step = self.compile(node)
        if not _is_attribute(node):
            return step

        def free(frame: Frame) -> Any:
            frame.cost -= 1
            return step(frame)

        return free

    def comprehension(self, node: Comprehension) -> Step:
        over = self.compile(node.iter_range)
        if node.macro == "bind":
            return self.bind(node)
        accu = self.new_slot()
        names = {node.iter_var: self.new_slot()}
        if node.iter_var2:
            names[node.iter_var2] = self.new_slot()
        self.scopes += [{node.accu_var: accu}, names]
        over_pairs = pairs(over, two=bool(node.iter_var2))
        slots = (names[node.iter_var], names.get(node.iter_var2, accu))
        made = self.loop(node, over_pairs, slots)
        del self.scopes[-2:]
        return made

    def loop(self, node: Comprehension, over: Pairs, slots: tuple[int, int]) -> Step:
        step = node.step
        if not isinstance(step, Call):
            raise TypeError(step)
        if node.macro in ("all", "exists"):
            return quantified(over, slots, self.compile(step.args[1]), stop=node.macro == "exists")
        if node.macro == "exists_one":
            return exactly_one(over, slots, self.compile(step.args[0]))
        keep: Step | None = None
        if step.function == "_?_:_":
            keep = self.compile(step.args[0])
            inner = step.args[1]
            if not isinstance(inner, Call):
                raise TypeError(inner)
            step = inner
        if node.macro == "map":
            elements = step.args[1]
            if not isinstance(elements, ListExpr):
                raise TypeError(elements)
            charge = 2 if folded(elements)[0] else LIST_COST + 2
            return collected(over, slots, keep, self.compile(elements.elements[0]), charge)
        values = [self.compile(each) for each in step.args[1:]]
        return inserted(over, slots, keep, values)

    def bind(self, node: Comprehension) -> Step:
        init = self.compile(node.accu_init)
        place = self.new_slot()
        self.scopes.append({node.accu_var: place})
        result = self.compile(node.result)
        self.scopes.pop()

        def bound(frame: Frame) -> Any:
            frame.slots[place] = init(frame)
            return result(frame)

        return bound


_CONVERSIONS = frozenset({"bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "uint"})


def folded(node: Expr) -> tuple[bool, Any]:
    """Whether a node is constant, and its value: literals, types, lists and maps of such, and conversions of such."""
    if isinstance(node, Literal):
        return True, node.value
    if isinstance(node, Ident | Select):
        return node.constant is not None, node.constant
    if isinstance(node, ListExpr) and not node.optional:
        parts = [folded(each) for each in node.elements]
        return all(constant for constant, _ in parts), [value for _, value in parts]
    if isinstance(node, MapExpr):
        keys = [folded(key) for key, _, _ in node.entries]
        values = [folded(value) for _, value, _ in node.entries]
        plain = all(constant for constant, _ in keys + values) and not any(optional for _, _, optional in node.entries)
        if plain and len({str(key) for _, key in keys}) == len(keys) and all(_is_key(key) for _, key in keys):
            return True, {key: value for (_, key), (_, value) in zip(keys, values, strict=True)}
    if isinstance(node, Call) and node.function in _CONVERSIONS and len(node.args) == len(node.overloads) == 1:
        constant, value = folded(node.args[0])
        if constant and node.target is None:
            try:
                return True, node.overloads[0].impl(value)
            except (EvalError, *_FAULTS) as error:
                raise ProgramError(str(error)) from None
    return False, None


def _check_pattern(node: Expr) -> None:
    if isinstance(node, Literal) and isinstance(node.value, str):
        try:
            compile_regex(node.value)
        except ValueError as error:
            raise ProgramError(str(error)) from None


def _is_key(value: Any) -> bool:
    return type_name(value) in ("string", "int", "uint", "bool")


def _is_attribute(node: Expr) -> bool:
    """Whether a node reads a variable or a part of it."""
    if isinstance(node, Ident):
        return node.constant is None
    if isinstance(node, Select):
        return node.constant is None and not node.test
    return isinstance(node, Call) and node.function in ("_[_]", "_[?_]")


def _is_plain(node: Select) -> bool:
    """Whether a selection reads a field and does nothing else."""
    return not node.test and not node.optional and node.constant is None and not node.variable


def _is_struct(node: Expr) -> bool:
    return node.type is not None and unwrap_optional(node.type)[0].kind == "struct"


def _field(value: Any, name: str, struct: bool) -> Any:
    """Read a field that may be missing. Null is a value in maps, but absent in objects."""
    if isinstance(value, dict):
        found = value.get(name)
        if found is not None or (name in value and not struct):
            return found
        raise EvalError(f"no such key: {name}")
    if isinstance(value, Lazy):
        return value[name]
    if isinstance(value, Optional):
        if not value.some:
            return NONE
        inner = value.value
        return Optional(True, inner[name]) if isinstance(inner, dict) and name in inner else NONE
    raise EvalError("no such overload")


def _presence(operand: Step, name: str, struct: bool) -> Step:
    """``has()``. An object's field that is null counts as absent; a map's key does not."""

    def test(frame: Frame) -> bool:
        value = operand(frame)
        if isinstance(value, Optional):
            if not value.some:
                return False
            value = value.value
        if isinstance(value, dict):
            return value.get(name) is not None if struct else name in value
        if isinstance(value, Lazy):
            return name in value
        raise EvalError("no such overload")

    return test


def _optional_field(operand: Step, name: str, struct: bool) -> Step:
    def read(frame: Frame) -> Optional:
        value = operand(frame)
        if isinstance(value, Optional):
            if not value.some:
                return NONE
            value = value.value
        if isinstance(value, dict):
            if name not in value or (struct and value[name] is None):
                return NONE
            frame.cost += 1
            return Optional(True, value[name])
        if isinstance(value, Lazy):
            return Optional(True, value[name]) if name in value else NONE
        raise EvalError("no such overload")

    return read


def _logical(left: Step, right: Step, *, stop: bool) -> Step:
    """``&&`` (stop at false) and ``||`` (stop at true)."""

    def decide(frame: Frame) -> Any:
        try:
            first = left(frame)
            if first is stop:
                return stop
            failure = None if first is (not stop) else EvalError("no such overload")
        except EvalError as error:
            if is_fatal(error):
                raise
            failure = error
        second = right(frame) if failure is None else _or_failure(right, frame, failure)
        if second is stop:
            return stop
        if failure is not None:
            raise failure
        if second is not (not stop):
            raise EvalError("no such overload")
        return not stop

    return decide


def _or_failure(step: Step, frame: Frame, failure: EvalError) -> Any:
    """Evaluate the other side of an operator whose first side failed; if it does not decide, raise the first error."""
    try:
        return step(frame)
    except EvalError as error:
        if is_fatal(error):
            raise
        raise failure from None


def _conditional(test: Step, left: Step, right: Step) -> Step:
    def choose(frame: Frame) -> Any:
        chosen = test(frame)
        if chosen is True:
            return left(frame)
        if chosen is False:
            return right(frame)
        raise EvalError("no such overload")

    return choose


def _optional_or(left: Step, right: Step, *, value: bool) -> Step:
    def choose(frame: Frame) -> Any:
        first = left(frame)
        if not isinstance(first, Optional):
            raise EvalError("no such overload")
        if first.some:
            return first.value if value else first
        return right(frame)

    return choose


def _equality(left: Step, right: Step, kinds: list[str], *, negated: bool) -> Step:
    if kinds[0] in _SCALARS and kinds[1] in _SCALARS:

        def scalars(frame: Frame) -> bool:
            first, second = left(frame), right(frame)
            frame.cost += 1
            return bool(equal(first, second) != negated)

        return scalars

    def values(frame: Frame) -> bool:
        first, second = left(frame), right(frame)
        frame.cost += compared(first, second)
        return bool(equal(first, second) != negated)

    return values


def _one_of(value: Step, choices: list[Any]) -> Step:
    """``x in ['a', 'b']`` as a set look-up."""
    plain: frozenset[str] | None = frozenset(choices) if all(type(each) is str for each in choices) else None

    def test(frame: Frame) -> bool:
        found = value(frame)
        if plain is not None:
            return bool(type(found) is str and found in plain)
        return contains(choices, found)

    return test


def _direct(overload: Overload, steps: list[Step]) -> Step:
    impl, charge, name = overload.impl, charge_of(overload.name, overload.id), overload.name
    if len(steps) == 1 and charge is None:
        only = steps[0]

        def one(frame: Frame) -> Any:
            value = only(frame)
            frame.cost += 1
            try:
                return impl(value)
            except _FAULTS:
                raise EvalError(no_such_overload(name, [value])) from None

        return one
    if len(steps) == 2 and charge is None:
        left, right = steps

        def two(frame: Frame) -> Any:
            first, second = left(frame), right(frame)
            frame.cost += 1
            try:
                return impl(first, second)
            except _FAULTS:
                raise EvalError(no_such_overload(name, [first, second])) from None

        return two

    def many(frame: Frame) -> Any:
        args = [step(frame) for step in steps]
        return _charged(frame, overload, args)

    return many


def _charged(frame: Frame, overload: Overload, args: list[Any]) -> Any:
    charge = charge_of(overload.name, overload.id)
    try:
        result = overload.impl(*args)
        frame.cost += 1 if charge is None else charge(args, result)
    except _FAULTS:
        raise EvalError(no_such_overload(overload.name, args)) from None
    if frame.cost > frame.limit:
        raise CostExceeded
    return result


def _dispatched(name: str, overloads: list[Overload], steps: list[Step]) -> Step:
    """A call whose overload depends on the runtime types of its arguments."""
    known: dict[tuple[str, ...], Overload] = {}

    def call(frame: Frame) -> Any:
        args = [step(frame) for step in steps]
        kinds = tuple(type_name(arg) for arg in args)
        overload = known.get(kinds)
        if overload is None:
            overload = next((each for each in overloads if each.accepts(kinds)), None)
            if overload is None:
                raise EvalError(no_such_overload(name, args))
            known[kinds] = overload
        return _charged(frame, overload, args)

    return call
