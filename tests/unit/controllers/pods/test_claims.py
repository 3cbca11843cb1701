"""Claims: adopt selected objects without a controller, release others, change nothing while being deleted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.controllers.pods.claims import plan_claims
from shoal.controllers.pods.owners import selector_of, set_selector_of
from shoal.testing.workloads import pod, replica_set, replication_controller, stored

OWNER = stored(replica_set())
SELECTOR = selector_of(OWNER)


def names(pods: Any) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def test_selected_ones_are_kept_others_released() -> None:
    mine = [pod("kept", owner=OWNER), pod("gone", owner=OWNER, labels={"app": "other"})]
    claims = plan_claims(OWNER, SELECTOR, mine, [])
    assert names(claims.kept) == ["kept"]
    assert names(claims.released) == ["gone"]


def test_free_ones_are_adopted_unless_they_are_being_deleted() -> None:
    orphans = [pod("free"), pod("going", deleting=True), pod("other", labels={"app": "other"}), pod("bare", labels={})]
    assert names(plan_claims(OWNER, SELECTOR, [], orphans).adopted) == ["free"]


def test_an_owner_that_is_being_deleted_adopts_and_releases_nothing() -> None:
    going = {**OWNER, "metadata": {**OWNER["metadata"], "deletionTimestamp": "2024-01-01T00:00:00Z"}}
    mine = [pod("kept", owner=OWNER), pod("stray", owner=OWNER, labels={})]
    claims = plan_claims(going, SELECTOR, mine, [pod("free")])
    assert (names(claims.kept), claims.adopted, claims.released) == (["kept"], (), ())


def test_beside_the_selector_the_owner_may_have_a_condition() -> None:
    claims = plan_claims(
        OWNER, SELECTOR, [pod("a-1", owner=OWNER)], [pod("b-1")], wanted=lambda each: each["metadata"]["name"] == "b-1"
    )
    assert (names(claims.released), names(claims.adopted)) == (["a-1"], ["b-1"])


def test_an_empty_selector_selects_nothing() -> None:
    for selector in (None, {}):
        assert not selector_of(replica_set(selector=selector)).matches({"app": "web"})
        assert not set_selector_of(replication_controller(selector=selector)).matches({"app": "web"})


LABELS = st.sampled_from([{"app": "web"}, {"app": "web", "x": "y"}, {"app": "other"}, {}])


@given(st.lists(LABELS, max_size=6), st.lists(LABELS, max_size=6))
def test_after_carrying_claims_out_there_is_nothing_more_to_claim(mine: list[Any], free: list[Any]) -> None:
    controlled = [pod(owner=OWNER, labels=labels) for labels in mine]
    orphans = [pod(labels=labels) for labels in free]
    claims = plan_claims(OWNER, SELECTOR, controlled, orphans)
    left = [each for each in orphans if each not in claims.adopted] + list(claims.released)
    again = plan_claims(OWNER, SELECTOR, claims.kept + claims.adopted, left)
    assert again.kept == claims.kept + claims.adopted
    assert not again.adopted and not again.released
