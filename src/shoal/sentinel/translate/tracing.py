"""Envoy's own tracer: spans of a part of the requests, sent with OTLP over HTTP to a collector; W3C context in and out.

The percentage holds for all requests: one that comes with a ``traceparent`` keeps its trace id, but a client cannot
have more recorded by setting the sampled flag.
"""

from __future__ import annotations

from envoy.config.core.v3 import http_service_pb2, http_uri_pb2
from envoy.config.trace.v3 import http_tracer_pb2, opentelemetry_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.tracing.v3 import custom_tag_pb2
from envoy.type.v3 import percent_pb2

from shoal.sentinel.model import Settings
from shoal.sentinel.translate import envoy

SERVICE = "shoal-sentinel"
_EXPORT_S = 5.0


def tracing(settings: Settings) -> hcm_pb2.HttpConnectionManager.Tracing | None:
    """None unless the settings name a collector."""
    if not settings.traces_url:
        return None
    collector = opentelemetry_pb2.OpenTelemetryConfig(
        service_name=SERVICE,
        http_service=http_service_pb2.HttpService(
            http_uri=http_uri_pb2.HttpUri(
                uri=f"{settings.traces_url}/v1/traces", cluster=envoy.TRACES, timeout=envoy.duration(_EXPORT_S)
            )
        ),
    )
    tags = {"shoal.sentinel": settings.name, "shoal.region": settings.region}
    return hcm_pb2.HttpConnectionManager.Tracing(
        provider=http_tracer_pb2.Tracing.Http(name="envoy.tracers.opentelemetry", typed_config=envoy.packed(collector)),
        random_sampling=percent_pb2.Percent(value=settings.traces_percent),
        custom_tags=[
            custom_tag_pb2.CustomTag(tag=name, literal=custom_tag_pb2.CustomTag.Literal(value=value))
            for name, value in tags.items()
            if value
        ],
    )
