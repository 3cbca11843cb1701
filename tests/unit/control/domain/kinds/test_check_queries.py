"""Conditions and placeholders of checks' queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.domain.kinds.check_queries import (
    COMPARISONS,
    PLACEHOLDERS,
    fill_query,
    is_condition,
    is_query,
    parse_condition,
)


@given(st.sampled_from(sorted(COMPARISONS)), st.floats(allow_nan=False, allow_infinity=False))
def test_every_condition_with_a_finite_number_is_read_back(sign: str, number: float) -> None:
    assert is_condition(f"{sign} {number!r}") == () and parse_condition(f" {sign}{number!r}") == (sign, number)


@pytest.mark.parametrize("text", ["", "0.01", "=< 1", "< one", "< 1 or > 2", "< 1e", "< nan", "= 1"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    assert is_condition(text) and "such as < 0.01" in is_condition(text)[0]
    with pytest.raises(ValueError, match="is not valid"):
        parse_condition(text)


def test_placeholders_stand_for_what_is_rolled_out() -> None:
    query = "x{app='{{app}}', r=\"{{ revision }}\"}"
    assert is_query(query) == ()
    assert fill_query(query, {"app": "web", "revision": 7}) == "x{app='web', r=\"7\"}"


@given(st.text(min_size=1).filter(lambda each: each.strip() not in PLACEHOLDERS and "}" not in each))
def test_a_placeholder_that_is_none_is_refused_when_it_is_applied(name: str) -> None:
    assert "has the placeholder" in is_query(f"up{{{{{name}}}}}")[0]
