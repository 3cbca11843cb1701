"""Authorization checks in admission policies.

The environment binds ``authorizer`` to an ``Authorizer``. The server provides its ``decide``, which takes the
attributes of a request and returns ``(allowed, reason, error)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from shoal.kube.cel.functions import Library

Decide = Callable[[dict[str, Any]], tuple[bool, str, str]]


@dataclass(frozen=True, slots=True)
class Authorizer:
    cel_name: ClassVar[str] = "kubernetes.authorization.Authorizer"
    decide: Decide
    user: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PathCheck:
    cel_name: ClassVar[str] = "kubernetes.authorization.PathCheck"
    authorizer: Authorizer
    path: str


@dataclass(frozen=True, slots=True)
class GroupCheck:
    cel_name: ClassVar[str] = "kubernetes.authorization.GroupCheck"
    authorizer: Authorizer
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    cel_name: ClassVar[str] = "kubernetes.authorization.ResourceCheck"
    authorizer: Authorizer
    attributes: dict[str, str] = field(default_factory=dict)

    def having(self, key: str, value: str) -> ResourceCheck:
        return replace(self, attributes={**self.attributes, key: value})


@dataclass(frozen=True, slots=True)
class Decision:
    cel_name: ClassVar[str] = "kubernetes.authorization.Decision"
    allowed: bool
    reason: str
    error: str


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return replace(authorizer, user={"username": f"system:serviceaccount:{namespace}:{name}", "groups": groups})


def _check(check: PathCheck | ResourceCheck, verb: str) -> Decision:
    asked: dict[str, Any] = {"verb": verb, "user": check.authorizer.user}
    if isinstance(check, PathCheck):
        asked["path"] = check.path
    else:
        asked |= check.attributes
    return Decision(*check.authorizer.decide(asked))


def declare(library: Library) -> None:
    add = library.add
    add("authorizer_path", "authorizer.path(string): pathcheck", PathCheck)
    add("authorizer_group", "authorizer.group(string): groupcheck", GroupCheck)
    add("authorizer_serviceaccount", "authorizer.serviceAccount(string, string): authorizer", _service_account)
    add("pathcheck_check", "pathcheck.check(string): decision", _check)
    resource = "groupcheck.resource(string): resourcecheck"
    add(
        "groupcheck_resource",
        resource,
        lambda check, name: ResourceCheck(check.authorizer, {"group": check.group, "resource": name}),
    )
    for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector"):
        signature = f"resourcecheck.{name}(string): resourcecheck"
        add(f"resourcecheck_{name}", signature, lambda check, value, key=name: check.having(key, value))
    add("resourcecheck_check", "resourcecheck.check(string): decision", _check)
    add("decision_allowed", "decision.allowed(): bool", lambda decision: decision.allowed)
    add("decision_reason", "decision.reason(): string", lambda decision: decision.reason)
    add("decision_errored", "decision.errored(): bool", lambda decision: bool(decision.error))
    add("decision_error", "decision.error(): string", lambda decision: decision.error)
