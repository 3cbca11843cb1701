"""The number of connections that the limit of open files allows."""

from __future__ import annotations

import resource

import pytest

from shoal.base.front_limits import connections_within_files


@pytest.mark.parametrize(("files", "most"), [((1024, 1024), 704), ((1024, 4096), 3776), ((1024, 1 << 20), 16384)])
def test_there_are_no_more_connections_than_the_process_may_have_files(
    monkeypatch: pytest.MonkeyPatch, files: tuple[int, int], most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: files)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    assert connections_within_files(16_384, 320) == most
