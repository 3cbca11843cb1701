"""Tracing spans with W3C trace context, sent to the process's OpenTelemetry.

Off unless ``SHOAL_TRACES`` says otherwise: then nothing is imported and a span costs one comparison. The context
is passed as text (``traceparent``), in rows and messages, so that a span in one process follows from one in another.

    with span("apply", parent=item.trace, key=item.key) as trace:
        ...                                  # pass ``trace`` on from here

Which traces are recorded is decided where they begin: those that come with a context follow its sampled flag, of the
others the part ``SHOAL_TRACES_RATIO``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

VARIABLE = "SHOAL_TRACES"
RATIO = "SHOAL_TRACES_RATIO"
KINDS = ("off", "api", "otlp")

_PASSED_ON = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_BSP_SCHEDULE_DELAY",
)  # fmt: skip

_tracer: Tracer | None = None
_current: ContextVar[str] = ContextVar("shoal_traceparent", default="")


def configure(environ: Mapping[str, str], *, service: str) -> Callable[[], None]:
    """Set up tracing from ``SHOAL_TRACES``. Call the returned function at exit to send the remaining spans.

    ``otlp`` exports as the variables of OpenTelemetry say (``OTEL_EXPORTER_OTLP_ENDPOINT``…) and needs its packages;
    ``api`` uses the provider that the process has set up by itself, with its sampling."""
    kind = environ.get(VARIABLE, "") or "off"
    if kind not in KINDS:
        raise ConfigError(f"{VARIABLE} is {kind!r}: use {', '.join(KINDS)}")
    ratio = _ratio(environ)
    if kind == "off":
        use(None)
        return lambda: None
    finish = _export(service, ratio) if kind == "otlp" else lambda: None
    from opentelemetry import trace

    use(trace.get_tracer("shoal"))
    return finish


def use(tracer: Tracer | None) -> None:
    """Spans go to this tracer from now on; None turns them off."""
    global _tracer
    _tracer = tracer


def is_on() -> bool:
    return _tracer is not None


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a process that this one starts elsewhere exports its spans to the same place; empty
    unless they are exported. Headers are left out, since they may hold a key."""
    if environ.get(VARIABLE, "") != "otlp":
        return {}
    return {name: environ[name] for name in (VARIABLE, RATIO, *_PASSED_ON) if environ.get(name)}


def current() -> str:
    """The ``traceparent`` of the span that this task is in; empty outside of one, and while tracing is off."""
    return _current.get() if _tracer is not None else ""


@contextmanager
def span(name: str, *, parent: str = "", since_ms: int = 0, **attributes: str | int) -> Iterator[str]:
    """A span that follows from ``parent``, else from the one that this task is in. An error inside is recorded. Yields
    the ``traceparent`` to pass on: the parent's own while tracing is off. ``since_ms``: it has begun
    then, on the wall clock."""
    if _tracer is None:
        yield parent
        return
    from opentelemetry.trace import use_span

    start_ns = since_ms * 1_000_000 if since_ms else None
    follows = _context(parent or _current.get())
    made = _tracer.start_span(name, context=follows, attributes=attributes, start_time=start_ns)
    text = _text(made.get_span_context()) or parent
    token = _current.set(text)
    try:
        with use_span(made, end_on_exit=True):
            yield text
    finally:
        _current.reset(token)


class OpenSpan:
    """A span that is ended by hand. It is current nowhere: ``text`` is the ``traceparent`` to pass on."""

    __slots__ = ("_span", "text")

    def __init__(self, made: Span) -> None:
        self._span = made
        self.text = _text(made.get_span_context())

    def end(self, **attributes: str | int) -> None:
        self._span.set_attributes(attributes)
        self._span.end()


def begin(name: str, *, parent: str = "", **attributes: str | int) -> OpenSpan:
    """A span that follows from ``parent``, for code that runs in no task of its own. Only while tracing is on."""
    assert _tracer is not None
    return OpenSpan(_tracer.start_span(name, context=_context(parent), attributes=attributes))


def _ratio(environ: Mapping[str, str]) -> float:
    text = environ.get(RATIO, "") or "1"
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ConfigError(f"{RATIO} is {text!r}: use a number from 0 to 1")
    return found


def _context(parent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not parent:
        return Context()
    return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())


def _text(context: Any) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _export(service: str, ratio: float) -> Callable[[], None]:
    sdk_names = ("sdk.resources", "sdk.trace", "sdk.trace.export", "sdk.trace.sampling")
    names = (*sdk_names, "exporter.otlp.json.http.trace_exporter")
    try:
        resources, sdk, export, sampling, otlp = (import_module(f"opentelemetry.{name}") for name in names)
    except ImportError:
        raise ConfigError(
            f"{VARIABLE} is 'otlp': the exporter is not installed; pip install 'shoal-fleet[traces]'"
        ) from None
    from opentelemetry import trace

    sampler = sampling.ParentBased(sampling.TraceIdRatioBased(ratio))
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}), sampler=sampler)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    finish: Callable[[], None] = provider.shutdown
    return finish
