"""A collector of traces for tests: takes OTLP over HTTP, as JSON (Shoal's own processes) and as protobuf (Envoy),
decoded with the published types."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from io import BufferedIOBase
from typing import Any, NamedTuple

import orjson


class CollectedSpan(NamedTuple):
    trace: str  # ids in hexadecimal
    id: str
    parent: str  # empty: the first of its trace
    service: str
    name: str


@dataclass
class Collector:
    url: str  # for OTEL_EXPORTER_OTLP_ENDPOINT
    spans: set[CollectedSpan] = field(default_factory=set)
    formats: set[str] = field(default_factory=set)  # media types that were received

    def environment(self, **more: str) -> dict[str, str]:
        """The variables with which a process sends its spans here, without delay."""
        return {
            "SHOAL_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100", **more,
        }  # fmt: skip

    def names(self, trace: str = "") -> set[tuple[str, str]]:
        """Service and name of the spans, of one trace or of all."""
        return {(span.service, span.name) for span in set(self.spans) if trace in ("", span.trace)}

    def take(self, media_type: str, body: bytes) -> None:
        self.formats.add(media_type)
        self.spans |= _of_json(body) if media_type == "application/json" else _of_protobuf(body)


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = _body(self.rfile, self.headers.get("content-length"))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            media_type = self.headers["content-type"].partition(";")[0]
            known = self.path == "/v1/traces" and media_type in ("application/json", "application/x-protobuf")
            if known:
                found.take(media_type, body)
            self.send_response(200 if known else 415)
            self.send_header("content-type", media_type)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, name="collector", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _body(stream: BufferedIOBase, length: str | None) -> bytes:
    """A body of known length, or in chunks."""
    if length is not None:
        return stream.read(int(length))
    found = b""
    while size := int(stream.readline().partition(b";")[0], 16):
        found += stream.read(size)
        stream.readline()
    stream.readline()
    return found


def _of_json(body: bytes) -> set[CollectedSpan]:
    found: set[CollectedSpan] = set()
    for resource in orjson.loads(body)["resourceSpans"]:
        names = {each["key"]: each["value"].get("stringValue") for each in resource["resource"]["attributes"]}
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                parent = span.get("parentSpanId") or ""
                found.add(CollectedSpan(span["traceId"], span["spanId"], parent, names["service.name"], span["name"]))
    return found


def _of_protobuf(body: bytes) -> set[CollectedSpan]:
    types: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = types.ExportTraceServiceRequest.FromString(body)
    found: set[CollectedSpan] = set()
    for resource in request.resource_spans:
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        # the same field of the message; the types that come with xds-protos have its older name
        older = "instrumentation_library_spans"
        for scope in getattr(resource, older if hasattr(resource, older) else "scope_spans"):
            for span in scope.spans:
                found.add(
                    CollectedSpan(
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        names["service.name"],
                        span.name,
                    )  # fmt: skip
                )
    return found
