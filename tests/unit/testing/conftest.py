"""What these tests plant for the checkers of `shoal.testing` is no result of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.testing.tally import TALLY


@pytest.fixture(autouse=True)
def planted_violations_do_not_count() -> Iterator[None]:
    before = TALLY.as_json()
    yield
    TALLY.checked, TALLY.violations = before["checked"], before["violations"]
