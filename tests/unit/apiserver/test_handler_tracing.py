"""Requests are spans that continue the caller's trace; while tracing is off the handler is the plain one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shoal.base import tracing
from shoal.base.clock import RealClock
from shoal.client import Client, builtin
from shoal.errors import NotFound
from shoal.testing.servers import local_server

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracing.use(provider.get_tracer("test"))
    yield memory
    tracing.use(None)


def requests(memory: InMemorySpanExporter, path: str) -> list[ReadableSpan]:
    spans = memory.get_finished_spans()
    return [span for span in spans if span.name == "apiserver.request" and (span.attributes or {})["path"] == path]


async def test_a_request_continues_the_trace_that_it_comes_with(exported: InMemorySpanExporter) -> None:
    path = "/api/v1/namespaces/default/configmaps/none"
    async with local_server() as server:
        answer = await server.call("GET", path, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        assert answer.status == 404
        (span,) = requests(exported, path)
        assert span.parent is not None and f"{span.parent.span_id:016x}" == PARENT
        assert f"{span.context.trace_id:032x}" == TRACE
        assert dict(span.attributes or {}) == {"method": "GET", "path": path, "status": 404}


async def test_the_client_passes_on_the_span_that_it_is_called_in(exported: InMemorySpanExporter) -> None:
    async with local_server() as server:
        client = Client(server.transport, clock=RealClock(), field_manager="test")  # type: ignore[arg-type]
        with tracing.span("reconcile", parent=f"00-{TRACE}-{PARENT}-01") as text:
            with pytest.raises(NotFound):
                await client.of(builtin("configmaps")).get("none", "default")
        (span,) = requests(exported, "/api/v1/namespaces/default/configmaps/none")
        assert span.parent is not None and f"{span.parent.span_id:016x}" == text.split("-")[2]


async def test_while_tracing_is_off_the_handler_is_the_plain_one() -> None:
    async with local_server() as server:
        assert "handle" not in vars(server.server.handler)
