"""Quantities keep their amount exactly and print in one canonical form."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.kube.quantity import FORMAT_ERROR, MAX_INT64, NUMERIC_ERROR, SUFFIX_ERROR, Format, Quantity, canonical, parse

CANONICAL = {
    "0": "0", "00": "0", "-0": "0", "0Ki": "0", "0.0": "0",
    "1000m": "1", "0.5": "500m", ".5": "500m", "1.5": "1500m", "100m": "100m", "1": "1", "1000": "1k", "1000000k": "1G",
    "1024Mi": "1Gi", "1.5Gi": "1536Mi", "2048Ki": "2Mi", "1Ki": "1Ki", "1023Ki": "1023Ki", "1Ei": "1Ei", "0.5Ki": "512",
    "0.1Mi": "104857600m", "1.1Ki": "1126400m", "8Ei": "9223372036854775807", "100Ei": "9223372036854775807",
    "-100Ei": "-9223372036854775807",
    "0.1m": "100u", "0.5n": "1n", "-0.5n": "-1n", "1.0000000001": "1000000001n", "0.00000000001": "1n",
    "1e3": "1e3", "1E3": "1E3", "100e1": "1e3", "12e6": "12e6", "1.5e0": "1500e-3", "1e-12": "1e-9", "10e21": "10e21",
    "1e+1": "10", "1E": "1E", "1500E": "1500E", "123456789012345678901": "123456789012345678901",
    "-1500m": "-1500m", "1n": "1n", "1u": "1u", "5T": "5T", "7P": "7P", "3Ti": "3Ti", "4Pi": "4Pi",
    # Text that needs no rescaling is kept as it was written, even where another spelling would be shorter.
    "+1": "+1", "007": "007", "1.005": "1.005",
}  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), CANONICAL.items())
def test_canonical_form(text: str, wanted: str) -> None:
    assert canonical(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", FORMAT_ERROR), ("abc", FORMAT_ERROR), ("1.2.3", FORMAT_ERROR), ("1 Gi", FORMAT_ERROR), ("1\n", FORMAT_ERROR),
        ("--1", SUFFIX_ERROR), ("١", FORMAT_ERROR), ("1_000", FORMAT_ERROR),
        ("1e", SUFFIX_ERROR), ("1KiKi", SUFFIX_ERROR), ("1ki", SUFFIX_ERROR), ("1mm", SUFFIX_ERROR), ("1e9999", SUFFIX_ERROR),
        ("9" * 5000, NUMERIC_ERROR),
    ],
)  # fmt: skip
def test_text_that_is_no_quantity_is_refused_with_the_known_message(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_json_numbers_are_quantities_and_other_values_are_not() -> None:
    assert [canonical(2), canonical(0.5), canonical(1000), canonical(1e22), canonical(" 1 ")] == [
        "2", "500m", "1k", "10e21", "1",
    ]  # fmt: skip
    not_numbers: list[Any] = [True, None, [], {}, float("nan"), float("inf")]
    for wrong in not_numbers:
        with pytest.raises(ValueError, match="regular expression"):
            canonical(wrong)


def test_value_and_milli_round_away_from_zero() -> None:
    assert [parse(text).value() for text in ("1500m", "-1500m", "1n", "1Gi", "2")] == [2, -2, 1, 2**30, 2]
    assert [parse(text).milli() for text in ("1500m", "100u", "-1n", "2")] == [1500, 1, -1, 2000]


def test_arithmetic_is_exact_and_keeps_the_format_of_the_left_unless_it_is_zero() -> None:
    assert str(parse("1Gi") + parse("1Mi")) == "1025Mi"
    assert str(parse("0") + parse("1Mi")) == "1Mi"
    assert str(parse("100m") - parse("0.3")) == "-200m"
    assert str(-parse("1Ki")) == "-1Ki"
    assert str(parse("250m") * 4) == "1"
    assert parse("1Ki") == parse("1024") and hash(parse("1Ki")) == hash(parse("1024"))
    assert parse("1M") < parse("1Mi") and parse("1") >= parse("1000m")
    assert not parse("0Gi") and parse("1n")


numbers = st.one_of(st.integers(0, 10**6).map(str), st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,12})?", fullmatch=True))
suffixes = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e+6"])  # fmt: skip
UNITS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60), "e3": Fraction(10**3), "E-2": Fraction(1, 100), "e+6": Fraction(10**6),
}  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(sign=st.sampled_from(["", "-", "+"]), number=numbers, suffix=suffixes)
@example(sign="", number="0.000000000001", suffix="E-2")
def test_parsing_loses_nothing_above_a_billionth_and_canonical_text_is_a_fixed_point(
    sign: str, number: str, suffix: str
) -> None:
    text = sign + number + suffix
    exact = abs(Fraction(number + "0" if number.endswith(".") else number) * UNITS[suffix])
    quantity = parse(text)
    if suffix in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        exact = min(exact, Fraction(MAX_INT64))
    billionths = -(-exact * 10**9 // 1)
    assert abs(quantity.nano()) == billionths
    once = canonical(text)
    assert parse(once) == quantity
    assert canonical(once) == once


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**20), 10**20), st.integers(-9, 18), st.sampled_from(list(Format)))
def test_any_quantity_reads_back_from_its_text(mantissa: int, scale: int, format: Format) -> None:
    quantity = Quantity(mantissa, scale, format)
    if format is Format.BINARY_SI and abs(quantity.value()) > MAX_INT64:
        return
    assert parse(str(quantity)) == quantity


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.+-eEinumkKMGTP xé\n", max_size=30))
def test_any_text_parses_or_raises_value_error(text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        assert str(error) in (FORMAT_ERROR, NUMERIC_ERROR, SUFFIX_ERROR)
