"""The formats between Envoy's configuration and the services that check requests: names, and rules as text.

Each request carries its rule, so a service needs no copy of the policies and never uses a version older or newer than
Envoy's. The reader refuses a rule that it cannot parse.

    keys      ``lua_filter.filter_context`` is the filter context of a route, for the Lua filter of ``key_script``. The
              filter refuses no request. It writes its verdicts into request headers and, for a valid key, also
              PRINCIPAL_HEADER and the metadata {SUBJECT, PRINCIPAL} under KEYS_METADATA. The gate behind it refuses
              requests without a good verdict, so also those without any verdict.
    tokens    are verified by Envoy's own filter, which puts their claims under JWT_METADATA. The Lua filter writes
              PRINCIPAL_HEADER from the claims, and the gate refuses a valid token without that header. With several
              policies, the first that is satisfied sets the principal.
    principal JSON in both cases: {version: "v1", type: "API_KEY" or "JWT", subject, permissions: [...], meta: {...}};
              of a key also ``key``, its id. The permissions of a token are its claim ``permissions``, else the words of
              ``scope``; its meta is all of its claims.
    limits    one descriptor per limit: the entries ``policy``, ``limit``, ``window`` (seconds), then those that
              identify the client; the cost of a request is its hits addend. A descriptor without an identifier is
              refused, so a client cannot avoid a limit by leaving a header out. If the count is not available, the
              answer is an error, and the filter fails open or closed as its policy defines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from shoal.crds.sentinel import KeyLocation
from shoal.sentinel.model import ApiKeyInfo

KEYS_METADATA = "shoal.keys"
JWT_METADATA = "envoy.filters.http.jwt_authn"
SUBJECT, PRINCIPAL = "subject", "principal"
ALLOWED, FORBIDDEN, MISSING, INVALID = "ok", "forbidden", "missing", "invalid"  # verdicts
RULES = "policies"
POLICY, LIMIT, WINDOW, FITS = (
    "policy",
    "limit",
    "window",
    "fits",
)  # entries of descriptors that do not identify the client


class BadRule(ValueError):
    """A rule that cannot be parsed."""


def check_location(location: KeyLocation) -> None:
    if (location.bearer is not None) + bool(location.header) + bool(location.query) != 1:
        raise BadRule("a key location needs exactly one of bearer, header and query")


def principal_of(key: ApiKeyInfo) -> dict[str, object]:
    made: dict[str, object] = {"version": "v1", "type": "API_KEY", "subject": key.subject, "key": key.id}
    made["permissions"] = sorted(key.permissions)
    if key.meta:
        made["meta"] = dict(key.meta)
    return made


def principal_text(principal: Mapping[str, object]) -> str:
    """As instances read it in PRINCIPAL_HEADER: JSON on one line, in ASCII, since a header can carry nothing else."""
    return json.dumps(principal, sort_keys=True, separators=(",", ":"))
