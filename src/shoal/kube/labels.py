"""Label selectors: the query grammar, the LabelSelector object, and matching.

``parse`` reads the text of a ``labelSelector`` query, ``from_object`` the LabelSelector of a spec, ``from_set`` the
plain map of a Service. All return a frozen ``Selector`` whose ``matches`` is a closure for its requirements. An invalid
query raises ``BadRequest``; ``validate_label_selector`` returns the field errors of an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.base.bounded_cache import bounded_cache
from shoal.errors import BadRequest, FieldError, forbidden, invalid, required
from shoal.kube.names import is_label_value, is_qualified_name

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]

IN, NOT_IN, EXISTS, ABSENT = "in", "notin", "exists", "!"
EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER, LESS = "=", "==", "!=", "gt", "lt"

_BINARY_NAMES = "in, notin, =, ==, !=, gt, lt"
_SIGNS = {EQUALS: "=", DOUBLE_EQUALS: "==", NOT_EQUALS: "!=", GREATER: ">", LESS: "<"}
_OPERATOR_TOKENS = {
    "in": IN, "notin": NOT_IN, "=": EQUALS, "==": DOUBLE_EQUALS, "!=": NOT_EQUALS, ">": GREATER, "<": LESS,
}  # fmt: skip
_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label; ``values`` are sorted and without duplicates."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == ABSENT:
            return f"!{self.key}"
        listed = ",".join(self.values)
        if self.operator in (IN, NOT_IN):
            return f"{self.key} {self.operator} ({listed})"
        return f"{self.key}{_SIGNS[self.operator]}{listed}"


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; without any, every object is selected. With ``nothing``, no object is selected."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    matches: Matcher = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", _never if self.nothing else _compile(self.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    @property
    def everything(self) -> bool:
        return not self.requirements and not self.nothing

    def exact(self, key: str) -> str | None:
        """The value that the selector requires of the label, if any."""
        for requirement in self.requirements:
            if requirement.key == key:
                return _single_value(requirement)
        return None

    def index_hint(self) -> str | None:
        """``key=value`` of a requirement that an index of labels can answer."""
        for requirement in self.requirements:
            value = _single_value(requirement)
            if value is not None:
                return f"{requirement.key}={value}"
        return None


def _single_value(requirement: Requirement) -> str | None:
    if requirement.operator in (EQUALS, DOUBLE_EQUALS, IN) and len(requirement.values) == 1:
        return requirement.values[0]
    return None


def _never(_: Labels) -> bool:
    return False


def _always(_: Labels) -> bool:
    return True


def _compile(requirements: tuple[Requirement, ...]) -> Matcher:
    if not requirements:
        return _always
    pairs = [(each.key, _single_value(each)) for each in requirements]
    if all(value is not None for _, value in pairs):
        return _compile_equalities([(key, value) for key, value in pairs if value is not None])
    matchers = tuple(map(_compile_one, requirements))
    if len(matchers) == 1:
        return matchers[0]

    def match_all(labels: Labels) -> bool:
        for matcher in matchers:  # twice as fast as all()
            if not matcher(labels):
                return False
        return True

    return match_all


def _compile_equalities(pairs: list[tuple[str, str]]) -> Matcher:
    if len(pairs) == 1:
        key, wanted = pairs[0]
        return lambda labels: labels.get(key) == wanted
    wanted_pairs = tuple(pairs)

    def match_pairs(labels: Labels) -> bool:
        get = labels.get
        for key, wanted in wanted_pairs:
            if get(key) != wanted:
                return False
        return True

    return match_pairs


def _compile_one(requirement: Requirement) -> Matcher:
    key, operator = requirement.key, requirement.operator
    if operator == EXISTS:
        return lambda labels: key in labels
    if operator == ABSENT:
        return lambda labels: key not in labels
    if operator in (GREATER, LESS):
        return _compile_order(key, operator, requirement.values)
    values = frozenset(requirement.values)
    if operator in (NOT_IN, NOT_EQUALS):
        return lambda labels: labels.get(key) not in values  # an absent label is in no set
    return lambda labels: labels.get(key) in values


def _compile_order(key: str, operator: str, values: tuple[str, ...]) -> Matcher:
    bound = _integer(values[0]) or 0
    above = operator == GREATER

    def match_order(labels: Labels) -> bool:
        number = _integer(labels.get(key, ""))
        return number is not None and (number > bound if above else number < bound)

    return match_order


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def make_requirement(key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
    """A checked requirement; raises ``ValueError`` with all errors."""
    listed = tuple(sorted(set(values)))
    faults: list[FieldError] = []
    if problems := is_qualified_name(key):
        faults.append(invalid("key", key, "; ".join(problems)))
    faults += _count_faults(operator, listed)
    for position, value in enumerate(listed):
        if problems := is_label_value(value):
            faults.append(invalid(f"values[{position}][{key}]", value, "; ".join(problems)))
    if faults:
        texts = list(dict.fromkeys(map(str, faults)))
        raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return Requirement(key, operator, listed)


def _count_faults(operator: str, values: tuple[str, ...]) -> list[FieldError]:
    shown = list(values)
    if operator in (IN, NOT_IN):
        return [] if values else [invalid("values", shown, "for 'in', 'notin' operators, values set can't be empty")]
    if operator in (EXISTS, ABSENT):
        detail = "values set must be empty for exists and does not exist"
        return [invalid("values", shown, detail)] if values else []
    if operator in (GREATER, LESS):
        if len(values) != 1:
            return [invalid("values", shown, "for 'Gt', 'Lt' operators, exactly one value is required")]
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        return [] if _integer(values[0]) is not None else [invalid("values[0]", values[0], detail)]
    if len(values) != 1:
        return [invalid("values", shown, "exact-match compatibility requires one single value")]
    return []


# Space between tokens matches nothing and is passed over: were it a part of a token, a long run of it at the end would
# be tried from each of its characters.
_TOKEN = re.compile(r"(==|!=|[=!(),<>])|([^=!(),<> \t\r\n]+)")
_END = ("end", "")
_Token = tuple[str, str]  # (kind, text): kind is the symbol itself, "word" or "end"


def _scan(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    for matched in _TOKEN.finditer(text):
        symbol, word = matched.groups()
        tokens.append((symbol, symbol) if symbol else ("word", word))
    tokens.append(_END)
    return tokens


class _Parser:
    """Parses requirements from a list of tokens. ``in`` and ``notin`` are keys or values unless an operator is
    expected."""

    def __init__(self, text: str) -> None:
        self._tokens = _scan(text)
        self._position = 0

    def _peek(self) -> _Token:
        return self._tokens[min(self._position, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._position += 1
        return token

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            kind, text = self._peek()
            if kind == "end":
                return found
            if kind not in ("word", "!"):
                raise ValueError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except ValueError as fault:
                raise ValueError(f"unable to parse requirement: {fault}") from None
            kind, text = self._take()
            if kind == "end":
                return found
            if kind != ",":
                raise ValueError(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self._peek()
            if kind not in ("word", "!"):
                raise ValueError(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        kind, key = self._take()
        absent = kind == "!"
        if absent:
            kind, key = self._take()
        if kind != "word":
            raise ValueError(f"found '{key}', expected: identifier")
        if problems := is_qualified_name(key):
            raise ValueError(str(invalid("<nil>", key, "; ".join(problems))))
        if absent:
            return make_requirement(key, ABSENT)
        if self._peek()[0] in ("end", ","):
            return make_requirement(key, EXISTS)
        return self._with_operator(key)

    def _with_operator(self, key: str) -> Requirement:
        _, sign = self._take()
        operator = _OPERATOR_TOKENS.get(sign)
        if operator is None:
            raise ValueError(f"found '{sign}', expected: {_BINARY_NAMES}")
        values = self._value_set() if operator in (IN, NOT_IN) else self._one_value()
        return make_requirement(key, operator, values)

    def _one_value(self) -> list[str]:
        if self._peek()[0] in ("end", ","):
            return [""]
        kind, text = self._take()
        if kind != "word":
            raise ValueError(f"found '{text}', expected: identifier")
        return [text]

    def _value_set(self) -> list[str]:
        kind, text = self._take()
        if kind != "(":
            raise ValueError(f"found '{text}' expected: '('")
        values: list[str] = []
        while True:
            kind, text = self._peek()
            if kind == "word":
                self._take()
                values.append(text)
            elif kind in (",", ")"):
                values.append("")  # "(,a)", "(a,,b)", "(a,)" and "()" all contain the empty value
            else:
                wanted = "',', or identifier" if values else "',', ')' or identifier"
                raise ValueError(f"found '{text}', expected: {wanted}")
            kind, text = self._take()
            if kind == ")":
                return values
            if kind != ",":
                raise ValueError(f"found '{text}', expected: ',' or ')'")


@bounded_cache(2048)
def parse(text: str) -> Selector:
    """The selector of a query text; raises ``BadRequest`` with the position of the error."""
    try:
        found = _Parser(text).requirements()
    except ValueError as fault:
        raise BadRequest(str(fault)) from None
    return _selector(found)


def _selector(requirements: Iterable[Requirement]) -> Selector:
    ordered = tuple(sorted(requirements, key=lambda each: each.key))
    return Selector(ordered) if ordered else EVERYTHING


def from_set(labels: Labels | None) -> Selector:
    """The selector that requires these labels; an empty map selects everything."""
    return _selector(Requirement(key, EQUALS, (value,)) for key, value in (labels or {}).items())


def from_object(selector: Mapping[str, Any] | None) -> Selector:
    """The selector of a LabelSelector: an absent one selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    try:
        found = [make_requirement(k, EQUALS, (v,)) for k, v in (selector.get("matchLabels") or {}).items()]
        for expression in selector.get("matchExpressions") or ():
            named = expression.get("operator", "")
            operator = _OBJECT_OPERATORS.get(named)
            if operator is None:
                raise ValueError(f'"{named}" is not a valid label selector operator')
            found.append(make_requirement(expression.get("key", ""), operator, expression.get("values") or ()))
    except ValueError as fault:
        raise BadRequest(str(fault)) from None
    return _selector(found)


def validate_labels(labels: Labels | None, path: str) -> list[FieldError]:
    """Errors of a map of labels."""
    faults: list[FieldError] = []
    for key, value in (labels or {}).items():
        faults += (invalid(path, key, text) for text in is_qualified_name(key))
        faults += (invalid(path, value, text) for text in is_label_value(value))
    return faults


def validate_label_selector(selector: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """Errors of a LabelSelector object."""
    if not selector:
        return []
    faults = validate_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for position, expression in enumerate(selector.get("matchExpressions") or ()):
        faults += _expression_faults(expression, f"{path}.matchExpressions[{position}]")
    return faults


def _expression_faults(expression: Mapping[str, Any], path: str) -> list[FieldError]:
    operator, key = expression.get("operator", ""), expression.get("key", "")
    values = expression.get("values") or ()
    faults: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if not values:
            faults.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            faults.append(forbidden(f"{path}.values", detail))
    else:
        faults.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    faults += (invalid(f"{path}.key", key, text) for text in is_qualified_name(key))
    for position, value in enumerate(values):
        faults += (invalid(f"{path}.values[{position}]", value, text) for text in is_label_value(value))
    return faults
