"""Spans with W3C context: off they cost nothing and change nothing, on they follow from one another by their texts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span

from shoal.base import tracing
from shoal.errors import ConfigError

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Tracer:
    """Remembers the spans: name, parent's id, own id, attributes, start."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int, dict[str, Any], Any]] = []

    def start_span(self, name: str, context: Any, attributes: Any, start_time: Any = None) -> NonRecordingSpan:
        above = get_current_span(context).get_span_context()
        number = len(self.spans) + 1
        self.spans.append((name, above.span_id, number, dict(attributes), start_time))
        trace = above.trace_id or 0x1234
        return NonRecordingSpan(SpanContext(trace, number, is_remote=False, trace_flags=TraceFlags(1)))


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made: Any = Tracer()
    tracing.use(made)
    yield made
    tracing.use(None)


def test_off_a_span_gives_the_parent_back_and_nothing_is_current() -> None:
    with tracing.span("a", parent=PARENT) as text:
        assert (text, tracing.current(), tracing.is_on()) == (PARENT, "", False)


def test_a_span_follows_from_the_text_and_what_is_inside_follows_from_it(tracer: Tracer) -> None:
    with tracing.span("outer", parent=PARENT, since_ms=5, key="k") as text:
        assert text == f"00-{'a' * 32}-{1:016x}-01" == tracing.current()
        with tracing.span("inner") as inner:
            assert inner == f"00-{'a' * 32}-{2:016x}-01"
        assert tracing.current() == text
    assert tracing.current() == ""
    assert tracer.spans == [("outer", 0xBBBBBBBBBBBBBBBB, 1, {"key": "k"}, 5_000_000), ("inner", 1, 2, {}, None)]


def test_without_a_parent_or_with_a_wrong_one_a_trace_begins_and_errors_pass(tracer: Tracer) -> None:
    for parent in ("", "nonsense", "00-0-0-00"):
        with pytest.raises(KeyError), tracing.span("a", parent=parent) as text:
            assert text.startswith(f"00-{0x1234:032x}-")
            raise KeyError("mine")
    assert [span[1] for span in tracer.spans] == [0, 0, 0]


def test_a_wrong_setting_and_a_missing_exporter_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="SHOAL_TRACES is 'yes': use off, api, otlp"):
        tracing.configure({"SHOAL_TRACES": "yes"}, service="s")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigError, match="the exporter is not installed; pip install"):
        tracing.configure({"SHOAL_TRACES": "otlp"}, service="s")
    assert not tracing.is_on()


def test_the_process_s_own_provider_can_be_used_and_off_is_the_default() -> None:
    tracing.configure({"SHOAL_TRACES": "api"}, service="s")()
    assert tracing.is_on()
    with tracing.span("a", parent=PARENT) as text:
        assert text == PARENT, "a provider that records nothing passes the context on"
    tracing.configure({}, service="s")()
    assert not tracing.is_on()


def test_a_span_that_is_ended_by_hand_follows_from_its_parent_and_is_current_nowhere(tracer: Tracer) -> None:
    opened = tracing.begin("a", parent=PARENT, method="GET")
    assert opened.text == f"00-{'a' * 32}-{1:016x}-01" and tracing.current() == ""
    opened.end(status=200)
    assert tracer.spans == [("a", 0xBBBBBBBBBBBBBBBB, 1, {"method": "GET"}, None)]


@pytest.mark.parametrize("ratio", ["all", "1.5", "-1"])
def test_a_ratio_that_is_none_is_refused(ratio: str) -> None:
    with pytest.raises(ConfigError, match="SHOAL_TRACES_RATIO is .*: use a number from 0 to 1"):
        tracing.configure({"SHOAL_TRACES": "otlp", "SHOAL_TRACES_RATIO": ratio}, service="s")


def test_processes_that_are_started_elsewhere_export_to_the_same_place_and_get_no_credentials() -> None:
    given = {
        "SHOAL_TRACES": "otlp", "SHOAL_TRACES_RATIO": "0.1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer x", "HOME": "/root",
    }  # fmt: skip
    passed = {name: given[name] for name in ("SHOAL_TRACES", "SHOAL_TRACES_RATIO", "OTEL_EXPORTER_OTLP_ENDPOINT")}
    assert tracing.environment(given) == passed
    assert tracing.environment({**given, "SHOAL_TRACES": "off"}) == {}
