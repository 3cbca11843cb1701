from __future__ import annotations

from functools import partial

import pytest
from tests.unit.apiserver.http2.http2_peer import Listen, http2_server

from shoal.base.clock import FakeClock


@pytest.fixture
async def clock() -> FakeClock:
    found = FakeClock()
    await found.advance(1.0)  # as on a machine: an instant is never 0
    return found


@pytest.fixture
def listening(clock: FakeClock) -> Listen:
    return partial(http2_server, clock)
