"""Text search over all clusters."""

from __future__ import annotations

from typing import Any

from answers_world import done, the_world

from shoal.navigator.answers.search import Hit, search

WORLD = the_world()


def hits(text: str, **more: Any) -> list[str]:
    found, _ = done(search(WORLD.view, text, **more))
    return [f"{hit.row.kind} {hit.row.cluster}/{hit.row.name}" for hit in found]


def test_a_whole_name_comes_before_its_beginning_and_that_before_what_is_elsewhere() -> None:
    found = hits("web", cluster="eu-1")
    assert found[:3] == ["services eu-1/web", "deployments eu-1/web", "virtualservices eu-1/web"]
    assert found[3:7] == [
        "endpointslices eu-1/web-4", "endpointslices eu-1/web-6", "pods eu-1/web-1", "pods eu-1/web-2",
    ]  # fmt: skip
    assert found[7:] == ["pods eu-1/batch-7"], "its image is of web"


def test_every_word_must_be_found_somewhere() -> None:
    assert hits("web v2", kinds=["pods"]) == ["pods eu-1/web-2", "pods us-1/web-1"]
    assert hits("team=data") == ["pods eu-1/batch-7", "pods us-1/batch-7"]
    assert hits("10.96.0.1 web") == ["services eu-1/web", "services us-1/web"]
    assert hits("shop/batch-7") == ["pods eu-1/batch-7", "pods us-1/batch-7"]
    assert hits("staging") == ["clusters us-2/us-2"]
    assert hits("web nothing-like-that") == hits("  ") == []


def test_events_are_searched_only_when_they_are_named() -> None:
    assert hits("lonely-0") == ["pods us-2/lonely-0"]
    assert hits("lonely-0", kinds=["events"]) == ["events us-2/lonely-0.backoff", "events us-2/lonely-0.pulled"]
    assert hits("demo.test") == ["sentinelroutes us-2/r-1"]


def test_search_shows_the_matched_fields_and_the_total() -> None:
    found, total = done(search(WORLD.view, "v2 shop", kinds=["pods"], limit=1))
    assert total == 2
    assert isinstance(found[0], Hit)
    assert found[0].as_json()["matched"] == ["image reg.io/web:v2", "namespace"]
