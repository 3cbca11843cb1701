"""The HTTP connection manager: what applies to every request before its route is found, and the access log."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, protocol_pb2, substitution_format_string_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.stats.v3 import stats_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from google.protobuf import struct_pb2, wrappers_pb2

from shoal.sentinel.headers import OWN_HEADERS
from shoal.sentinel.model import Settings
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.replies import local_replies
from shoal.sentinel.translate.tracing import tracing

_Hcm = hcm_pb2.HttpConnectionManager
_HCM = "envoy.filters.network.http_connection_manager"
_KEEP = _Hcm.PathWithEscapedSlashesAction.KEEP_UNCHANGED
_REDIRECT = _Hcm.PathWithEscapedSlashesAction.UNESCAPE_AND_REDIRECT
_SLOW_MS = 10_000
_IDLE_S = 3600.0
_FLUSH_S = 300.0  # for a client that does not read its answer
_WINDOW_BYTES, _CONNECTION_WINDOW_BYTES = 1 << 18, 1 << 20
_STREAMS = 1000
_HISTOGRAMS = 20_000  # of several kilobytes each; an instance may answer with any code
LOG_FIELDS = {
    "time": "%START_TIME%",
    "requestId": "%REQ(X-REQUEST-ID)%",
    "trace": "%REQ(TRACEPARENT)%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%PATH(NQ:PATH)%",
    "protocol": "%PROTOCOL%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "error": "%RESP(X-SHOAL-ERROR)%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER%",
    "instance": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "bytesIn": "%BYTES_RECEIVED%",
    "bytesOut": "%BYTES_SENT%",
    "duration": "%DURATION%",
    "upstreamDuration": "%RESPONSE_DURATION%",
    "userAgent": "%REQ(USER-AGENT)%",
}
"""Queries and headers with credentials are not logged, so nothing needs redaction."""


def connection_manager(
    name: str, routes: str, filters: Iterable[hcm_pb2.HttpFilter], settings: Settings, *, entry: bool = False
) -> listener_components_pb2.Filter:
    """``entry``: for peers, which have already checked the request; their headers are trusted."""
    made = _Hcm(
        codec_type=_Hcm.CodecType.AUTO,
        stat_prefix=name,
        rds=hcm_pb2.Rds(config_source=envoy.ads(), route_config_name=routes),
        http_filters=[*filters, _router()],
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=envoy.duration(_IDLE_S),
        ),
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(allow_chunked_length=False),
        http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
            max_concurrent_streams=wrappers_pb2.UInt32Value(value=_STREAMS),
            initial_stream_window_size=wrappers_pb2.UInt32Value(value=_WINDOW_BYTES),
            initial_connection_window_size=wrappers_pb2.UInt32Value(value=_CONNECTION_WINDOW_BYTES),
            allow_connect=True,
        ),
        max_request_headers_kb=wrappers_pb2.UInt32Value(value=settings.max_header_kib),
        server_header_transformation=_Hcm.ServerHeaderTransformation.PASS_THROUGH,
        # Routes set their own, so this one only applies until the headers are complete and saves another timer.
        stream_idle_timeout=envoy.duration(settings.header_timeout_s),
        stream_flush_timeout=envoy.duration(_FLUSH_S),
        drain_timeout=envoy.duration(settings.drain_s),
        delayed_close_timeout=envoy.duration(1.0),
        access_log=[_counted(), *_access_logs(settings)],
        use_remote_address=wrappers_pb2.BoolValue(value=not entry),
        xff_num_trusted_hops=0 if entry else settings.trusted_hops,
        # Envoy would write the machine's own address in place of a loopback one, so routes append the client's address.
        skip_xff_append=True,
        generate_request_id=wrappers_pb2.BoolValue(value=True),
        preserve_external_request_id=entry or settings.trusted_hops > 0,
        always_set_request_id_in_response=True,
        upgrade_configs=[_Hcm.UpgradeConfig(upgrade_type="websocket")],
        normalize_path=wrappers_pb2.BoolValue(value=True),
        merge_slashes=True,
        path_with_escaped_slashes_action=_KEEP if entry or settings.keep_escaped_slashes else _REDIRECT,
        strip_trailing_host_dot=True,
        local_reply_config=local_replies(entry=entry),
    )
    if not entry:
        made.early_header_mutation_extensions.append(_strip())
    traced = tracing(settings)
    if traced is not None:
        made.tracing.CopyFrom(traced)
    return listener_components_pb2.Filter(name=_HCM, typed_config=envoy.packed(made))


def _router() -> hcm_pb2.HttpFilter:
    # The router's own statistics cost twice as much as those that are needed: see ``_counted``.
    made = router_pb2.Router(
        suppress_envoy_headers=True, dynamic_stats=wrappers_pb2.BoolValue(value=False), upstream_log=[_counted_copies()]
    )
    return hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=envoy.packed(made))


def _strip() -> extension_pb2.TypedExtensionConfig:
    """Remove headers that only a gateway may set before anything reads them."""
    own = [
        mutation_rules_pb2.HeaderMutation(
            remove_on_match=mutation_rules_pb2.HeaderMutation.RemoveOnMatch(
                key_matcher=string_pb2.StringMatcher(prefix=prefix)
            )
        )
        for prefix in OWN_HEADERS
    ]
    return envoy.extension(
        "envoy.http.early_header_mutation.header_mutation", header_mutation_pb2.HeaderMutation(mutations=own)
    )


def _counted() -> accesslog_pb2.AccessLog:
    """One histogram of times for each cluster, code and number of tries, which ``shoal.sentinel.stats`` reads."""
    return _times("ms", "%UPSTREAM_CLUSTER%.%RESPONSE_CODE%.%UPSTREAM_REQUEST_ATTEMPT_COUNT%")


def _counted_copies() -> accesslog_pb2.AccessLog:
    """The same of copies, which only routers see; Envoy marks their host. What a copy is answered by reaches no one, so
    it is tried once."""
    made = _times("copies", "%UPSTREAM_CLUSTER%.%RESPONSE_CODE%.1")
    marked = string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=r".*-shadow(:\d+)?"))
    host = route_components_pb2.HeaderMatcher(name=":authority", string_match=marked)
    made.filter.CopyFrom(accesslog_pb2.AccessLogFilter(header_filter=accesslog_pb2.HeaderFilter(header=host)))
    return made


def _times(name: str, of: str) -> accesslog_pb2.AccessLog:
    stat = stats_pb2.Config.Stat(name=name)
    stat.tags.add(name="of", value_format=of)
    times = stats_pb2.Config.Histogram(
        stat=stat, unit=stats_pb2.Config.Histogram.Unit.Milliseconds, value_format="%DURATION%"
    )
    wanted = stats_pb2.Config(histograms=[times])
    packed = envoy.packed_as(wanted.DESCRIPTOR.full_name, wanted.SerializeToString(deterministic=True) + _scope())
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.stats", typed_config=packed)


def _scope() -> bytes:
    """The field ``stats_scope`` of the above, which xds-protos does not know yet: prefix, limit, and a name by which
    old and new listeners share their counts."""
    name, limit = envoy.REQUESTS.encode(), wrappers_pb2.UInt32Value(value=_HISTOGRAMS).SerializeToString()
    scope = b"".join(
        b"%c%c%b" % (number << 3 | 2, len(part), part) for number, part in ((3, limit), (5, name), (6, name))
    )
    return b"%c%c%b" % (6 << 3 | 2, len(scope), scope)


def _access_logs(settings: Settings) -> list[accesslog_pb2.AccessLog]:
    """All requests that failed or were slow, and a sample of the others."""
    if not settings.log_path:
        return []
    fields = struct_pb2.Struct()
    fields.update({**LOG_FIELDS, "region": envoy.literal(settings.region), "gateway": envoy.literal(settings.name)})
    form = substitution_format_string_pb2.SubstitutionFormatString(json_format=fields)
    log = file_pb2.FileAccessLog(path=settings.log_path, log_format=form)
    bad = accesslog_pb2.AccessLogFilter(
        or_filter=accesslog_pb2.OrFilter(
            filters=[
                _compared("status_code_filter", 500),
                _compared("duration_filter", _SLOW_MS),
                accesslog_pb2.AccessLogFilter(
                    runtime_filter=accesslog_pb2.RuntimeFilter(
                        runtime_key="shoal.log",
                        percent_sampled=envoy.fraction(settings.log_percent).default_value,
                        use_independent_randomness=True,
                    )
                ),
            ]
        )
    )
    return [accesslog_pb2.AccessLog(name="envoy.access_loggers.file", filter=bad, typed_config=envoy.packed(log))]


def _compared(kind: str, value: int) -> accesslog_pb2.AccessLogFilter:
    comparison = accesslog_pb2.ComparisonFilter(
        op=accesslog_pb2.ComparisonFilter.Op.GE,
        value=base_pb2.RuntimeUInt32(default_value=value, runtime_key=f"shoal.log.{kind}"),
    )
    if kind == "status_code_filter":
        return accesslog_pb2.AccessLogFilter(status_code_filter=accesslog_pb2.StatusCodeFilter(comparison=comparison))
    return accesslog_pb2.AccessLogFilter(duration_filter=accesslog_pb2.DurationFilter(comparison=comparison))
