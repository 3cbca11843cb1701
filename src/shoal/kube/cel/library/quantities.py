"""Resource quantities, and the named formats of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shoal.kube import names
from shoal.kube import quantity as kube_quantity
from shoal.kube.cel import formats
from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.values import MAX_INT, MIN_INT, NONE, Optional


@dataclass(frozen=True, slots=True)
class Quantity:
    cel_name: ClassVar[str] = "kubernetes.Quantity"
    amount: kube_quantity.Quantity


def quantity(text: str) -> Quantity:
    try:
        return Quantity(kube_quantity.parse(text))
    except ValueError as error:
        raise EvalError(str(error)) from None


def is_quantity(text: str) -> bool:
    try:
        return kube_quantity.parse(text) is not None
    except ValueError:
        return False


def _whole(value: Quantity) -> int | None:
    nano = value.amount.nano()
    amount = nano // 10**9
    return amount if nano % 10**9 == 0 and MIN_INT <= amount <= MAX_INT else None


def as_integer(value: Quantity) -> int:
    amount = _whole(value)
    if amount is None:
        raise EvalError("cannot convert value to integer")
    return amount


def _plus(left: Quantity, right: Quantity | int) -> Quantity:
    other = kube_quantity.Quantity(right) if isinstance(right, int) else right.amount
    return Quantity(left.amount + other)


def _minus(left: Quantity, right: Quantity | int) -> Quantity:
    other = kube_quantity.Quantity(right) if isinstance(right, int) else right.amount
    return Quantity(left.amount - other)


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.amount > right.amount) - (left.amount < right.amount)


@dataclass(frozen=True, slots=True)
class Format:
    """A named format: a check of a text, with its error messages."""

    cel_name: ClassVar[str] = "kubernetes.NamedFormat"
    name: str
    faults: Callable[[str], tuple[str, ...]]
    regex_size: int = 30

    def __len__(self) -> int:
        return len(self.name)


def _prefix(check: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    """Prefixes may end in a dash: the server adds a suffix."""
    return lambda text: check(text[:-1] + "a" if text.endswith("-") else text)


def _tested(name: str, fault: str) -> Callable[[str], tuple[str, ...]]:
    test = formats.TESTS[name]
    return lambda text: () if test(text) else (fault,)


FORMATS = {
    made.name: made
    for made in (
        Format("dns1123Label", names.is_dns1123_label, 30),
        Format("dns1123Subdomain", names.is_dns1123_subdomain, 60),
        Format("dns1035Label", names.is_dns1035_label, 30),
        Format("qualifiedName", names.is_qualified_name, 60),
        Format("dns1123LabelPrefix", _prefix(names.is_dns1123_label), 30),
        Format("dns1123SubdomainPrefix", _prefix(names.is_dns1123_subdomain), 60),
        Format("dns1035LabelPrefix", _prefix(names.is_dns1035_label), 30),
        Format("labelValue", names.is_label_value, 40),
        Format("uri", _tested("uri", "must be a valid URI"), 1000),
        Format("uuid", _tested("uuid", "does not match the UUID format"), 1000),
        Format("byte", _tested("byte", "invalid base64"), 1000),
        Format("date", _tested("date", "invalid date"), 1000),
        Format("datetime", _tested("datetime", "invalid datetime"), 1000),
    )
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(True, found)


def _validate(made: Format, text: str) -> Optional:
    faults = made.faults(text)
    return Optional(True, list(faults)) if faults else NONE


def declare(library: Library) -> None:
    add = library.add
    add("string_to_quantity", "quantity(string): quantity", quantity)
    add("is_quantity_string", "isQuantity(string): bool", is_quantity)
    sign = "quantity.sign(): int"
    add("quantity_sign", sign, lambda value: (value.amount.mantissa > 0) - (value.amount.mantissa < 0))
    add("quantity_is_integer", "quantity.isInteger(): bool", lambda value: _whole(value) is not None)
    add("quantity_as_integer", "quantity.asInteger(): int", as_integer)
    approximate = "quantity.asApproximateFloat(): double"
    add("quantity_as_float", approximate, lambda value: value.amount.nano() / 10**9)
    add("quantity_add", "quantity.add(quantity): quantity", _plus)
    add("quantity_add_int", "quantity.add(int): quantity", _plus)
    add("quantity_sub", "quantity.sub(quantity): quantity", _minus)
    add("quantity_sub_int", "quantity.sub(int): quantity", _minus)
    add("quantity_is_less_than", "quantity.isLessThan(quantity): bool", lambda a, b: _compare(a, b) < 0)
    add("quantity_is_greater_than", "quantity.isGreaterThan(quantity): bool", lambda a, b: _compare(a, b) > 0)
    add("quantity_compare_to", "quantity.compareTo(quantity): int", _compare)
    for name, made in FORMATS.items():
        add(f"format-{name}", f"|format.{name}(): format", lambda made=made: made)
    add("format-named", "|format.named(string): optional(format)", _named)
    add("format-validate", "format.validate(string): optional(list(string))", _validate)
