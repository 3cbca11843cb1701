"""Lets the tests here import the modules they share, and gives them keys."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from secrets_world import key_text

from shoal.testing.vault import VaultDouble


@pytest.fixture
def vault() -> Iterator[VaultDouble]:
    with VaultDouble() as double:
        double.make_key("shoal")
        yield double


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(key_text(1) + "\n")
    return path
