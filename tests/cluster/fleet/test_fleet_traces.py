"""One trace from a request to what an agent reports, exported by both processes to a collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest

from shoal.testing.fleets import LocalFleet, app, app_path
from shoal.testing.waiting import eventually_blocking

pytestmark = [pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
EXPECTED = {
    ("shoal-control", "api.request"), ("shoal-control", "stream.send"), ("shoal-control", "control.report"),
    ("shoal-krane", "krane.apply"), ("shoal-krane", "krane.report"),
}  # fmt: skip
Found = set[tuple[str, str, str]]  # trace, service, span


@contextmanager
def collector() -> Iterator[tuple[str, Found]]:
    """A double of an OTLP/HTTP collector: takes traces as JSON and remembers them."""
    found: Found = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces" and self.headers["content-type"] == "application/json":
                for resource in orjson.loads(body)["resourceSpans"]:
                    names = {
                        each["key"]: each["value"].get("stringValue") for each in resource["resource"]["attributes"]
                    }
                    for scope in resource["scopeSpans"]:
                        found.update((span["traceId"], names["service.name"], span["name"]) for span in scope["spans"])
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="collector", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_request_s_trace_reaches_the_collector_from_the_control_plane_and_from_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as (url, found):
        monkeypatch.setenv("SHOAL_TRACES", "otlp")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with LocalFleet(tmp_path) as fleet:
            fleet.start({"eu-1": "eu"})
            fleet.start_agents([("eu-1", "default")])
            document = app("web", {"eu": 1})
            fleet.api.request("PUT", app_path("web"), document, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
            expected = {(TRACE, *each) for each in EXPECTED}
            eventually_blocking(lambda: set(found), until=expected.issubset, timeout_s=60, explain=fleet.logs)
