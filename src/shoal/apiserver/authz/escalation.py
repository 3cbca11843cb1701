"""Privilege escalation check: a write of a role or binding may only grant permissions that the user has."""

from __future__ import annotations

from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.authz.index import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from shoal.apiserver.authz.rules import described, quote, quoted, uncovered
from shoal.apiserver.context import Call, Guard
from shoal.apiserver.user import User
from shoal.errors import Forbidden, NotFound, qualified
from shoal.kube.kinds.rbac import GROUP
from shoal.kube.objects import Obj

_EVERYTHING: list[Obj] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
# Fields that the garbage collector and the server change; the rest of the object defines permissions.
_BOOKKEEPING = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink")


class EscalationCheck:
    """Rejects roles and bindings that grant permissions their writer does not have."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def guards(self) -> dict[str, Guard]:
        """The check by store key, to be called before such an object is written."""
        return {key: self._guard(key) for key in (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)}

    def _guard(self, key: str) -> Guard:
        def guard(call: Call, new: Obj, old: Obj | None) -> None:
            self.check_escalation(call.user, key, new, old, call.namespace or "", call.name)

        return guard

    def check_escalation(
        self, user: User, key: str, new: Obj, old: Obj | None, namespace: str = "", asked_name: str = ""
    ) -> None:
        """Raise Forbidden when writing ``new`` over ``old`` would give more than ``user`` has. ``asked_name`` is the
        name in the request's path, which a create does not have."""
        if self.authorizer.allows_all(user) or (old is not None and _only_bookkeeping(new, old)):
            return
        if key in (ROLES, CLUSTER_ROLES):
            self._check_role(user, key, new, old, namespace, asked_name)
        else:
            self._check_binding(user, key, new, namespace)

    def _check_role(self, user: User, key: str, new: Obj, old: Obj | None, namespace: str, name: str) -> None:
        resource = key.partition(".")[0]
        if self.authorizer.allows(user, Attributes("escalate", GROUP, resource, "", namespace, name)):
            return
        self._check_rules(user, resource, new, new.get("rules") or [], namespace)
        if _aggregates(new) or (old is not None and _aggregates(old)):
            owned, _ = self.authorizer.rules_of(user, namespace)
            if uncovered(owned, _EVERYTHING):
                raise _forbidden(resource, new, "must have cluster-admin privileges to use the aggregationRule")

    def _check_binding(self, user: User, key: str, new: Obj, namespace: str) -> None:
        reference = new.get("roleRef") or {}
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(kind)
        if plural is None or (plural == "roles" and not namespace):
            return  # not a valid role reference: validation reports it
        if self.authorizer.allows(user, Attributes("bind", GROUP, plural, "", namespace, name)):
            return
        rules = self.authorizer.index.role_rules(kind, name, namespace)
        if rules is None:
            raise NotFound.of(plural, GROUP, name)
        self._check_rules(user, key.partition(".")[0], new, [rule.raw for rule in rules], namespace)

    def _check_rules(self, user: User, resource: str, new: Obj, rules: list[Obj], namespace: str) -> None:
        owned, fault = self.authorizer.rules_of(user, namespace)
        missing = uncovered(owned, rules)
        if not missing:
            return
        text = (
            f"user {quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions "
            "not currently held:\n" + "\n".join(described(missing))
        )
        raise _forbidden(resource, new, f"{text}; resolution errors: [{fault}]" if fault else text)


def _aggregates(role: Obj) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_bookkeeping(new: Obj, old: Obj) -> bool:
    return _granted(new) == _granted(old)


def _granted(obj: Obj) -> Obj:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _BOOKKEEPING}
    return {**obj, "metadata": metadata}


def _forbidden(resource: str, obj: Obj, message: str) -> Forbidden:
    name = obj["metadata"].get("name") or ""
    subject = qualified(resource, GROUP) + (f' "{name}"' if name else "")
    details = {"name": name, "group": GROUP, "kind": resource}
    return Forbidden(
        f"{subject} is forbidden: {message}", details={key: value for key, value in details.items() if value}
    )
