"""Claims of clusters: one edge at a time, in any order of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.manager.registry import ClaimGranted, ClaimRefused, ClaimRegistry, RejectionReason

GRACE_S = 10.0


def registry() -> ClaimRegistry:
    return ClaimRegistry(grace_s=GRACE_S)


def test_the_first_claim_is_granted_and_a_second_edge_is_refused() -> None:
    one = registry()
    assert one.claim("c", "a", 0.0) == ClaimGranted(1)
    refused = one.claim("c", "b", 1000.0)
    assert isinstance(refused, ClaimRefused) and refused.code is RejectionReason.ACTIVE_CONNECTION_EXISTS
    assert one.claim("other", "b", 0.0) == ClaimGranted(1), "clusters do not concern each other"


def test_the_same_edge_returns_at_once_and_replaces_its_own_stream() -> None:
    one = registry()
    one.claim("c", "a", 0.0)
    assert one.claim("c", "a", 1.0) == ClaimGranted(2, replaced=1)
    assert not one.release("c", 1, 2.0), "the end of the old stream is not the end of the new one"
    assert one.holds("c", 2)
    assert one.release("c", 2, 3.0)
    assert one.claim("c", "a", 3.0) == ClaimGranted(3)


def test_a_standby_gets_the_end_of_the_grace_period_and_takes_over_then() -> None:
    one = registry()
    one.claim("c", "a", 0.0)
    one.release("c", 1, 100.0)
    refused = one.claim("c", "b", 104.0)
    assert isinstance(refused, ClaimRefused) and refused.code is RejectionReason.RECENT_DISCONNECTION
    assert refused.retry_after_s == 6.0
    assert isinstance(one.claim("c", "b", 109.999), ClaimRefused)
    assert one.claim("c", "b", 104.0 + refused.retry_after_s) == ClaimGranted(2)


def test_a_standby_that_asks_while_the_first_lives_comes_back_within_the_grace_period() -> None:
    for grace_s in (0.0, 0.5, 1.0, 10.0, 600.0):
        one = ClaimRegistry(grace_s=grace_s)
        one.claim("c", "a", 0.0)
        refused = one.claim("c", "b", 1.0)
        assert isinstance(refused, ClaimRefused)
        # Either it retries within the grace period and gets its end, or the period is very short.
        assert 0 < refused.retry_after_s <= max(grace_s, 0.5)


def test_after_a_restart_only_the_last_edge_returns_before_the_grace_period_ends() -> None:
    one = registry()
    one.restore("c", "a", 7, 50.0)
    assert isinstance(one.claim("c", "b", 51.0), ClaimRefused)
    assert one.claim("c", "a", 51.0) == ClaimGranted(8)
    two = registry()
    two.restore("c", "a", 7, 50.0)
    assert two.claim("c", "b", 60.0) == ClaimGranted(8)


def test_a_cluster_is_forgotten_only_while_no_edge_holds_it() -> None:
    one = registry()
    one.claim("c", "a", 0.0)
    assert not one.begin_removal("c")
    one.release("c", 1, 1.0)
    assert one.begin_removal("c")
    one.end_removal("c", removed=True)
    assert one.epoch("c") == 0
    assert one.claim("c", "b", 1.0) == ClaimGranted(1)


def test_a_cluster_that_is_being_removed_cannot_be_claimed_and_a_failed_removal_changes_nothing() -> None:
    one = registry()
    one.claim("c", "a", 0.0)
    one.release("c", 1, 1.0)
    assert one.begin_removal("c") and not one.begin_removal("c")
    for edge in ("a", "b"):
        refused = one.claim("c", edge, 1000.0)
        assert isinstance(refused, ClaimRefused) and "is being removed" in refused.message
        assert 0 < refused.retry_after_s <= 1
    one.end_removal("c", removed=False)
    assert one.claim("c", "a", 1000.0) == ClaimGranted(2)


EDGES = st.sampled_from(["a", "b", "c"])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), EDGES),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.floats(0.0, 15.0)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(max_examples=300)
def test_in_any_order_one_edge_holds_the_cluster_and_epochs_rise(actions: list[tuple[str, object]]) -> None:
    one, now = registry(), 0.0
    granted: list[tuple[int, str]] = []  # epoch and edge, in order
    holder, free_at = "", 0.0
    for action, detail in actions:
        if action == "claim":
            edge = str(detail)
            answer = one.claim("c", edge, now)
            mine = bool(granted) and granted[-1][1] == edge
            if isinstance(answer, ClaimGranted):
                assert mine or not granted or (not holder and now >= free_at)
                assert not granted or answer.epoch > granted[-1][0]
                assert answer.replaced == (granted[-1][0] if holder else 0)
                granted.append((answer.epoch, edge))
                holder = edge
            else:
                assert not mine, "the same edge may always return"
                assert bool(holder) == (answer.code is RejectionReason.ACTIVE_CONNECTION_EXISTS)
        elif action == "lose" and granted:
            epoch, _ = granted[max(0, len(granted) - 1 - int(str(detail)))]
            lost = one.release("c", epoch, now)
            assert lost == (bool(holder) and epoch == granted[-1][0])
            if lost:
                holder, free_at = "", now + GRACE_S
        elif action == "wait":
            now += float(str(detail))
        elif action == "restart" and granted:
            one = registry()
            one.restore("c", granted[-1][1], granted[-1][0], now)
            holder, free_at = "", now + GRACE_S
        for epoch, _ in granted:
            assert one.holds("c", epoch) == (bool(holder) and epoch == granted[-1][0])
