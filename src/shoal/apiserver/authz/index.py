"""An index of roles and bindings by subject, which follows the store, and a cache of decisions.

Decisions are cached with the permissions of a user in a namespace until any role or binding changes. An object name is
part of the cache key only where a rule mentions it, so that requests for a thousand objects need one decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from shoal.apiserver.authz.rules import Rule, compiled
from shoal.apiserver.user import User
from shoal.kube.kinds.rbac import GROUP
from shoal.kube.objects import Obj
from shoal.store import Event, EventType, Key, Store

ROLES = f"roles.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_BINDINGS = f"clusterrolebindings.{GROUP}"
_UNNAMED = "\ud800"  # stands for every name that no rule mentions; no JSON text can be this
_LIMIT = 50_000  # cached permissions and decisions; beyond this all are dropped
_LONGEST = 4096  # characters of a cached key: access reviews contain arbitrary names and groups

Decided = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a role to subjects. ``subjects`` are (kind, name as users have it, how messages name it)."""

    namespace: str
    name: str
    role_kind: str
    role: str
    subjects: tuple[tuple[str, str, str], ...]

    def describe(self, subject: str) -> str:
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        name = f"{self.name}/{self.namespace}" if self.namespace else self.name
        return f'{kind} "{name}" of {self.role_kind} "{self.role}" to {subject}'


@dataclass(frozen=True, slots=True)
class Grant:
    """The rules that one binding grants to a user."""

    binding: Binding
    subject: str
    rules: tuple[Rule, ...]


class Permissions:
    """The permissions of a user in a namespace or cluster-wide, and the decisions made with them."""

    __slots__ = ("decided", "faults", "grants", "names")

    def __init__(self, grants: tuple[Grant, ...], faults: tuple[str, ...]) -> None:
        self.grants = grants
        self.faults = faults  # bindings whose role does not exist
        self.names = frozenset(name for grant in grants for rule in grant.rules for name in rule.names)
        self.decided: dict[Decided, bool] = {}

    def grant_for(self, verb: str, group: str, resource: str, subresource: str, name: str) -> Grant | None:
        for grant in self.grants:
            for rule in grant.rules:
                if rule.allows(verb, group, resource, subresource, name):
                    return grant
        return None

    def grant_for_path(self, verb: str, path: str) -> Grant | None:
        for grant in self.grants:
            for rule in grant.rules:
                if rule.allows_path(verb, path):
                    return grant
        return None


