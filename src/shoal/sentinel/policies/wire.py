"""What Envoy's configuration and those who judge for it say to each other: names, and rules as text.

A rule travels with each question, so a judge needs no copy of the policies and never judges by one that is older or
newer than Envoy's. What cannot be read is refused by whoever reads it.

    keys      ``key_context(environment, {policy: KeyAuth})`` as the context extensions of ext_authz, or
              ``script.filter_context`` as the filter context of Lua. The judge refuses nobody: it leaves its verdicts,
              and when a key was good the header PRINCIPAL_HEADER and metadata {SUBJECT, PRINCIPAL}. The gate behind it
              refuses what has no good verdict, and so also when there is none.
    limits    one descriptor per limit: the entries ``policy``, ``limit``, ``window`` (seconds), then those that say who
              asks; what a request costs is its hits addend. A descriptor without the latter is refused: leaving a
              header out is no way around a limit. When nobody can count, the answer is an error, and the filter that
              asked fails open or closed as its policy says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import orjson

from shoal.crds.sentinel import KeyAuth, KeyLocation
from shoal.sentinel.translate.model import Key

KEYS_METADATA, AUTHZ_METADATA = "shoal.keys", "envoy.filters.http.ext_authz"
VERDICTS, SUBJECT, PRINCIPAL = "verdicts", "subject", "principal"
ALLOWED, FORBIDDEN, MISSING, INVALID = "ok", "forbidden", "missing", "invalid"  # verdicts
ENVIRONMENT, RULES = "environment", "policies"
POLICY, LIMIT, WINDOW, FITS = "policy", "limit", "window", "fits"  # entries of descriptors that say nothing of who asks


class _Told(KeyAuth, frozen=True, kw_only=True):
    name: str


_RULES = msgspec.json.Decoder(list[_Told])


class BadRule(ValueError):
    """A rule that does not say what it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """Where a key may stand, and what its owner must be permitted."""

    policy: str
    locations: tuple[KeyLocation, ...]
    permissions: frozenset[str] = frozenset()


def key_context(environment: str, rules: Mapping[str, KeyAuth]) -> dict[str, str]:
    """What a route asks of the judge of keys, in the order in which its policies come."""
    told = [{"name": policy, **msgspec.to_builtins(rule)} for policy, rule in rules.items()]
    return {ENVIRONMENT: environment, RULES: orjson.dumps(told).decode()}


def read_key_rules(text: str) -> tuple[KeyRule, ...]:
    try:
        told = _RULES.decode(text)
    except msgspec.MsgspecError as error:
        raise BadRule(str(error)) from error
    for location in (location for one in told for location in one.locations):
        check_location(location)
    return tuple(
        KeyRule(policy=one.name, locations=tuple(one.locations), permissions=frozenset(one.permissions)) for one in told
    )


def check_location(location: KeyLocation) -> None:
    if (location.bearer is not None) + bool(location.header) + bool(location.query) != 1:
        raise BadRule("a location of keys is one of bearer, header and query")


def principal_of(key: Key) -> dict[str, object]:
    made: dict[str, object] = {"version": "v1", "type": "API_KEY", "subject": key.subject, "key": key.id}
    made["permissions"] = sorted(key.permissions)
    if key.meta:
        made["meta"] = dict(key.meta)
    return made


def principal_text(principal: Mapping[str, object]) -> str:
    """As instances read it in PRINCIPAL_HEADER: JSON on one line, in ASCII, since a header can carry nothing else."""
    return json.dumps(principal, sort_keys=True, separators=(",", ":"))
