"""Sandboxes hold for a user without rights as they do for root: the same tests, run as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.testing.ordinary_user import run_tests

ROOT = Path(__file__).parents[2]
TESTS = ("tests/contract/test_node_runtime.py", "tests/unit/node/runtime/sandbox")
CHOSEN = "attacks or outlive or one_user or (sandbox and (mounts or exec_passes or port_of or restart))"


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests are run by an ordinary user already")
def test_sandboxes_of_a_user_without_rights_work_and_hold_against_attacks() -> None:
    said = run_tests(ROOT, *TESTS, "-k", f"({CHOSEN}) and not docker and not simulated", timeout_s=100)
    assert "test_isolation_attacks" in said or " passed" in said
