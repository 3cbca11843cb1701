"""When probes are asked, with a container that succeeds from a certain time on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from shoal.base.clock import FakeClock
from shoal.node.probes.handlers import Handlers
from shoal.node.probes.model import ProbeAnswer, ProbeResult
from shoal.node.probes.service import Prober
from shoal.node.runtime.model import Container, ContainerPhase


class Starting:
    """Answers probes from a time on, and notes when it was asked."""

    def __init__(self, clock: FakeClock, after_s: float) -> None:
        self._clock = clock
        self._from_s = clock.monotonic() + after_s
        self._began_s = clock.monotonic()
        self.asked: list[float] = []

    async def ask(self, probe: Any, target: Any) -> ProbeAnswer:
        now = self._clock.monotonic()
        self.asked.append(round(now - self._began_s, 1))
        return ProbeAnswer(ProbeResult.SUCCESS if now >= self._from_s else ProbeResult.FAILURE, "no answer")


async def asked_until(clock: FakeClock, after_s: float, probes: dict[str, Any]) -> tuple[Starting, Prober, list[str]]:
    container = Container(
        id="c", sandbox_id="s", pod_uid="u", name="main", attempt=0, phase=ContainerPhase.RUNNING, image_id="i",
        image_reference="i", created_at=clock.wall_s(), started_at=clock.wall_s(),
    )  # fmt: skip
    starting, warned = Starting(clock, after_s), cast("list[str]", [])
    prober = Prober(
        cast(Handlers, starting), clock=clock, random=lambda: 0.5, changed=lambda _: None,
        warn=lambda pod, name, reason, text: warned.append(reason),
    )  # fmt: skip
    prober.follow({"metadata": {"name": "p"}}, {"name": "main", **probes}, container, "127.0.0.1")
    for _ in range(250):
        await clock.advance(0.1)
        await asyncio.sleep(0)
    return starting, prober, warned


READY = {"httpGet": {"port": 80}, "periodSeconds": 10, "failureThreshold": 3}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_container_that_starts_in_half_a_second_is_ready_long_before_its_second_probe(clock: FakeClock) -> None:
    starting, prober, warned = await asked_until(clock, 0.5, {"readinessProbe": READY})
    assert prober.of_pod("u")["c"].ready
    assert [at for at in starting.asked if at < 10] == [0.0, 0.2, 0.6, 0.6]  # the last one is the one that counts
    assert [round(at - 0.6) for at in starting.asked[4:]] == [10, 20]
    assert warned == ["Unhealthy"]
    await prober.close()


async def test_extra_probes_are_no_failures(clock: FakeClock) -> None:
    starting, prober, warned = await asked_until(clock, 12, {"startupProbe": READY})
    assert not prober.of_pod("u")["c"].failed
    assert prober.of_pod("u")["c"].started
    assert warned == ["Unhealthy"] * 2  # at 0 and 10 s
    await prober.close()


async def test_a_container_that_never_starts_fails_when_its_probes_say_so(clock: FakeClock) -> None:
    starting, prober, warned = await asked_until(clock, 100, {"startupProbe": READY})
    assert prober.of_pod("u")["c"].failed == "startup"
    assert len(warned) == 3
    assert starting.asked[-1] == pytest.approx(20, abs=0.2)
    await prober.close()


async def test_liveness_probes_are_asked_as_they_say(clock: FakeClock) -> None:
    starting, prober, _ = await asked_until(clock, 100, {"livenessProbe": READY})
    assert starting.asked == pytest.approx([0, 10, 20], abs=0.2)
    await prober.close()
