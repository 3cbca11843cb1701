"""The agent's part of a trace and of a request's id: applying follows from the change, the report of it too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from krane_doubles import FakeCluster, FakePlane, Rig
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span

from shoal.base import logs, tracing
from shoal.base.clock import FakeClock
from shoal.errors import Conflict
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

CHANGE = f"00-{'c' * 32}-{'d' * 16}-01"


class Tracer:
    def __init__(self) -> None:
        self.spans: list[tuple[str, str]] = []  # name, parent

    def start_span(self, name: str, context: Any, attributes: Any, start_time: Any) -> NonRecordingSpan:
        above = get_current_span(context).get_span_context()
        self.spans.append((name, f"{above.span_id:016x}"))
        own = SpanContext(above.trace_id or 1, len(self.spans), is_remote=False, trace_flags=TraceFlags(1))
        return NonRecordingSpan(own)


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made: Any = Tracer()
    tracing.use(made)
    yield made
    tracing.use(None)


class Listening(FakePlane):
    """Remembers in which span it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.ids: list[str] = []
        self.times: list[pb.HopTimes] = []

    async def report(self, stream: StreamKind, request: Any) -> pb.ReportResponse:
        self.said.append(tracing.current())
        self.ids.append(logs.bound("correlation"))
        self.times += request.times
        return await super().report(stream, request)


async def test_applying_and_reporting_follow_from_the_change(tmp_path: Path, tracer: Tracer) -> None:
    plane = Listening()
    plane.desired.want("deployment/a").trace = CHANGE
    async with Rig(tmp_path, plane=plane) as rig:
        await rig.settle()
        assert rig.running() == {"deployment/a": 1}
    assert ("krane.apply", "d" * 16) in tracer.spans and ("krane.report", "d" * 16) in tracer.spans
    assert plane.said and all(text.startswith(f"00-{'c' * 32}-") for text in plane.said)


async def test_log_lines_and_reports_carry_the_id_of_the_request(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    plane, cluster = Listening(), FakeCluster()
    plane.desired.want("deployment/a").correlation = "deploy-7"
    cluster.failing["deployment/a"] = Conflict("busy")
    try:
        async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
            await rig.settle()
            cluster.failing.clear()
            await rig.clock.advance(300)
            assert rig.running() == {"deployment/a": 1}
    finally:
        logs.configure()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [line["message"] for line in lines if line.get("correlation") == "deploy-7"]
    assert told == ["working on a key failed", "change applied"]
    assert plane.ids and set(plane.ids) == {"deploy-7"}


async def test_a_report_says_when_a_change_of_a_request_was_received_and_applied(tmp_path: Path) -> None:
    plane, cluster, clock = Listening(), FakeCluster(), FakeClock()
    plane.desired.want("deployment/a").correlation = "deploy-7"
    plane.desired.want("deployment/b")
    cluster.failing["deployment/a"] = Conflict("busy")
    async with Rig(tmp_path, plane=plane, cluster=cluster, clock=clock) as rig:
        received_ms = round(clock.wall_s() * 1000)
        await rig.settle()
        cluster.failing.clear()
        await clock.advance(300)
    assert {(each.key, each.received_ms) for each in plane.times} == {("deployment/a", received_ms)}
    assert all(received_ms < each.applied_ms <= received_ms + 300_000 for each in plane.times)
