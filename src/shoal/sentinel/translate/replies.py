"""Answers that Envoy makes itself: JSON with a stable code, and a header with that code.

The first mapper that matches is used. Flags are more exact than status codes, so they come first. Answers that no
mapper matches keep their body.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import struct_pb2

from shoal.sentinel.headers import ERROR_HEADER
from shoal.sentinel.translate import envoy

REQUEST_ID = "%REQ(X-REQUEST-ID)%"


@dataclass(frozen=True, slots=True)
class LocalReply:
    """An answer of the gateway. ``status`` 0: Envoy's status."""

    code: str
    message: str
    status: int = 0


NO_ROUTE = LocalReply("no_route", "no route matches the host and path of the request", 404)
NO_DEPLOYMENT = LocalReply("no_deployment", "this host has no such deployment", 404)
NO_INSTANCE = LocalReply("no_instance", "no instance is available", 503)
LATE_HEADERS = LocalReply("request_timeout", "the headers of the request did not arrive in time", 408)
BY_FLAG: tuple[tuple[tuple[str, ...], LocalReply], ...] = (
    (("NR",), NO_ROUTE),
    (("RL",), LocalReply("rate_limited", "too many requests", 429)),
    (("RLSE",), LocalReply("policy_error", "a rate limit could not be checked", 503)),
    (("UT",), LocalReply("upstream_timeout", "the instance did not answer in time", 504)),
    (("SI",), LocalReply("idle_timeout", "nothing was sent for too long", 504)),
    (("UMSDR", "DT"), LocalReply("upstream_timeout", "the request took too long", 504)),
    (("UO", "OM"), LocalReply("overloaded", "too many concurrent requests", 503)),
    (("UF",), LocalReply("upstream_refused", "the instance could not be reached", 502)),
    (("UC", "UR", "LR"), LocalReply("upstream_reset", "the instance closed the connection before it answered", 502)),
    (("UPE",), LocalReply("upstream_error", "the instance answered with something that is not HTTP", 502)),
    (("UH",), NO_INSTANCE),
    (("DPE", "IH"), LocalReply("bad_request", "the request is not valid HTTP", 0)),
)
BY_DENIAL: tuple[tuple[str, LocalReply], ...] = (
    ("unauthorized", LocalReply("unauthorized", "a valid credential is required", 401)),
    ("missing_key", LocalReply("missing_key", "an API key is required", 401)),
    ("invalid_key", LocalReply("invalid_key", "the key is not known or has expired", 401)),
    ("insufficient_permissions", LocalReply("insufficient_permissions", "the key is not permitted to do this", 403)),
    ("forbidden", LocalReply("forbidden", "the credential does not allow this", 403)),
    ("firewall", LocalReply("blocked", "a firewall policy blocks the request", 403)),
    ("unidentified", LocalReply("unidentified", "the request lacks the identifier that its rate limit counts by", 429)),
    ("policy_error", LocalReply("policy_error", "a rule of this route could not be applied", 503)),
)
"""By the first part of the denying rule's name, after its number."""
BY_STATUS: tuple[tuple[int, LocalReply], ...] = (
    (400, LocalReply("bad_request", "the request is not valid")),
    (401, LocalReply("unauthorized", "a valid credential is required")),
    (403, LocalReply("forbidden", "the request is not allowed")),
    (408, LocalReply("request_timeout", "the request did not arrive in time")),
    (413, LocalReply("too_large", "the request is too large")),
    (426, LocalReply("upgrade_required", "the requested protocol is not supported")),
    (429, LocalReply("rate_limited", "too many requests")),
    (431, LocalReply("headers_too_large", "the headers of the request are too large")),
    (500, LocalReply("internal", "the gateway failed")),
    (502, LocalReply("upstream_error", "the instance could not answer")),
    (504, LocalReply("upstream_timeout", "the instance did not answer in time")),
)


def local_replies(*, entry: bool = False) -> hcm_pb2.LocalReplyConfig:
    """``entry``: for the listener of peers, where an unknown deployment means that this region has no instance."""
    missing = NO_INSTANCE if entry else NO_DEPLOYMENT
    mappers = [
        _mapper(_flags(("NC",)), missing),
        _mapper(_all(_flags(("SI",)), _without_headers()), LATE_HEADERS),
        *(_mapper(_flags(flags), reply) for flags, reply in BY_FLAG),
        *(_mapper(_denied(name), reply) for name, reply in BY_DENIAL),
        *(_mapper(_status(status), reply) for status, reply in BY_STATUS),
    ]
    # Answers of routes that refuse everything have their body already.
    rest = substitution_format_string_pb2.SubstitutionFormatString(
        text_format_source=base_pb2.DataSource(inline_string="%LOCAL_REPLY_BODY%"), content_type="application/json"
    )
    return hcm_pb2.LocalReplyConfig(mappers=mappers, body_format=rest)


def _mapper(fits: accesslog_pb2.AccessLogFilter, reply: LocalReply) -> hcm_pb2.ResponseMapper:
    made = hcm_pb2.ResponseMapper(
        filter=fits,
        body_format_override=substitution_format_string_pb2.SubstitutionFormatString(json_format=_body(reply)),
        headers_to_add=[envoy.set_header(ERROR_HEADER, reply.code)],
    )
    if reply.status:
        made.status_code.value = reply.status
    return made


def _body(reply: LocalReply) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update({"error": {"code": reply.code, "message": reply.message, "requestId": REQUEST_ID}})
    return made


def _flags(flags: Iterable[str]) -> accesslog_pb2.AccessLogFilter:
    return accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=list(flags)))


def _status(status: int) -> accesslog_pb2.AccessLogFilter:
    return accesslog_pb2.AccessLogFilter(
        status_code_filter=accesslog_pb2.StatusCodeFilter(
            comparison=accesslog_pb2.ComparisonFilter(
                op=accesslog_pb2.ComparisonFilter.Op.EQ,
                value=base_pb2.RuntimeUInt32(default_value=status, runtime_key=f"shoal.status.{status}"),
            )
        )
    )


def _denied(name: str) -> accesslog_pb2.AccessLogFilter:
    """Matches by the rule that denied, which Envoy reports only in the details of the answer."""
    told = cel_pb2.ExpressionFilter(expression=f'response.code_details.contains("-{name}/")')
    cel = accesslog_pb2.ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel", typed_config=envoy.packed(told)
    )
    return _all(_status(403), accesslog_pb2.AccessLogFilter(extension_filter=cel))


def _without_headers() -> accesslog_pb2.AccessLogFilter:
    method = route_pb2.HeaderMatcher(name=":method", present_match=True, invert_match=True)
    return accesslog_pb2.AccessLogFilter(header_filter=accesslog_pb2.HeaderFilter(header=method))


def _all(*filters: accesslog_pb2.AccessLogFilter) -> accesslog_pb2.AccessLogFilter:
    return accesslog_pb2.AccessLogFilter(and_filter=accesslog_pb2.AndFilter(filters=filters))
