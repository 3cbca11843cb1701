"""Authorization: decides whether a user may make a request.

The administrators' group may do everything; nodes may do what their pods need; the rest is RBAC. A denial names user,
verb, resource and namespace as Kubernetes words it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.authz.index import RbacIndex
from shoal.apiserver.authz.node import NodeAuthorizer, node_of
from shoal.apiserver.authz.rules import Rule, compiled, quote
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.user import User
from shoal.errors import ApiError, Forbidden, qualified
from shoal.kube import fieldselector
from shoal.kube.kinds import bootstrap_rbac
from shoal.kube.names import is_path_segment_name
from shoal.kube.objects import Obj
from shoal.store import Store

MASTERS = "system:masters"
_NO_NODE_RULES = "node authorizer does not support user rule resolution"


@dataclass(frozen=True, slots=True)
class Decision:
    """``reason`` names the binding that allows it, or the errors met before it was denied."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UserRules:
    """The rules of a user in a namespace, as far as they can be listed."""

    resource: list[Obj]
    non_resource: list[Obj]
    incomplete: bool
    error: str


class Authorizer:
    """Decides requests; its errors are worded as in Kubernetes."""

    def __init__(self, store: Store) -> None:
        self.index = RbacIndex(store)
        self.nodes = NodeAuthorizer(store, compiled(bootstrap_rbac.node_rules()))

    def start(self) -> None:
        """Follow the roles and bindings of the store, which must be started."""
        self.index.start()

    def stop(self) -> None:
        self.index.stop()

    # -- the question of every request -----------------------------------------------------------------------------

    def allows_all(self, user: User) -> bool:
        """Whether the user is an administrator, who may do everything."""
        return MASTERS in user.groups

    def check_target(self, user: User, verb: str, target: ResourcePath, query: Mapping[str, str]) -> None:
        """Raise Forbidden unless the user may use this verb on the object or collection in the path."""
        namespace, name = target.namespace or "", target.name
        if name and target.plural == "namespaces" and target.namespace is None:
            namespace = name  # a namespace belongs to itself: read access in it includes the Namespace object
        elif not name and "fieldSelector" in query and verb in ("list", "watch") and not target.deprecated_watch:
            name = _selected_name(query["fieldSelector"])
        if self.index.permits(user, verb, target.group, target.plural, target.subresource, namespace, name):
            return
        fields = query.get("fieldSelector", "") if not target.deprecated_watch else ""
        asked = Attributes(verb, target.group, target.plural, target.subresource, namespace, name, fields=fields)
        self.check(user, asked)

    def check_create(self, user: User, target: ResourcePath) -> None:
        """Raise Forbidden unless the user may create the object in the path, for PUT and apply that would create it."""
        if MASTERS not in user.groups:
            self.check_target(user, "create", target, {})

    def check(self, user: User, attributes: Attributes) -> None:
        if not self.allows(user, attributes):
            reason = self.authorize(user, attributes).reason
            raise Forbidden(refusal(user, attributes, reason), details=_details(attributes))

    def allows(self, user: User, attributes: Attributes) -> bool:
        if MASTERS in user.groups:
            return True
        asked = attributes
        if asked.path:
            allowed = self.index.permits_path(user, asked.verb, asked.path)
        else:
            allowed = self.index.permits(
                user, asked.verb, asked.group, asked.resource, asked.subresource, asked.namespace, asked.name
            )
        if allowed:
            return True
        node = node_of(user)
        return node is not None and self.nodes.decide(node, asked)[0]

    # -- answers with reasons --------------------------------------------------------------------------------------

    def authorize(self, user: User, asked: Attributes) -> Decision:
        """The decision and its reason. The node authorizer runs before RBAC: its reason comes first in a denial."""
        if MASTERS in user.groups:
            return Decision(True)
        reasons = []
        node = node_of(user)
        if node is not None:
            allowed, reason = self.nodes.decide(node, asked)
            if allowed:
                return Decision(True, reason)
            if reason:
                reasons.append(reason)
        held = self.index.permissions(user, asked.namespace)
        if asked.path:
            grant = held.grant_for_path(asked.verb, asked.path)
        else:
            grant = held.grant_for(asked.verb, asked.group, asked.resource, asked.subresource, asked.name)
        if grant is not None:
            return Decision(True, f"RBAC: allowed by {grant.binding.describe(grant.subject)}")
        if held.faults:
            reasons.append(f"RBAC: {_aggregate(held.faults)}")
        return Decision(False, "\n".join(reasons))

    def rules_of(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """The user's rules in the namespace (without one: only cluster-wide rules), and lookup errors."""
        held = self.index.permissions(user, namespace)
        return [rule for grant in held.grants for rule in grant.rules], _aggregate(held.faults)

    def listed_rules(self, user: User, namespace: str) -> UserRules:
        rules, fault = self.rules_of(user, namespace)
        is_node = node_of(user) is not None
        faults = [text for text in (_NO_NODE_RULES if is_node else "", fault) if text]
        return UserRules(
            [_shown(rule.raw, "apiGroups", "resources", "resourceNames") for rule in rules if rule.resources],
            [_shown(rule.raw, "nonResourceURLs") for rule in rules if rule.urls],
            is_node,
            _aggregate(faults),
        )

    def decide(self, asked: Mapping[str, Any]) -> tuple[bool, str, str]:
        """For CEL: the attributes of a request, with ``user``, answered as (allowed, reason, error)."""
        about = asked["user"]
        user = User(about.get("username") or "", tuple(about.get("groups") or ()), about.get("uid") or "")
        attributes = Attributes(
            asked["verb"], asked.get("group", ""), asked.get("resource", ""), asked.get("subresource", ""),
            asked.get("namespace", ""), asked.get("name", ""), asked.get("path", ""), asked.get("fieldSelector", ""),
        )  # fmt: skip
        decision = self.authorize(user, attributes)
        return decision.allowed, decision.reason, ""


def refusal(user: User, asked: Attributes, reason: str = "") -> str:
    if asked.path:
        subject = "forbidden"
        text = f"User {quote(user.name)} cannot {asked.verb} path {quote(asked.path)}"
    else:
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        subject = qualified(asked.resource, asked.group) + (f' "{asked.name}"' if asked.name else "") + " is forbidden"
        where = f"in the namespace {quote(asked.namespace)}" if asked.namespace else "at the cluster scope"
        text = (
            f"User {quote(user.name)} cannot {asked.verb} resource {quote(resource)} "
            f"in API group {quote(asked.group)} {where}"
        )
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{subject}: {text}: {reason}" if reason else f"{subject}: {text}"


def _details(asked: Attributes) -> dict[str, str]:
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return {name: value for name, value in details.items() if value}


def _selected_name(text: str) -> str:
    """The object name that a field selector requires; such a list is authorized like that object."""
    try:
        name = fieldselector.parse(text).exact("metadata.name") or ""
    except ApiError:
        return ""
    return name if name and not is_path_segment_name(name) else ""


def _aggregate(texts: tuple[str, ...] | list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _shown(rule: Obj, *names: str) -> Obj:
    return {"verbs": rule["verbs"], **{name: rule[name] for name in names if rule.get(name)}}


__all__ = ["MASTERS", "Attributes", "Authorizer", "Decision", "UserRules", "refusal"]
