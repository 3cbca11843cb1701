"""When a gateway that cannot reach its API server closes the connections of clients."""

from __future__ import annotations

from typing import cast

import pytest

from shoal.base.clock import FakeClock
from shoal.sentinel.admin import Admin
from shoal.sentinel.cut_off import CutOff, closes_connections


class FakeAdmin:
    def __init__(self) -> None:
        self.posted: list[str] = []
        self.answers = True

    async def post(self, target: str) -> bool:
        self.posted.append(target.removeprefix("/healthcheck/"))
        return self.answers


@pytest.mark.parametrize(
    ("silent_s", "replicas", "closes"),
    [(29.9, 2, False), (30.0, 2, True), (74.9, 2, True), (75.0, 2, False), (40.0, 1, False), (40.0, 0, False)],
)
def test_it_closes_while_krane_takes_it_out_if_others_serve(silent_s: float, replicas: int, closes: bool) -> None:
    assert closes_connections(silent_s, replicas) is closes


async def test_envoy_is_told_again_and_again_and_once_that_it_is_over() -> None:
    admin, silent = FakeAdmin(), [0.0]
    cut_off = CutOff(cast(Admin, admin), clock=FakeClock(), silent_s=lambda: silent[0], replicas=lambda: 2)
    for silent_s in (10.0, 31.0, 60.0):
        silent[0] = silent_s
        await cut_off.look()
    assert admin.posted == ["fail", "fail"]
    silent[0], admin.answers = 1.0, False  # it is heard again, and Envoy does not answer yet
    await cut_off.look()
    admin.answers = True
    await cut_off.look()
    await cut_off.look()
    assert admin.posted[2:] == ["ok", "ok"]
