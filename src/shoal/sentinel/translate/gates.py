"""Policies that admit or deny requests, as two RBAC filters of Envoy that only deny.

The first runs before authentication. The second runs after it and requires a good verdict of the filters that check
credentials. Without a verdict, because such a filter crashed or is missing, the rule denies: no request passes because
of an error. Rules are numbered, since Envoy evaluates them in the order of their names and the first match
determines the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.type.matcher.v3 import string_pb2

from shoal.crds.sentinel import Firewall, Jwt, PolicySpec
from shoal.sentinel.headers import PRINCIPAL_HEADER
from shoal.sentinel.model import GatewayPolicy
from shoal.sentinel.policies.wire import ALLOWED, FORBIDDEN, JWT_METADATA, KEYS_METADATA, MISSING, PRINCIPAL, SUBJECT
from shoal.sentinel.translate import envoy, rules

_Rule: TypeAlias = tuple[str, str, rbac_pb2.Principal]  # kind of denial, policy, matching requests


def payload_key(policy: str) -> str:
    """The metadata key of the claims of a token that the policy accepted."""
    return f"claims/{policy}"


def header_key(policy: str) -> str:
    return f"header/{policy}"


def gates(policies: Sequence[GatewayPolicy]) -> tuple[filter_pb2.RBACPerRoute | None, filter_pb2.RBACPerRoute | None]:
    """The rules before and after authentication; None if there is nothing to deny."""
    at = next((at for at, one in enumerate(policies) if authenticates(one)), len(policies))
    return _filter(_rules(policies[:at], ())), _filter(_rules(policies[at:], policies))


def authenticates(policy: GatewayPolicy) -> bool:
    """Whether the policy requires a key or a token."""
    return policy.spec is not None and (policy.spec.key_auth is not None or policy.spec.jwt is not None)


def _filter(found: Iterable[_Rule]) -> filter_pb2.RBACPerRoute | None:
    made = rbac_pb2.RBAC(action=rbac_pb2.RBAC.Action.DENY)
    for number, (kind, policy, whom) in enumerate(found):
        made.policies[f"{number:04}-{kind}/{policy}"].CopyFrom(
            rbac_pb2.Policy(permissions=[rbac_pb2.Permission(any=True)], principals=[whom])
        )
    if not made.policies:
        return None
    return filter_pb2.RBACPerRoute(rbac=filter_pb2.RBAC(rules=made))


def _rules(policies: Sequence[GatewayPolicy], judged: Sequence[GatewayPolicy]) -> Iterator[_Rule]:
    verdicts = rules.verdict_facts(judged)
    for policy in policies:
        spec = policy.spec
        assert spec is not None
        when = rules.by_conditions(spec.match)
        for kind, whom in _denials(policy.name, spec, verdicts):
            yield kind, policy.name, rules.all_of([*when, whom])
        if spec.rate_limit is not None and (known := identified(policy, judged)) is not None:
            yield "unidentified", policy.name, rules.all_of([*when, rules.negated(known)])


def _denials(name: str, spec: PolicySpec, verdicts: Mapping[str, str]) -> Iterator[tuple[str, rbac_pb2.Principal]]:
    if spec.firewall is not None:
        yield "firewall", _firewall_denials(spec.firewall)
    elif spec.key_auth is not None:
        verdict = verdicts[name]
        yield "policy_error", rules.negated(rules.by_header(verdict))
        yield "insufficient_permissions", rules.by_header(verdict, FORBIDDEN)
        yield "missing_key", rules.by_header(verdict, MISSING)
        yield "invalid_key", rules.negated(rules.by_header(verdict, ALLOWED))
    elif spec.jwt is not None:
        unproven = _without_valid_token(name, spec.jwt)
        yield "unauthorized", unproven
        # A valid token has a principal. If writing it failed, the request is denied, not admitted without a principal.
        known = rules.by_metadata(JWT_METADATA, (header_key(name), "alg"), None)
        yield "policy_error", rules.all_of([known, rules.negated(rules.by_header(PRINCIPAL_HEADER))])


def _firewall_denials(firewall: Firewall) -> rbac_pb2.Principal:
    named = [
        *map(rules.by_network, firewall.cidrs),
        *map(rules.by_header, firewall.headers),
        *map(rules.by_path, firewall.paths),
    ]
    if not named:  # matches no request: deny admits all, allow none
        none = rules.negated(rbac_pb2.Principal(any=True))
        return none if firewall.action == "deny" else rbac_pb2.Principal(any=True)
    fits = rules.any_of(named)
    return fits if firewall.action == "deny" else rules.negated(fits)


def _without_valid_token(name: str, jwt: Jwt) -> rbac_pb2.Principal:
    algorithm = rules.by_metadata(
        JWT_METADATA, (header_key(name), "alg"), _either(jwt.algorithms) if jwt.algorithms else None
    )
    unproven = rules.negated(algorithm)
    if jwt.anonymous:  # requests without a token pass, those with an invalid one do not
        return rules.all_of([rules.by_header("authorization"), unproven])
    return unproven


def _either(texts: Sequence[str]) -> string_pb2.StringMatcher:
    return string_pb2.StringMatcher(safe_regex=envoy.regex("|".join(texts)))


def identified(policy: GatewayPolicy, judged: Sequence[GatewayPolicy]) -> rbac_pb2.Principal | None:
    """The condition under which a request has the limit's identifier; None: always."""
    spec = policy.spec
    if spec is None or spec.rate_limit is None:
        return None
    by = spec.rate_limit.identifier
    if by.header:
        return rules.by_header(by.header)
    where = subject_path(policy, judged)
    return rules.by_metadata(where[0], where[1:], None) if where else None


def subject_path(policy: GatewayPolicy, judged: Sequence[GatewayPolicy]) -> tuple[str, ...]:
    """Metadata namespace and path of the identity a limit counts by; empty: it counts by something else."""
    spec = policy.spec
    assert spec is not None and spec.rate_limit is not None
    by = spec.rate_limit.identifier
    if by.subject is None and not by.principal:
        return ()
    before = [one for one in judged[: judged.index(policy)] if authenticates(one)] if policy in judged else []
    if not before or before[-1].spec is None:
        return ()
    judge, dotted = before[-1], tuple(by.principal.split(".")) if by.principal else ()
    if before[-1].spec.jwt is not None:
        return (JWT_METADATA, payload_key(judge.name), *(dotted or (before[-1].spec.jwt.subject_claim,)))
    return (KEYS_METADATA, *((PRINCIPAL, *dotted) if dotted else (SUBJECT,)))