class RbacIndex:
    """All roles and bindings. ``start`` loads them and follows the store."""

    def __init__(self, store: Store, *, limit: int = _LIMIT) -> None:
        self._store = store
        self._limit = limit
        self._roles: dict[Key, tuple[Rule, ...]] = {}
        self._bindings: dict[Key, Binding] = {}
        self._by_subject: dict[tuple[str, str, str], dict[str, Binding]] = {}  # (namespace, kind, subject) -> by name
        self._permissions: dict[tuple[str, tuple[str, ...], str], Permissions] = {}
        self._remembered = 0
        self._unsubscribe: list[Callable[[], None]] = []
        self.revision = 0  # counts changes of roles and bindings

    def start(self) -> None:
        for resource in (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS):
            self._unsubscribe.append(self._store.subscribe(resource, self._on_events))
            for entry in self._store.range(resource).entries:
                self.put(entry.key, orjson.loads(entry.value))
        self.forget()

    def stop(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()

    # -- decisions -------------------------------------------------------------------------------------------------

    def permissions(self, user: User, namespace: str) -> Permissions:
        key = (user.name, user.groups, namespace)
        known = self._permissions.get(key)
        if known is None:
            known = self._resolve(user, namespace)
            if _size((user.name, *user.groups, namespace)) <= _LONGEST:
                self._count()
                self._permissions[key] = known
        return known

    def permits(
        self, user: User, verb: str, group: str, resource: str, subresource: str, namespace: str, name: str
    ) -> bool:
        """Whether a rule allows it; nearly always two look-ups."""
        held = self._permissions.get((user.name, user.groups, namespace)) or self.permissions(user, namespace)
        key = (verb, group, resource, subresource, name if not name or name in held.names else _UNNAMED)
        known = held.decided.get(key)
        if known is None:
            known = held.grant_for(verb, group, resource, subresource, key[4]) is not None
            self._remember(held, key, known)
        return known

    def permits_path(self, user: User, verb: str, path: str) -> bool:
        held = self.permissions(user, "")
        known = held.decided.get((verb, path))
        if known is None:
            known = held.grant_for_path(verb, path) is not None
            self._remember(held, (verb, path), known)
        return known

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[Rule, ...] | None:
        """The rules of the role that a binding in ``namespace`` names; None when there is no such role."""
        if kind == "ClusterRole":
            return self._roles.get(Key(CLUSTER_ROLES, "", name))
        return self._roles.get(Key(ROLES, namespace, name))

    def forget(self) -> None:
        """Drop all cached permissions and decisions after a change."""
        self._permissions.clear()
        self._remembered = 0
        self.revision += 1

    def _remember(self, held: Permissions, key: Decided, decision: bool) -> None:
        if _size(key) <= _LONGEST:
            self._count()
            held.decided[key] = decision

    def _count(self) -> None:
        """Limit the size of the caches, whose keys clients choose."""
        self._remembered += 1
        if self._remembered > self._limit:
            for held in self._permissions.values():
                held.decided.clear()
            self._permissions.clear()
            self._remembered = 0

    def _resolve(self, user: User, namespace: str) -> Permissions:
        grants, faults = [], []
        for binding, subject in self._bindings_of(user, namespace):
            rules = self.role_rules(binding.role_kind, binding.role, binding.namespace)
            if rules is None:
                faults.append(f'{binding.role_kind.lower()}.{GROUP} "{binding.role}" not found')
            else:
                grants.append(Grant(binding, subject, rules))
        return Permissions(tuple(grants), tuple(dict.fromkeys(faults)))

    def _bindings_of(self, user: User, namespace: str) -> list[tuple[Binding, str]]:
        """The bindings that apply, cluster-wide ones first, by name; each with the first subject that the user is."""
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        found: list[tuple[Binding, str]] = []
        for place in ("", namespace) if namespace else ("",):
            bound: dict[str, Binding] = {}
            for kind, name in subjects:
                bound |= self._by_subject.get((place, kind, name), {})
            found += [(bound[name], self._subject_of(bound[name], subjects)) for name in sorted(bound)]
        return found

    @staticmethod
    def _subject_of(binding: Binding, subjects: list[tuple[str, str]]) -> str:
        return next(shown for kind, name, shown in binding.subjects if (kind, name) in subjects)

    # -- following the store ---------------------------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type is EventType.DELETED:
                self.remove(event.entry.key)
            else:
                self.put(event.entry.key, orjson.loads(event.entry.value))
        self.forget()

    def put(self, key: Key, obj: Obj) -> None:
        """Add or replace a role or binding; ``forget`` makes it count."""
        self.remove(key)
        if key.resource in (ROLES, CLUSTER_ROLES):
            self._roles[key] = compiled(obj.get("rules"))
            return
        binding = self._bindings[key] = _binding(key, obj)
        for kind, subject, _ in binding.subjects:
            self._by_subject.setdefault((key.namespace, kind, subject), {})[key.name] = binding

    def remove(self, key: Key) -> None:
        self._roles.pop(key, None)
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        for kind, subject, _ in binding.subjects:
            place = (key.namespace, kind, subject)
            bound = self._by_subject.get(place, {})
            bound.pop(key.name, None)
            if not bound:
                self._by_subject.pop(place, None)


def _size(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def _binding(key: Key, obj: Obj) -> Binding:
    reference = obj.get("roleRef") or {}
    subjects = [_subject(each, key.namespace) for each in obj.get("subjects") or ()]
    return Binding(
        key.namespace, key.name, reference.get("kind") or "", reference.get("name") or "",
        tuple(subject for subject in subjects if subject is not None),
    )  # fmt: skip


def _subject(subject: Obj, namespace: str) -> tuple[str, str, str] | None:
    kind, name, group = subject.get("kind") or "", subject.get("name") or "", subject.get("apiGroup") or ""
    if kind == "ServiceAccount":
        place = subject.get("namespace") or namespace
        if not place or group:
            return None
        return "User", f"system:serviceaccount:{place}:{name}", f'{kind} "{name}/{place}"'
    if kind not in ("User", "Group") or group not in ("", GROUP):
        return None
    return kind, name, f'{kind} "{name}"'
