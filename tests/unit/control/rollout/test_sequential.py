"""Evidence is at most 1 in expectation while the claim holds, by enumeration, and never falls when more fails."""

from __future__ import annotations

from itertools import product
from math import comb, exp, log

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.sequential import (
    ALPHA,
    STAKE,
    TIMES,
    begun,
    fair_full,
    filled,
    gap_factor,
    limit_factors,
    log_factor,
    most_filled,
    started,
    strongest,
)

shares = st.sampled_from([0.002, 0.01, 0.05, 0.2, 0.5])


def binomial(n: int, p: float) -> list[float]:
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@given(n=st.integers(1, 30), limit=shares, part=st.floats(0, 1))
def test_no_share_up_to_the_limit_makes_evidence_in_expectation(n: int, limit: float, part: float) -> None:
    chances = binomial(n, limit * part)
    for at in range(len(TIMES)):
        expected = sum(chance * exp(limit_factors(k, n, limit)[at]) for k, chance in enumerate(chances))
        assert expected <= 1 + 1e-9


@given(n=st.integers(1, 30), limit=shares)
def test_requests_that_all_fail_together_make_no_evidence_either(n: int, limit: float) -> None:
    for at in range(len(TIMES)):
        all_fail, none = (exp(limit_factors(k, n, limit)[at]) for k in (n, 0))
        assert limit * all_fail + (1 - limit) * none <= 1 + 1e-9


def bad_instances(instances: int, requests: int, chance: float, failing: float) -> dict[int, float]:
    """Chances of numbers of failures: each instance is bad for the whole window or not at all, with its requests."""
    each, found = requests // instances, {0: 1.0}
    one = {k: (1 - chance) * (k == 0) + chance * p for k, p in enumerate(binomial(each, failing))}
    for _ in range(instances):
        after: dict[int, float] = {}
        for (a, p), (b, q) in product(found.items(), one.items()):
            after[a + b] = after.get(a + b, 0.0) + p * q
        found = after
    return found


def expected_gap(candidate: dict[int, float], mine: int, stable: dict[int, float], others: int, full: float) -> float:
    room = fair_full(full, mine, others)
    pairs = product(candidate.items(), stable.items())
    return sum(a * b * exp(gap_factor(filled(x / mine, room) - filled(y / others, room))) for (x, a), (y, b) in pairs)


@given(
    each=st.integers(1, 6), instances=st.integers(1, 4), chance=st.floats(0, 1), failing=st.floats(0, 1),
    full=st.sampled_from([0.04, 0.15, 0.5]),
)  # fmt: skip
def test_one_instance_beside_many_makes_no_evidence_however_its_requests_fail_together(
    each: int, instances: int, chance: float, failing: float, full: float
) -> None:
    candidate = bad_instances(1, each, chance, failing)
    stable = bad_instances(instances, each * instances, chance, failing)
    assert expected_gap(candidate, each, stable, each * instances, full) <= 1 + 1e-9


@given(mine=st.integers(1, 12), more=st.integers(0, 12), rate=st.floats(0, 1), full=st.sampled_from([0.04, 0.15, 0.5]))
def test_fewer_requests_of_an_equal_revision_make_no_evidence(mine: int, more: int, rate: float, full: float) -> None:
    one, other = (dict(enumerate(binomial(n, rate))) for n in (mine, mine + more))
    assert expected_gap(one, mine, other, mine + more, full) <= 1 + 1e-9


@given(n=st.integers(1, 30), share=shares, part=st.floats(0, 1), full=st.sampled_from([0.04, 0.3, 1.0]))
def test_no_share_fills_more_on_average_than_its_bound(n: int, share: float, part: float, full: float) -> None:
    for chances in (dict(enumerate(binomial(n, share * part))), bad_instances(1, n, share, 1.0)):
        mean = sum(p * filled(k / n, full) for k, p in chances.items())
        assert mean <= most_filled(share, n, full) + 1e-9
    assert most_filled(1 / n, n, full) == filled(1 / n, full)


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
            logs = [sum(c * f[at] for c, f in zip(counts, factors, strict=True)) for at in range(len(TIMES))]
            if strongest({"": logs}, {"": 1.0}).rejects:
                stopped += chance
            else:
                going[counts] = chance
    assert 0 < stopped <= ALPHA


@given(x=st.integers(0, 40), more=st.integers(1, 5), full=st.sampled_from([0.04, 0.5]))
def test_evidence_rises_with_the_failures_of_the_candidate(x: int, more: int, full: float) -> None:
    assert limit_factors(x + more, 45, 0.01) > limit_factors(x, 45, 0.01)
    assert gap_factor(filled((x + more) / 45, full)) >= gap_factor(filled(x / 45, full))


def test_the_room_of_a_candidate_grows_with_its_requests_beside_those_of_stable() -> None:
    assert (fair_full(0.04, 10, 190), fair_full(0.04, 100, 100), fair_full(0.04, 90, 10)) == (0.04, 0.04, 0.36)
    assert fair_full(0.04, 100, 1) == 1.0


def test_the_worst_window_of_a_comparison_leaves_a_part_of_the_evidence() -> None:
    assert STAKE < 1
    assert abs(exp(gap_factor(-1.0)) - (1 - STAKE)) < 1e-12
    assert abs(exp(gap_factor(1.0)) - (1 + STAKE)) < 1e-12


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


def test_evidence_is_the_weighted_average_of_all_tests_and_their_alternatives() -> None:
    found = strongest({"a": [log(8.0), log(24.0)], "b": [log(40.0)]}, {"a": 0.5, "b": 0.25})
    assert abs(exp(found.log_evidence) - (0.5 * (8 + 24) / 2 + 0.25 * 40)) < 1e-9
    assert (found.key, found.component) == ("b", 0)


def test_a_hundred_is_what_rejects() -> None:
    assert strongest({"": [log(100.0) + 1e-9]}, {"": 1.0}).rejects
    assert not strongest({"": [log(99.9)]}, {"": 1.0}).rejects
