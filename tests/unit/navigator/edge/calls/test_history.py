"""What proxies have counted in a period."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.navigator.connections import CallEndpoint
from shoal.navigator.edge.calls.counters import Calls
from shoal.navigator.edge.calls.history import CallHistory

PAIR = ("source", CallEndpoint("", "sentinel", "gate"), CallEndpoint("", "", "", "dep_web"))


def counted(requests: float, errors: float = 0.0) -> dict[tuple[str, CallEndpoint, CallEndpoint], Calls]:
    return {PAIR: Calls(requests, errors, {float("inf"): requests})}


def requests(history: CallHistory, start_s: float, end_s: float) -> float:
    found = history.between(start_s, end_s).get(PAIR)
    return found.requests if found is not None else 0.0


def test_the_first_reading_counts_only_if_the_proxy_was_started_since() -> None:
    history = CallHistory(keep_s=100)
    history.take("old", counted(50), 10, started_here=False)
    history.take("new", counted(5), 10, started_here=True)
    history.take("old", counted(53), 20, started_here=False)
    assert requests(history, 0, 100) == 8
    assert requests(history, 10, 20) == 3, "the start is not part of the period"


def test_readings_end_after_a_time_and_the_history_says_from_when_it_knows() -> None:
    history = CallHistory(keep_s=100)
    for at_s in range(0, 300, 10):
        history.take("p", counted(at_s), at_s, started_here=True)
    assert requests(history, 0, 300) == 110
    assert history.since_s(0) == 180 and history.since_s(250) == 250


def test_the_number_of_pairs_is_limited() -> None:
    history = CallHistory(keep_s=1e9, most=3)
    for at_s in range(10):
        history.take("p", counted(at_s), at_s, started_here=True)
    assert requests(history, -1, 10) == 3


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=30
    )
)  # fmt: skip
def test_nothing_is_lost_or_counted_twice_over_restarts_of_proxies(steps: list[tuple[str, int, bool]]) -> None:
    history, counters, all_of_them = CallHistory(keep_s=1e9), {"a": 0, "b": 0}, 0
    for proxy in counters:
        history.take(proxy, counted(0), 0, started_here=True)
    for at_s, (proxy, more, restarted) in enumerate(steps, 1):
        before = counters[proxy]
        if restarted and more < before:  # a restart is visible when the counter is smaller than before
            counters[proxy] = 0
        counters[proxy] += more
        all_of_them += more
        history.take(proxy, counted(counters[proxy]), at_s, started_here=True)
    assert requests(history, 0, 1e6) == all_of_them
