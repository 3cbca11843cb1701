"""Whether the key of a request is good: pure, by digests in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_plus

from shoal.crds.sentinel import KeyLocation
from shoal.sentinel.policies.wire import (
    ALLOWED,
    FORBIDDEN,
    INVALID,
    MISSING,
    KeyRule,
    principal_of,
    principal_text,
)
from shoal.sentinel.translate.model import Key, KeySet

_BEARER = "bearer "


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A key and what instances are told of its owner."""

    key: Key
    principal: Mapping[str, object]
    header: str


class KeyBook:
    """The keys of all environments by their digest. Only environments whose set is another object are read again."""

    def __init__(self) -> None:
        self._sets: dict[str, KeySet] = {}
        self._known: dict[str, dict[str, Known]] = {}

    def replace(self, sets: Mapping[str, KeySet]) -> None:
        known = {
            environment: self._known[environment] if self._sets.get(environment) is keys else _by_digest(keys)
            for environment, keys in sets.items()
        }
        self._sets, self._known = dict(sets), known

    def find(self, environment: str, text: str) -> Known | None:
        known = self._known.get(environment)
        if not known:
            return None
        return known.get(hashlib.sha256(text.encode("latin-1", "replace")).hexdigest())


def _by_digest(keys: KeySet) -> dict[str, Known]:
    found = ((key, principal_of(key)) for key in keys.keys if key.enabled)
    return {key.digest.lower(): Known(key, principal, principal_text(principal)) for key, principal in found}


def judge(
    book: KeyBook, environment: str, rule: KeyRule, headers: Mapping[str, str], path: str, *, now: float
) -> tuple[str, Known | None]:
    """The verdict, and whose key it is when it is good. ``headers`` have names in lower case; ``path`` is with its
    query; ``now`` is wall time."""
    given = next(filter(None, (_given(location, headers, path) for location in rule.locations)), "")
    if not given:
        return MISSING, None
    found = book.find(environment, given)
    if found is None or 0 < found.key.expires <= now:
        return INVALID, None
    if not rule.permissions <= found.key.permissions:
        return FORBIDDEN, None
    return ALLOWED, found


def _given(location: KeyLocation, headers: Mapping[str, str], path: str) -> str:
    if location.bearer is not None:
        text = headers.get("authorization", "")
        text = text[len(_BEARER) :].lstrip(" ") if text[: len(_BEARER)].lower() == _BEARER else ""
    elif location.header:
        text = headers.get(location.header.lower(), "")
    else:
        text = _from_query(path, location.query)
    prefix = location.strip_prefix
    if not prefix:
        return text
    return text[len(prefix) :] if text.startswith(prefix) else ""


def _from_query(path: str, name: str) -> str:
    query = path.partition("?")[2].partition("#")[0]
    for pair in query.split("&"):
        key, equals, value = pair.partition("=")
        if equals and unquote_plus(key) == name:
            return unquote_plus(value)
    return ""
