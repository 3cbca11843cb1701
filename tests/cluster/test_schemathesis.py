"""The published OpenAPI documents, taken at their word: every request they describe gets a proper answer."""

from __future__ import annotations

import pytest
from cluster_schema import DOCUMENTS, check_document


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_the_document_describes_is_answered_properly(document: str) -> None:
    check_document(document, examples=3, every=6)
