"""The interface of admission plugins.

A *mutator* changes ``Admission.object`` in place before the kind prepares and validates it; a *validator* looks at the
object as it will be stored and raises. Built-in plugins are plain functions of the object and of the server's memory:
they run for every write of their kinds, so they must be cheap and idempotent (they run again when a webhook has
changed the object). Dynamic plugins may wait, and declare which writes they handle.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from shoal.apiserver.context import Core
from shoal.apiserver.effects import Extra
from shoal.apiserver.registry import Served
from shoal.apiserver.user import User
from shoal.errors import Forbidden
from shoal.kube.objects import Obj

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


@dataclass(slots=True)
class Admission:
    """One write on its way in. ``object`` and ``old`` are in the version of the request (``served``); ``object`` is
    None for deletions, ``old`` for creations. ``old`` is never changed. For subresources with an object of their own
    (Scale, Binding, Eviction, TokenRequest) ``object`` is that one, and ``kind`` is its kind."""

    operation: str
    served: Served
    subresource: str
    namespace: str
    name: str  # "" when the server generates it
    user: User
    object: Obj | None
    old: Obj | None
    options: Mapping[str, Any]  # CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, with kind and apiVersion
    dry_run: bool
    warnings: list[str]
    annotations: dict[str, str] = field(default_factory=dict)  # for the audit log
    kind: tuple[str, str, str] = ("", "", "")  # group, version, kind of ``object``; empty: that of ``served``
    notes: dict[Hashable, Any] = field(default_factory=dict)  # data of plugins between their calls for this write

    @property
    def gvk(self) -> tuple[str, str, str]:
        if self.kind[2]:
            return self.kind
        resource = self.served.resource
        return resource.group, resource.version, resource.kind

    def denied(self, message: str) -> Forbidden:
        """The Forbidden error of this write, worded as in Kubernetes."""
        resource = self.served.resource
        made_up = ((self.object or {}).get("metadata") or {}).get("name")
        name = self.name or made_up or "Unknown"
        details = {"name": name, "group": resource.group, "kind": resource.plural}
        return Forbidden(
            f'{resource.qualified} "{name}" is forbidden: {message}',
            details={name: value for name, value in details.items() if value},
        )


Where = tuple[str, str, str]  # store key of the resource, operation, subresource


class Mutator(Protocol):
    """A built-in plugin that changes objects."""

    def handles(self, where: Where) -> bool:
        """Called once per kind of write; the result is cached."""

    def mutate(self, admission: Admission) -> None: ...


class Validator(Protocol):
    """A built-in plugin that rejects objects."""

    def handles(self, where: Where) -> bool: ...

    def validate(self, admission: Admission) -> None: ...


class Charger(Protocol):
    """A plugin that adds conditions to the transaction of the write: quotas. Called under a turn per namespace, so
    that writes of one server do not conflict; ``RequirementFailed`` on its conditions means: try again."""

    def handles(self, where: Where) -> bool: ...

    def concerns(self, admission: Admission) -> bool:
        """Whether a quota applies; false in nearly every namespace."""

    def charge(self, admission: Admission) -> Extra:
        """The conditions and writes to commit with the object; raises when the quota is exceeded."""


class Dynamic(Protocol):
    """Plugins that users configure. They clear the chain's plans when the results of ``wants_*`` may change."""

    def wants_mutate(self, served: Served, operation: str, subresource: str) -> bool:
        """Whether any configuration could match such a write; namespace and selectors are checked later."""

    def wants_validate(self, served: Served, operation: str, subresource: str) -> bool: ...

    async def mutate(self, admission: Admission, *, again: bool) -> bool:
        """Change ``admission.object`` (in place, or put another one there); whether it did. ``again``: a later plugin
        has changed the object, so those that asked to be called once more are called."""

    async def validate(self, admission: Admission) -> None: ...


__all__ = [
    "CONNECT", "CREATE", "DELETE", "UPDATE", "Admission", "Charger", "Core", "Dynamic", "Mutator", "Validator", "Where",
]  # fmt: skip
