"""The string formats a custom resource's schema may name, each as a test of a text.

A format that is not in the table is ignored, as is a format on a type that has none. Names are compared without dashes
(``date-time`` is ``datetime``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from shoal.kube import names, times

Test = Callable[[str], bool]

_DIGITS = re.compile(r"[^0-9]+")
_CARD = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})"
)
_TIME_PART = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_SCALA_DURATION = re.compile(r"[0-9]+\s*([A-Za-zµ]+)")
_SCALA_UNITS = (
    "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "second", "m", "min", "minute", "h", "hr", "hour",
    "d", "day", "w", "week", "wk",
)  # fmt: skip
_LABEL_CHARS = r"a-zA-Z0-9\u00a1-\U0010ffff"
_HOST_LABEL = re.compile(rf"[{_LABEL_CHARS}](?:[{_LABEL_CHARS}-]{{0,61}}[{_LABEL_CHARS}])?")
_TOP_LABEL = re.compile(r"[a-zA-Z\u00a1-\U0010ffff]{2,63}")
_EMAIL = re.compile(r"[^\s@<>()\[\],;:\\\"]+@[^\s@<>()\[\],;:\\\"]+")
_NAMED_EMAIL = re.compile(r"[^<>]*<([^<>]+)>")
_MAC = re.compile(r"[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2})*)|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4})+")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


def _full(pattern: str, flags: int = 0) -> Test:
    fullmatch = re.compile(pattern, flags).fullmatch
    return lambda text: fullmatch(text) is not None


def is_date(text: str) -> bool:
    try:
        return len(text) == 10 and date.fromisoformat(text) is not None
    except ValueError:
        return False


def is_datetime(text: str) -> bool:
    day, mark, clock = text.lower().partition("t")
    if not mark or not is_date(day):
        return False
    found = _TIME_PART.fullmatch(clock)
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def is_duration(text: str) -> bool:
    try:
        times.parse_duration(text)
        return True
    except ValueError:
        return any(
            unit.lower() in _SCALA_UNITS or unit.lower().rstrip("s") in _SCALA_UNITS
            for unit in _SCALA_DURATION.findall(text)
        )


def is_uri(text: str) -> bool:
    """An absolute URI, or a path that begins with a slash."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        return False
    rest = text.partition("?")[0]
    if _BAD_ESCAPE.search(rest):
        return False
    if text.startswith("/"):
        return True
    scheme = _SCHEME.match(rest)
    if scheme is None:
        return False
    rest = rest[scheme.end() :]
    return " " not in rest[2:].partition("/")[0] if rest.startswith("//") else True


def is_email(text: str) -> bool:
    named = _NAMED_EMAIL.fullmatch(text)
    return _EMAIL.fullmatch(named[1] if named else text) is not None


def is_hostname(text: str) -> bool:
    if not 0 < len(text) <= 255:
        return False
    *front, last = text.split(".")
    if not front:
        return _HOST_LABEL.fullmatch(last) is not None
    return all(_HOST_LABEL.fullmatch(label) for label in front) and _TOP_LABEL.fullmatch(last) is not None


def _with_leading_zeros(text: str) -> str:
    """Leading zeros are read as decimal, as the older parsers did."""
    head, colon, tail = text.rpartition(":")
    octets = tail.split(".")
    if len(octets) == 4 and all(part.isdecimal() and part.isascii() and len(part) <= 8 for part in octets):
        return head + colon + ".".join(str(int(part)) for part in octets)
    return text


def is_ipv4(text: str) -> bool:
    return "." in text and names.parse_ip(_with_leading_zeros(text)) is not None


def is_ipv6(text: str) -> bool:
    return ":" in text and names.parse_ip(text) is not None


def is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    return bool(slash) and names.parse_cidr(f"{_with_leading_zeros(address)}/{length}") is not None


def is_isbn10(text: str) -> bool:
    bare = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", bare):
        return False
    return sum((i + 1) * (10 if char == "X" else int(char)) for i, char in enumerate(bare)) % 11 == 0


def is_isbn13(text: str) -> bool:
    bare = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", bare):
        return False
    return sum((3 if i % 2 else 1) * int(char) for i, char in enumerate(bare)) % 10 == 0


def is_credit_card(text: str) -> bool:
    bare = _DIGITS.sub("", text)
    if not _CARD.fullmatch(bare):
        return False
    total = 0
    for place, char in enumerate(reversed(bare)):
        digit = int(char) * (2 if place % 2 else 1)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


def is_mac(text: str) -> bool:
    return len(text) in (14, 17, 19, 23, 39, 59) and _MAC.fullmatch(text) is not None


_UUID = "[0-9a-f]{8}-?[0-9a-f]{4}-?%s-?%s-?[0-9a-f]{12}"
_PART = r"\s*(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"
_RGB = rf"rgb\({_PART},{_PART},{_PART}\)"
_SHORT_NAME = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_short_name = _full(_SHORT_NAME)
_is_long_name = _full(rf"{_SHORT_NAME}(?:\.{_SHORT_NAME})*")

TESTS: Final[dict[str, Test]] = {
    "bsonobjectid": _full("[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": is_mac,
    "uuid": _full(_UUID % ("[0-9a-f]{4}", "[0-9a-f]{4}"), re.IGNORECASE | re.ASCII),
    "uuid3": _full(_UUID % ("3[0-9a-f]{3}", "[0-9a-f]{4}"), re.IGNORECASE | re.ASCII),
    "uuid4": _full(_UUID % ("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"), re.IGNORECASE | re.ASCII),
    "uuid5": _full(_UUID % ("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"), re.IGNORECASE | re.ASCII),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": _full("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _full("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _full(_RGB),
    "byte": _full("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_datetime,
    "k8sshortname": lambda text: len(text) <= 63 and _is_short_name(text),
    "k8slongname": lambda text: len(text) <= 253 and _is_long_name(text),
}


def tester(schema_type: str, name: str) -> Test | None:
    """The test of a format on strings; None when the type has no such format."""
    return TESTS.get(name.replace("-", "")) if schema_type in ("", "string") else None


def recognized(schema_type: str, name: str) -> bool:
    """Whether a schema's format has an effect; if not, the server warns at creation."""
    if schema_type in ("", "string"):
        return name.replace("-", "") in TESTS
    if schema_type == "integer":
        return name in ("int32", "int64")
    return schema_type == "number" and name in ("float", "double")
