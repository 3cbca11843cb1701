"""How many connections the limit of open files allows."""

from __future__ import annotations

import resource

import pytest

from shoal.base.front_limits import connections_within_files


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "raised_to"),
    [
        (1024, 4096, 1000, 1100),  # raised as far as needed
        (1024, 800, 700, 800),  # not above what the process may have
        (1024, resource.RLIM_INFINITY, 1000, 1100),
        (50_000, 50_000, 1000, None),  # enough
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1000, None),
        (64, 64, 1, None),
    ],
)
def test_the_limit_is_raised_and_the_connections_fit_into_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: int, raised_to: int | None
) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: set_to.append(limits[0]))
    assert connections_within_files(1000, own_files=100) == expected
    assert [each for each in set_to if each != soft] == ([] if raised_to is None else [raised_to])
