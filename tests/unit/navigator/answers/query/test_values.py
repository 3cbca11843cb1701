"""Ages in a query are compared as times."""

from __future__ import annotations

import operator

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.answers.query.values import stamp, stamp_bound


@settings(max_examples=100, deadline=None)
@given(created=st.integers(0, 5), moment=st.floats(0, 5), op=st.sampled_from(["<", "<=", ">", ">="]))
def test_stamps_compare_like_their_moments(created: int, moment: float, op: str) -> None:
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[op]
    assert compare(stamp(created), stamp_bound(op, moment)) == compare(created, moment)
