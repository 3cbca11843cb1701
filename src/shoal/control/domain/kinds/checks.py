"""The syntax of what several kinds have: names, variables, images, hosts, expressions of time."""

from __future__ import annotations

import re
from ipaddress import ip_address

from shoal.kube.names import (
    Faults,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_env_var_name_strict,
    is_http_header_name,
    is_wildcard_dns1123_subdomain,
)

RESERVED_PREFIX = "SHOAL_"
MAX_NAME = 40  # leaves room for what is added to it in a cluster
MAX_IMAGE = 512

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_HOST_LABEL}(?:\.{_HOST_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REPOSITORY = rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}"
_is_image = re.compile(rf"{_REPOSITORY}(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII).fullmatch
_is_sha = re.compile(r"[0-9a-fA-F]{4,64}").fullmatch


def is_name(value: str) -> Faults:
    """The name of an object: a DNS label, short enough for what clusters add to it."""
    if len(value) > MAX_NAME:
        return (f"must be no more than {MAX_NAME} characters",)
    return is_dns1123_label(value)


def is_variable(value: str) -> Faults:
    """The name of an environment variable that people may set."""
    faults = is_env_var_name_strict(value)
    if not faults and value.startswith(RESERVED_PREFIX):
        return (f"names that begin with {RESERVED_PREFIX} are set by Shoal itself",)
    return faults


def is_plain(value: str) -> Faults:
    """Text that a variable or an argument can carry."""
    return ("may not contain a NUL character",) if "\0" in value else ()


def is_image(value: str) -> Faults:
    """``[HOST[:PORT]/]PATH[:TAG][@DIGEST]``."""
    if len(value) > MAX_IMAGE:
        return (f"must be no more than {MAX_IMAGE} characters",)
    if _is_image(value):
        return ()
    return ("must be an image reference such as registry.example.com/team/app:1.2 or app@sha256:…",)


def is_host(value: str) -> Faults:
    """A host name, or one with ``*`` for its first label."""
    return is_wildcard_dns1123_subdomain(value) if value.startswith("*") else is_dns1123_subdomain(value)


def is_address_with_port(value: str) -> Faults:
    """``ADDRESS:PORT``; an address of IPv6 stands in brackets."""
    host, _, port = value.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        good = (address.version == 6) == host.startswith("[") and 1 <= int(port) <= 65535 and port.isascii()
    except ValueError:
        good = False
    return () if good else ("must be an address and a port, such as 203.0.113.7:8043 or [2001:db8::7]:8043",)


def is_path(value: str) -> Faults:
    if not value.startswith("/"):
        return ("must begin with /",)
    return ("may not contain spaces, control characters, ? or #",) if _has_bad_path(value) else ()


_has_bad_path = re.compile(r"[\s\x00-\x1f\x7f?#]").search


def is_regex(value: str) -> Faults:
    """An expression that every engine at hand takes; those that need backtracking are refused."""
    if _needs_backtracking(value):
        return ("backreferences and look-around are not supported",)
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        return (f"is not a valid regular expression: {error}",)
    return ()


_needs_backtracking = re.compile(r"\(\?(?:[=!]|<[=!]|P=|>|\()|(?<!\\)(?:\\\\)*\\[1-9]|\\k<|[*+?}]\+").search


def is_header(value: str) -> Faults:
    return is_http_header_name(value)


def is_sha(value: str) -> Faults:
    return () if _is_sha(value) else ("must be a commit: 4 to 64 hexadecimal digits",)


def is_capability(value: str) -> Faults:
    """As Kubernetes names it."""
    if _is_capability(value):
        return ()
    return ("must be a capability without CAP_, such as NET_BIND_SERVICE",)


_is_capability = re.compile(r"(?!CAP_|ALL$)[A-Z][A-Z0-9_]{1,62}", re.ASCII).fullmatch
