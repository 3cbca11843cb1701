"""The syntax of names, label keys and values, ports, paths and addresses.

Every check returns error texts, in the words of Kubernetes, or an empty tuple. Checks of frequent texts (label keys and
values, addresses) have bounded caches.
"""

from __future__ import annotations

import ipaddress
import re

from shoal.base.bounded_cache import bounded_cache

Faults = tuple[str, ...]

DNS1123_LABEL_MAX = 63
DNS1123_SUBDOMAIN_MAX = 253
LABEL_VALUE_MAX = 63
PORT_NAME_MAX = 15

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + "(\\." + _LABEL + ")*"
_SUBDOMAIN_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_UNDERSCORE = _SUBDOMAIN_LABEL_UNDERSCORE + "(\\." + _SUBDOMAIN_LABEL_UNDERSCORE + ")*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_WILDCARD = "\\*\\." + _SUBDOMAIN
_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(" + _KEY_NAME + ")?"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_ENV_NAME = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HEADER = "[-A-Za-z0-9]+"
_PERCENT = "[0-9]+%"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_caseless_subdomain = re.compile(_SUBDOMAIN, re.IGNORECASE | re.ASCII).fullmatch
_is_underscore_subdomain = re.compile(_SUBDOMAIN_UNDERSCORE).fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_wildcard = re.compile(_WILDCARD).fullmatch
_is_key_name = re.compile(_KEY_NAME).fullmatch
_is_label_value_text = re.compile(_LABEL_VALUE).fullmatch
_is_c_identifier = re.compile(_C_IDENTIFIER).fullmatch
_is_env_name = re.compile(_ENV_NAME).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch
_is_header = re.compile(_HEADER).fullmatch
_is_percent = re.compile(_PERCENT).fullmatch
_is_http_path_text = re.compile(_HTTP_PATH).fullmatch
_is_port_charset = re.compile("[-a-z0-9]+").fullmatch
_has_letter = re.compile("[a-z]").search
_is_leading_zero_v4 = re.compile(r"[0-9]+(?:\.[0-9]+){3}").fullmatch
_is_decimal_integer = re.compile("0|-?[1-9][0-9]*").fullmatch


