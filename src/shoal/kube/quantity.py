"""Resource quantities (``500m``, ``1Gi``, ``2e3``): parsing, exact arithmetic and the canonical text.

A quantity is a whole number times a power of ten, never a float. It is printed with a suffix of the family in which it
was written, the largest that is exact. ``canonical`` is called for every quantity of every object and has a bounded
cache.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import total_ordering
from typing import Any

from shoal.base.bounded_cache import bounded_cache

FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_ERROR = "unable to parse numeric part of quantity"
SUFFIX_ERROR = "unable to parse quantity's suffix"

MAX_INT64 = 2**63 - 1
_NANO = -9
_MAX_DIGITS = 400  # far more than any use needs; limits the cost of hostile input
_FAST_DIGITS = 18  # this many decimal digits always fit an int64


class Format(Enum):
    """The family of suffixes a quantity is written in."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAME = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_NAMES = ("", *_BINARY)

# The integer part may be empty (".5"), and so may the fraction ("1."), as in Kubernetes' expression.
_SHAPE = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """``mantissa * 10**scale``, printed in the suffixes of ``format``; equal when the amounts are equal."""

    mantissa: int
    scale: int = 0  # at least -9: a billionth is the smallest unit
    format: Format = Format.DECIMAL_SI
    text: str = field(default="", repr=False)  # the text it was parsed from, if that is canonical

    def __str__(self) -> str:
        return self.text or _render(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano() == other.nano()

    def __lt__(self, other: Quantity) -> bool:
        return self.nano() < other.nano()

    def __hash__(self) -> int:
        return hash(self.nano())

    def __bool__(self) -> bool:
        return self.mantissa != 0

    def __add__(self, other: Quantity) -> Quantity:
        return _sum(self, other, 1)

    def __sub__(self, other: Quantity) -> Quantity:
        return _sum(self, other, -1)

    def __neg__(self) -> Quantity:
        return Quantity(-self.mantissa, self.scale, self.format)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.mantissa * times, self.scale, self.format)

    def nano(self) -> int:
        """The exact amount in billionths."""
        return self.mantissa * int(10 ** (self.scale - _NANO))

    def scaled(self, scale: int) -> int:
        """The amount in units of ``10**scale``, rounded away from zero."""
        shift = self.scale - scale
        if shift >= 0:
            return self.mantissa * int(10**shift)
        return _divide_away(self.mantissa, int(10**-shift))

    def value(self) -> int:
        """The amount as a whole number, rounded away from zero."""
        return self.scaled(0)

    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return self.scaled(-3)


ZERO = Quantity(0)


def _divide_away(amount: int, divisor: int) -> int:
    return -(-amount // divisor) if amount > 0 else amount // divisor


def _sum(left: Quantity, right: Quantity, sign: int) -> Quantity:
    scale = min(left.scale, right.scale)
    amount = left.mantissa * 10 ** (left.scale - scale) + sign * right.mantissa * 10 ** (right.scale - scale)
    return Quantity(amount, scale, left.format if left.mantissa else right.format)


def parse(text: str) -> Quantity:
    """The quantity of a text; raises ``ValueError`` if it is invalid."""
    if not text:
        raise ValueError(FORMAT_ERROR)
    matched = _SHAPE.fullmatch(text)
    if matched is None:
        raise ValueError(FORMAT_ERROR)
    sign, whole, fraction, suffix = matched.groups()
    fraction = fraction or ""
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise ValueError(NUMERIC_ERROR)
    number = -1 if sign == "-" else 1
    digits = (whole or "0") + fraction
    number *= int(digits)
    binary = _BINARY.get(suffix)
    if binary is not None:
        return _binary(text, number, len(whole or "0"), len(fraction), binary)
    format, exponent = _decimal_suffix(suffix)
    scale = exponent - len(fraction)
    if scale < _NANO:
        return Quantity(_round_up_to_nano(number, scale), _NANO, format)
    as_written = len(digits) <= _FAST_DIGITS and scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    return Quantity(number, scale, format, text if as_written else "")


def _decimal_suffix(suffix: str) -> tuple[Format, int]:
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return Format.DECIMAL_SI, exponent
    matched = _EXPONENT.fullmatch(suffix)
    if matched is None or len(matched[1]) > 9 or int(matched[1]) > _MAX_DIGITS:
        raise ValueError(SUFFIX_ERROR)
    return Format.DECIMAL_EXPONENT, int(matched[1])


def _binary(text: str, number: int, whole_digits: int, fraction_digits: int, exponent: int) -> Quantity:
    """A quantity with a binary suffix: whole ones stay whole, large ones stop at the largest int64."""
    amount = number << exponent
    if fraction_digits == 0 and 14 - whole_digits - exponent * 3 // 10 >= 0:
        return Quantity(amount, 0, Format.BINARY_SI, text if number & 0x07 else "")
    scale = -fraction_digits
    if scale < _NANO:
        amount, scale = _round_up_to_nano(amount, scale), _NANO
    unit = 10**-scale
    magnitude = abs(amount)
    if magnitude > MAX_INT64 * unit:
        return Quantity(MAX_INT64 if amount > 0 else -MAX_INT64, 0, Format.BINARY_SI)
    return Quantity(amount, scale, Format.DECIMAL_SI if 0 < magnitude < unit else Format.BINARY_SI)


def _round_up_to_nano(amount: int, scale: int) -> int:
    """``amount * 10**scale`` in billionths, rounded away from zero, so that a tiny amount does not become 0."""
    shift = _NANO - scale
    if shift > 2 * _MAX_DIGITS:
        return (amount > 0) - (amount < 0)
    return _divide_away(amount, int(10**shift))


def _render(quantity: Quantity) -> str:
    if quantity.mantissa == 0:
        return "0"
    if quantity.format is Format.BINARY_SI:
        exact = quantity.value()
        # Below 1024, and for fractions, only the decimal form is exact.
        if abs(quantity.nano()) >= 1024 * 10**9 and quantity == Quantity(exact):
            return _render_binary(exact)
    return _render_decimal(quantity)


def _render_binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY_NAMES) - 1:
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY_NAMES[power]}"


def _render_decimal(quantity: Quantity) -> str:
    amount, exponent = quantity.mantissa, quantity.scale
    while amount % 10 == 0:
        amount //= 10
        exponent += 1
    excess = exponent % 3
    if quantity.format is not Format.DECIMAL_EXPONENT and exponent > 18:
        excess = exponent - 18  # there is no suffix after E: the rest stays in the number
    amount *= 10**excess
    exponent -= excess
    if quantity.format is Format.DECIMAL_EXPONENT:
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_NAME[exponent]}"


@bounded_cache(16384)
def _canonical_text(text: str) -> str:
    return str(parse(text.strip()))


def canonical(value: str | int | float) -> str:
    """The canonical text of a quantity given as JSON string or number."""
    if value.__class__ is str:
        return _canonical_text(value)
    return _canonical_text(_number_text(value))


def _number_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(FORMAT_ERROR)
    if isinstance(value, int) and abs(value) > 10**_MAX_DIGITS:
        raise ValueError(NUMERIC_ERROR)
    return repr(value)
