"""Names of clusters, listeners and route configurations, and small messages that every part of a translation uses."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb2

_PREFIX = "type.googleapis.com/"

RUNTIME = {"re2.max_program_size.error_level": 1_000_000}
"""For the bootstrap of Envoy: without it, Envoy refuses longer regular expressions, and with them all routes."""

REQUESTS = "requests"
"""Before the stats of requests: ``requests.ms.of.<cluster>.<code>.<tries>``, with / in clusters as _."""

EMPTY_CLUSTER = "none"  # the cluster that never has an instance
REPLICAS = "replicas"  # the cluster of this gateway's own replicas
TRACES = "traces"  # the collector of traces

TRAFFIC, TLS, ENTRY = "traffic", "tls", "entry"  # listeners
ALL_ROUTES, ENTRY_ROUTES = "traffic", "entry"  # route configurations


def deployment_cluster(deployment: str) -> str:
    return f"deployment/{deployment}" if deployment else EMPTY_CLUSTER


def sticky_cluster(deployment: str) -> str:
    """The same instances, but chosen by a hash."""
    return f"sticky/{deployment}" if deployment else EMPTY_CLUSTER


def local_cluster(deployment: str) -> str:
    """The instances of this region only: for requests that come from a peer."""
    return f"local/{deployment}"


def packed(message: Message) -> any_pb2.Any:
    made = any_pb2.Any(type_url=f"{_PREFIX}{message.DESCRIPTOR.full_name}")
    made.value = message.SerializeToString(deterministic=True)
    return made


def packed_as(type_name: str, value: bytes) -> any_pb2.Any:
    """Pack the wire form of a message that the installed protobuf library lacks."""
    return any_pb2.Any(type_url=f"{_PREFIX}{type_name}", value=value)


def extension(name: str, message: Message) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(message))


def matching(name: str, message: Message) -> xds_extension_pb2.TypedExtensionConfig:
    """An input or action of a matcher."""
    return xds_extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(message))


def ads() -> config_source_pb2.ConfigSource:
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(), resource_api_version=config_source_pb2.ApiVersion.V3
    )


def duration(seconds: float) -> duration_pb2.Duration:
    whole = int(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def regex(pattern: str) -> regex_pb2.RegexMatcher:
    return regex_pb2.RegexMatcher(regex=pattern)


def exactly(text: str) -> string_pb2.StringMatcher:
    return string_pb2.StringMatcher(exact=text)


def fraction(percent: float) -> base_pb2.RuntimeFractionalPercent:
    millionths = percent_pb2.FractionalPercent.DenominatorType.MILLION
    return base_pb2.RuntimeFractionalPercent(
        default_value=percent_pb2.FractionalPercent(
            numerator=round(min(max(percent, 0.0), 100.0) * 10_000), denominator=millionths
        )
    )


def set_header(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Replaces existing values."""
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, value=value),
        append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def appended_header(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Added after existing values."""
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, value=value),
        append_action=base_pb2.HeaderValueOption.HeaderAppendAction.APPEND_IF_EXISTS_OR_ADD,
    )


def literal(text: str) -> str:
    """Escape a header's value: Envoy replaces expressions between percent signs."""
    return text.replace("%", "%%")