def _regex_fault(text: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def max_length_fault(limit: int) -> str:
    return f"must be no more than {limit} characters"


def range_fault(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


EMPTY_FAULT = "must be non-empty"

_LABEL_FAULT = _regex_fault(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_FAULT = _regex_fault(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_CASELESS_SUBDOMAIN_FAULT = _regex_fault(
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "Example.com",
)
_UNDERSCORE_SUBDOMAIN_FAULT = _regex_fault(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN_UNDERSCORE,
    "example.com",
)
_LABEL_1035_FAULT = _regex_fault(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_WILDCARD_FAULT = _regex_fault(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD,
    "*.example.com",
)
_KEY_NAME_FAULT = _regex_fault(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _KEY_NAME,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_FAULT = _regex_fault(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_C_IDENTIFIER_FAULT = _regex_fault(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    _C_IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_ENV_NAME_FAULT = _regex_fault(
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', "
    "and must not start with a digit",
    _ENV_NAME,
    "my.env-name",
    "MY_ENV.NAME",
    "MyEnvName1",
)
_CONFIG_KEY_FAULT = _regex_fault(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_HEADER_FAULT = _regex_fault(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)
_PERCENT_FAULT = _regex_fault(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%"
)


def _size(value: str) -> int:
    """Length in bytes of UTF-8, which limits refer to."""
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def _too_long(value: str, limit: int) -> Faults:
    return (max_length_fault(limit),) if _size(value) > limit else ()


def is_dns1123_label(value: str) -> Faults:
    if len(value) <= DNS1123_LABEL_MAX and _is_label(value):
        return ()
    faults = _too_long(value, DNS1123_LABEL_MAX)
    if _is_label(value):
        return faults
    return (*faults, "must not contain dots" if _is_subdomain(value) else _LABEL_FAULT)


def is_dns1123_subdomain(value: str) -> Faults:
    if len(value) <= DNS1123_SUBDOMAIN_MAX and _is_subdomain(value):
        return ()
    faults = _too_long(value, DNS1123_SUBDOMAIN_MAX)
    return faults if _is_subdomain(value) else (*faults, _SUBDOMAIN_FAULT)


def is_dns1123_subdomain_with_underscore(value: str) -> Faults:
    faults = _too_long(value, DNS1123_SUBDOMAIN_MAX)
    return faults if _is_underscore_subdomain(value) else (*faults, _UNDERSCORE_SUBDOMAIN_FAULT)


def is_dns1035_label(value: str) -> Faults:
    faults = _too_long(value, DNS1123_LABEL_MAX)
    return faults if _is_label_1035(value) else (*faults, _LABEL_1035_FAULT)


def is_wildcard_dns1123_subdomain(value: str) -> Faults:
    faults = _too_long(value, DNS1123_SUBDOMAIN_MAX)
    return faults if _is_wildcard(value) else (*faults, _WILDCARD_FAULT)


@bounded_cache(16384)
def is_qualified_name(value: str) -> Faults:
    """A label key: an optional DNS prefix with a slash, then a name."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_KEY_NAME_FAULT} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    faults: list[str] = []
    if slash and not prefix:
        faults.append(f"prefix part {EMPTY_FAULT}")
    elif slash:
        faults += (f"prefix part {fault}" for fault in is_dns1123_subdomain(prefix))
    if not name:
        faults.append(f"name part {EMPTY_FAULT}")
    elif _size(name) > LABEL_VALUE_MAX:
        faults.append(f"name part {max_length_fault(LABEL_VALUE_MAX)}")
    if not _is_key_name(name):
        faults.append(f"name part {_KEY_NAME_FAULT}")
    return tuple(faults)


def is_prefixed_label_key(value: str) -> Faults:
    """A label key with a prefix."""
    faults = is_qualified_name(value)
    if not faults and "/" not in value:
        return ("must include a prefix (e.g. 'example.com/key')",)
    return faults


@bounded_cache(16384)
def is_label_value(value: str) -> Faults:
    faults = _too_long(value, LABEL_VALUE_MAX)
    return faults if _is_label_value_text(value) else (*faults, _LABEL_VALUE_FAULT)


def is_annotation_key(value: str) -> Faults:
    """As a label key, with upper case allowed in the prefix."""
    return is_qualified_name(value.lower())


_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def is_finalizer_name(value: str) -> Faults:
    """The syntax of ``metadata.finalizers`` in every kind."""
    return is_qualified_name(value)


def is_c_identifier(value: str) -> Faults:
    return () if _is_c_identifier(value) else (_C_IDENTIFIER_FAULT,)


def is_port_number(value: int) -> Faults:
    return () if 1 <= value <= 65535 else (range_fault(1, 65535),)


@bounded_cache(4096)
def is_port_name(value: str) -> Faults:
    faults = list(_too_long(value, PORT_NAME_MAX))
    if not _is_port_charset(value):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(value):
        faults.append("must contain at least one letter (a-z)")
    if "--" in value:
        faults.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return tuple(faults)


def is_percent(value: str) -> Faults:
    return () if _is_percent(value) else (_PERCENT_FAULT,)


def is_http_header_name(value: str) -> Faults:
    return () if _is_header(value) else (_HEADER_FAULT,)


def is_http_path(value: str) -> Faults:
    """The characters of a path, by RFC 3986."""
    return () if _is_http_path_text(value) else (_regex_fault("Invalid path", _HTTP_PATH),)


def _dots_fault(value: str) -> Faults:
    """Refuse names that a file system reads as the current or the parent folder."""
    if value in (".", ".."):
        return (f"must not be '{value}'",)
    return ("must not start with '..'",) if value.startswith("..") else ()


def is_env_var_name_strict(value: str) -> Faults:
    """A name that every shell accepts; envFrom requires it unless the relaxed rule applies."""
    faults = () if _is_env_name(value) else (_ENV_NAME_FAULT,)
    return faults + _dots_fault(value)


@bounded_cache(4096)
def is_env_var_name(value: str) -> Faults:
    """The relaxed rule that containers' ``env`` follows: printable ASCII without ``=``."""
    if not value:
        return (f"environment variable name {EMPTY_FAULT}",)
    if value.isascii() and value.isprintable() and "=" not in value:
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def is_config_map_key(value: str) -> Faults:
    faults = _too_long(value, DNS1123_SUBDOMAIN_MAX)
    if not _is_config_key(value):
        faults = (*faults, _CONFIG_KEY_FAULT)
    return faults + _dots_fault(value)


def is_path_segment_name(value: str) -> Faults:
    """A name that can be a segment of a URL path, as of RBAC objects."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return is_path_segment_prefix(value)


def is_path_segment_prefix(value: str) -> Faults:
    return tuple(f"may not contain '{part}'" for part in ("/", "%") if part in value)


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_IP_FAULT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_FAULT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


@bounded_cache(8192)
def parse_ip(value: str) -> IPAddress | None:
    """The address of a text, without zones and leading zeros; None if it is invalid."""
    if not value.isascii() or "%" in value:
        return None
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def _has_leading_zeros(value: str) -> bool:
    """Whether a dotted address is invalid only because of leading zeros."""
    head, colon, tail = value.rpartition(":")
    if not _is_leading_zero_v4(tail) or len(value) > 64:
        return False
    return parse_ip(head + colon + ".".join(str(int(octet)) for octet in tail.split("."))) is not None


@bounded_cache(8192)
def is_ip_legacy(value: str) -> Faults:
    """For fields that are older than strict checking: any unambiguous spelling."""
    address = parse_ip(value)
    if address is None:
        return ("must not have leading 0s",) if _has_leading_zeros(value) else (_IP_FAULT,)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


@bounded_cache(8192)
def is_ip(value: str) -> Faults:
    """For newer fields: only the canonical spelling."""
    faults = is_ip_legacy(value)
    if faults:
        return faults
    wanted = str(parse_ip(value))
    return () if value == wanted else (f'must be in canonical form ("{wanted}")',)


@bounded_cache(4096)
def parse_cidr(value: str) -> IPNetwork | None:
    """The network of an ``address/length`` text, with host bits cleared; None if the text is invalid."""
    address, slash, length = value.partition("/")
    parsed = parse_ip(address)
    if not slash or parsed is None or not length.isdecimal() or not length.isascii():
        return None
    if len(length) > 3 or int(length) > parsed.max_prefixlen or (length[0] == "0" and length != "0"):
        return None
    return ipaddress.ip_network(value, strict=False)


def is_cidr_legacy(value: str) -> Faults:
    network = parse_cidr(value)
    address, _, length = value.partition("/")
    if network is None:
        sloppy = length.isdecimal() and length.isascii() and len(length) <= 8
        plain = _without_zeros(address) if sloppy else None
        if plain is not None and parse_cidr(f"{plain}/{int(length)}") is not None:
            return ("must not have leading 0s in IP or prefix length",)
        return (_CIDR_FAULT,)
    parsed = parse_ip(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return ("must not have an IPv4-mapped IPv6 address",)
    if parsed != network.network_address:
        return ("must not have bits set beyond the prefix length",)
    return ()


def _without_zeros(address: str) -> str | None:
    if parse_ip(address) is not None:
        return address
    if not _has_leading_zeros(address):
        return None
    head, colon, tail = address.rpartition(":")
    return head + colon + ".".join(str(int(octet)) for octet in tail.split("."))


def is_cidr(value: str) -> Faults:
    faults = is_cidr_legacy(value)
    if faults:
        return faults
    wanted = str(parse_cidr(value))
    return () if value == wanted else (f'must be in canonical form ("{wanted}")',)
