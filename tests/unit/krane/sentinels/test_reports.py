"""Which sentinels have not taken a route yet."""

from __future__ import annotations

from typing import Any

from shoal.krane import labels
from shoal.krane.sentinels.reports import gateway_pod, has_judged, waiting


def pod(name: str, *, environment: str = "env_1", ready: bool = True, phase: str = "Running") -> dict[str, Any]:
    own = {labels.COMPONENT: "sentinel", **({labels.ENVIRONMENT: environment} if environment else {})}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return gateway_pod(
        {"metadata": {"name": name, "labels": own}, "status": {"phase": phase, "conditions": conditions}}
    )


def route(generation: int, **entries: tuple[int, bool]) -> dict[str, Any]:
    found = [{"name": name, "generation": seen, "accepted": taken} for name, (seen, taken) in entries.items()]
    about = {"name": "r", "generation": generation, "labels": {labels.ENVIRONMENT: "env_1"}}
    return {"metadata": about, "status": {"gateways": found}}


def test_a_sentinel_is_waited_for_until_it_has_taken_the_newest_version() -> None:
    assert waiting(route(2, a=(1, True), b=(2, True)), [pod("a"), pod("b")], seen=True) == ["a"]
    assert waiting(route(2, a=(2, True), b=(2, True)), [pod("a"), pod("b")], seen=True) == []


def test_one_that_refuses_a_version_still_uses_the_one_before() -> None:
    assert waiting(route(2, a=(2, False)), [pod("a")], seen=True) == ["a"]


def test_one_that_hangs_is_waited_for_although_it_is_not_ready_any_more() -> None:
    assert waiting(route(2, a=(1, True)), [pod("a", ready=False)], seen=True) == ["a"]
    assert waiting(route(2), [pod("new", ready=False)], seen=True) == [], "it has not served yet"
    assert waiting(route(2), [pod("new")], seen=True) == ["new"]


def test_only_pods_that_are_there_and_serve_the_environment_count() -> None:
    others = [pod("other", environment="env_2"), pod("ended", phase="Failed")]
    assert waiting(route(2, gone=(1, True)), others, seen=True) == []
    assert waiting(route(2), [pod("shared", environment="")], seen=True) == ["shared"]


def test_while_the_newest_version_is_not_seen_all_wait() -> None:
    assert waiting(route(1, a=(1, True)), [pod("a")], seen=False) == ["a"]


def test_one_that_was_taken_out_of_its_service_a_while_ago_is_not_waited_for() -> None:
    both = [pod("a"), pod("b")]
    assert waiting(route(2, a=(1, True), b=(1, True)), both, seen=True, drained={"b"}) == ["a"]
    assert waiting(route(1), both, seen=False, drained={"b"}) == ["a"]


def test_a_pod_has_judged_its_routes_when_it_has_looked_at_each_as_it_is_now() -> None:
    assert has_judged(pod("a"), [route(2, a=(2, False)), route(1, a=(1, True))]), "a refused one is judged"
    assert not has_judged(pod("a"), [route(2, a=(2, True)), route(2, a=(1, True))])
    assert not has_judged(pod("a"), [route(1)])
    assert has_judged(pod("a", environment="env_2"), [route(1)]), "it is not for this pod"
