"""The whole contract of runtimes, and every test of sandboxes, as a user without rights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.testing.ordinary_user import run_tests

ROOT = Path(__file__).parents[2]


@pytest.mark.chaos
@pytest.mark.skipif(os.geteuid() != 0, reason="these tests are run by an ordinary user already")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", ["tests/contract/test_node_runtime.py", "tests/unit/node/runtime/sandbox"])
def test_the_contract_holds_in_sandboxes_of_a_user_without_rights(part: str) -> None:
    assert " passed" in run_tests(ROOT, part, "-k", "sandbox and not docker", timeout_s=380)
