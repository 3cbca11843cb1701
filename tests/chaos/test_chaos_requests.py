"""Longer runs of two suites of tests/cluster: broken objects of every kind, and all requests that OpenAPI describes."""

from __future__ import annotations

import pytest
from cluster_attack import attack_custom_kind, attack_kind
from cluster_objects import resources
from cluster_schema import DOCUMENTS, check_document
from tests.chaos.rounds import seeds

from shoal.kube.resources import Resource

pytestmark = pytest.mark.timeout(900)
SEEDS = seeds(101)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("resource", resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
async def test_every_kind_withstands_many_broken_requests(resource: Resource, seed: int) -> None:
    await attack_kind(resource, rounds=150, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
async def test_custom_resources_withstand_many_broken_requests(seed: int) -> None:
    await attack_custom_kind(rounds=600, seed=seed)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_operation_of_every_document_is_answered_properly(document: str) -> None:
    check_document(document, examples=8, every=1)
