"""API keys checked inside Envoy: the source of its Lua filter, with the digests of all keys.

The text changes with the keys, not with the routes; it is a separate extension configuration, which Envoy
replaces without touching listeners. Each route passes its checks as filter context (``filter_context``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.crds.sentinel import KeyAuth, KeyLocation
from shoal.sentinel.headers import PRINCIPAL_HEADER
from shoal.sentinel.model import ApiKeyInfo, KeySet
from shoal.sentinel.policies import wire

_PROGRAM = Path(__file__).with_name("keys.lua").read_text()
_NAMES = {
    "PRINCIPAL_HEADER": PRINCIPAL_HEADER,
    "METADATA": wire.KEYS_METADATA,
    "JWT_METADATA": wire.JWT_METADATA,
    "SUBJECT": wire.SUBJECT,
    "PRINCIPAL": wire.PRINCIPAL,
    "ALLOWED": wire.ALLOWED,
    "FORBIDDEN": wire.FORBIDDEN,
    "MISSING": wire.MISSING,
    "INVALID": wire.INVALID,
    "RULES": wire.RULES,
}
_HEX = frozenset("0123456789abcdef")
_PLAIN = frozenset(range(32, 127)) - set(b'"\\')


def key_script(keys: Mapping[str, KeySet]) -> str:
    """The Lua program that checks the keys of these environments; disabled and invalid keys are left out."""
    lines: list[str] = []
    at = 1  # as Lua counts
    indexes: list[str] = []
    for environment in sorted(keys):
        records: list[str] = []
        for digest, line in sorted(_lines(keys[environment].keys).items()):
            records.append(f"{digest}{at:010}")
            lines.append(line)
            at += len(line.encode()) + 1
        indexes.append(f"[{_quoted(environment)}] = {_quoted(''.join(records))},\n")
    names = "".join(f"local {name} = {_quoted(value)}\n" for name, value in _NAMES.items())
    table = "".join(f"{line}\n" for line in lines)
    return f"{names}local KEYS = {_bracketed(table)}\nlocal INDEX = {{\n{''.join(indexes)}}}\n{_PROGRAM}"


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """One policy of a route: its result becomes the request header ``header``, which clients cannot set."""

    header: str
    rule: KeyAuth


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """One token policy of a route: the metadata key of an accepted token's claims, and the claim with its subject."""

    claims: str
    subject: str


def filter_context(environment: str, asked: Sequence[KeyCheck | TokenClaims], *, tell: bool) -> dict[str, str]:
    """The checks of a route: lines of tab-separated fields. Raise BadRule if a field has a separator. With ``tell``
    subject and principal are also written to the metadata, for limits that count by them."""
    lines = [f"environment\t{_field(environment)}\t"]
    if tell:
        lines.append("tell\t\t")
    for one in asked:
        if isinstance(one, TokenClaims):
            lines.append(f"token\t{_field(one.claims)}\t{_field(one.subject)}")
            continue
        lines.append(f"policy\t{_field(one.header)}\t")
        lines += [_location(location) for location in one.rule.locations]
        lines += [f"permission\t{_field(name)}\t" for name in sorted(one.rule.permissions)]
    return {wire.RULES: "\n".join(lines)}


def _location(location: KeyLocation) -> str:
    wire.check_location(location)
    if location.header:
        kind, name = "header", location.header.lower()
    elif location.query:
        kind, name = "query", location.query
    else:
        kind, name = "bearer", ""
    return f"{kind}\t{_field(name)}\t{_field(location.strip_prefix)}"


def _field(text: str) -> str:
    if any(one in text for one in "\t\n\r\0"):
        raise wire.BadRule(f"{text!r} has a tab, newline or NUL")
    return text


def _lines(keys: Iterable[ApiKeyInfo]) -> dict[str, str]:
    """Sorted by digest. Of equal keys, the one with the smallest id."""
    made: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: key.id):
        digest = key.digest.lower()
        if not key.enabled or len(digest) != 64 or not _HEX.issuperset(digest) or digest in made:
            continue
        # No rule can require a permission with a space; without this check it would become two permissions.
        permissions = " ".join(
            sorted(name for name in key.permissions if len(name.split()) == 1 and name == name.strip())
        )
        principal = wire.principal_of(key)
        fields = (f"{max(key.expires, 0):.3f}", permissions, wire.principal_text(principal))
        made[digest] = "\t".join((*fields, _quoted(key.subject), _lua(principal)))
    return made


def _lua(value: object) -> str:
    """The value as a Lua expression. Null values are left out, as in Envoy's metadata."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"[{_quoted(str(key))}]={_lua(item)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "{" + ",".join(_lua(item) for item in value) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(float(value)) if abs(value) < 1e300 else "0"
    return _quoted("" if value is None else str(value))


def _quoted(text: str) -> str:
    """Bytes that are not plain are written as numbers: nothing can end the string, or the line."""
    return '"' + "".join(chr(one) if one in _PLAIN else f"\\{one:03}" for one in text.encode()) + '"'


def _bracketed(text: str) -> str:
    """The text as a Lua long string, with a delimiter that the text does not contain."""
    level = ""
    while f"]{level}]" in text or text.endswith(f"]{level}"):
        level += "="
    return f"[{level}[\n{text}]{level}]"
