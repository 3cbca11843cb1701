"""Evidence is at most 1 in expectation while the claim holds, by enumeration, and never falls when more fails."""

from __future__ import annotations

from itertools import product
from math import comb, exp, log

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.sequential import ALPHA, begun, limit_factors, log_factor, split_factors, started, strongest

shares = st.sampled_from([0.002, 0.01, 0.05, 0.2, 0.5])


def binomial(n: int, p: float) -> list[float]:
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@given(n=st.integers(1, 30), limit=shares, part=st.floats(0, 1))
def test_no_share_up_to_the_limit_makes_evidence_in_expectation(n: int, limit: float, part: float) -> None:
    chances = binomial(n, limit * part)
    for at in range(3):
        expected = sum(chance * exp(limit_factors(k, n, limit)[at]) for k, chance in enumerate(chances))
        assert expected <= 1 + 1e-9


@given(n=st.integers(1, 30), limit=shares)
def test_requests_that_all_fail_together_make_no_evidence_either(n: int, limit: float) -> None:
    for at in range(3):
        all_fail, none = (exp(limit_factors(k, n, limit)[at]) for k in (n, 0))
        assert limit * all_fail + (1 - limit) * none <= 1 + 1e-9


@given(mine=st.integers(1, 12), others=st.integers(1, 24), rate=st.floats(0.01, 0.9))
def test_equal_revisions_make_no_evidence_by_their_split(mine: int, others: int, rate: float) -> None:
    chances = product(enumerate(binomial(mine, rate)), enumerate(binomial(others, rate)))
    expected = [0.0] * 3
    for (failed, a), (failed_there, b) in chances:
        factors = split_factors(failed, failed_there, mine / others, (2.0, 5.0, 20.0))
        expected = [sum_ + a * b * exp(each) for sum_, each in zip(expected, factors, strict=True)]
    assert max(expected) <= 1 + 1e-9


def test_the_chance_that_evidence_ever_reaches_its_bound_is_within_alpha() -> None:
    """All ways in which twelve windows of four requests can go, at the limit itself, with a look after every window."""
    limit, n = 0.2, 4
    chances = binomial(n, limit)
    factors = [limit_factors(k, n, limit) for k in range(n + 1)]
    going = {(0,) * (n + 1): 1.0}
    stopped = 0.0
    for _ in range(12):
        after: dict[tuple[int, ...], float] = {}
        for seen, chance in going.items():
            for k in range(n + 1):
                counts = tuple(each + (at == k) for at, each in enumerate(seen))
                after[counts] = after.get(counts, 0.0) + chance * chances[k]
        going = {}
        for counts, chance in after.items():
            logs = [sum(c * f[at] for c, f in zip(counts, factors, strict=True)) for at in range(3)]
            if strongest({"": logs}, {"": 1.0}).rejects:
                stopped += chance
            else:
                going[counts] = chance
    assert 0 < stopped <= ALPHA


@given(x=st.integers(0, 40), y=st.integers(0, 40), odds=st.floats(0.01, 20), more=st.integers(1, 5))
def test_evidence_rises_with_the_candidates_failures_and_falls_with_those_of_stable(
    x: int, y: int, odds: float, more: int
) -> None:
    alternatives = (1.2, 2.0, 5.0, 20.0)
    here = split_factors(x, y, odds, alternatives)
    if x + y:
        assert all(a >= b - 1e-9 for a, b in zip(split_factors(x + more, y, odds, alternatives), here, strict=True))
        assert all(a <= b + 1e-9 for a, b in zip(split_factors(x, y + more, odds, alternatives), here, strict=True))
    assert limit_factors(x + more, 45, 0.01) > limit_factors(x, 45, 0.01)


@given(share=st.floats(0, 1), mean=st.floats(0.0001, 0.999), size=st.floats(0.1, 1e6), lead=st.floats(0.001, 1))
def test_no_window_costs_more_than_nine_tenths_of_the_evidence(
    share: float, mean: float, size: float, lead: float
) -> None:
    assert log_factor(share, mean, mean + lead * (1 - mean), size) >= log(0.1) - 1e-9


def test_a_test_that_begins_later_has_the_evidence_of_one_that_saw_nothing() -> None:
    evidence = begun(1, 1)
    for start in (2, 3, 4):
        evidence = started(evidence, start)
    assert abs(evidence[0] - begun(4, 1)[0]) < 1e-12


def test_a_start_makes_evidence_recover_from_many_good_windows() -> None:
    assert started([-300.0], 2)[0] > log(1 / 6) - 1e-9


def test_tests_without_weight_count_for_nothing() -> None:
    found = strongest({"a": [log(1e6)], "b": [0.0]}, {"b": 1.0})
    assert found.key == "b" and not found.rejects
    assert strongest({"a": [log(401.0)], "b": [0.0]}, {"a": 0.25, "b": 0.75}).rejects
