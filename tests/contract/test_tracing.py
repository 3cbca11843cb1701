"""One trace from a user's request to the agent's report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span

from shoal.base import tracing
from shoal.testing.fleet import control_plane
from shoal.testing.watching import full_sync, watching
from shoal.wire.fleet.v1 import cluster_pb as pb

TRACE = "c" * 32
CHANGE = f"00-{TRACE}-{'d' * 16}-01"


class Tracer:
    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, dict[str, Any]]] = []  # name, trace, parent, attributes

    def start_span(self, name: str, context: Any, attributes: Any, start_time: Any) -> NonRecordingSpan:
        above = get_current_span(context).get_span_context()
        self.spans.append((name, f"{above.trace_id:032x}", f"{above.span_id:016x}", dict(attributes)))
        own = SpanContext(above.trace_id or 1, len(self.spans), is_remote=False, trace_flags=TraceFlags(1))
        return NonRecordingSpan(own)


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made: Any = Tracer()
    tracing.use(made)
    yield made
    tracing.use(None)


async def test_delivery_and_report_are_spans_in_the_trace_of_the_change(tmp_path: Path, tracer: Tracer) -> None:
    from shoal.testing.fleet import want_deployment

    async with asyncio.timeout(60):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            async with control.agent("c1", "eu") as agent, watching(agent) as watch:
                await full_sync(watch)
                async with control.database.transaction(by_user=True, trace=CHANGE) as tx:
                    key = await want_deployment(tx, "c1", "web", image="i", template={}, replicas=1)
                item = await watch.until("item")
                assert item.trace == CHANGE
                await watch.until("progress")  # the span is made once the item is out
                report = pb.DeploymentReport(key=key, applied=item.version)
                request = pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=1, reports=[report])
                mine = f"00-{TRACE}-{'e' * 16}-01"
                await agent.client.report_deployment_status(request, headers=agent.headers | {"traceparent": mine})
            spans = {name: rest for name, *rest in tracer.spans}
            assert spans["stream.send"] == [TRACE, "d" * 16, {"key": key, "place": "clu_c1/default"}]
            assert spans["control.report"] == [TRACE, "e" * 16, {"reports": 1}]
