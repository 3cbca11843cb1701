"""Additional writes in the transaction of an object: allocated addresses, termination marks.

An effect may change the object (fill in a cluster IP) and adds operations and requirements. If one of its
requirements fails, another write took the resource first: the write is retried from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.kube.objects import Obj
from shoal.store import Key, Op, Put, Require


@dataclass(frozen=True, slots=True)
class Extra:
    ops: Sequence[Op] = ()
    requires: Sequence[Require] = ()


NOTHING = Extra()


class Effects(Protocol):
    """Hooks of one resource. They have no side effects besides their result, so that a dry run can call them too."""

    before_validation: bool  # on_create fills in fields that validation wants to see

    def on_create(self, obj: Obj) -> Extra: ...

    def on_update(self, new: Obj, old: Obj) -> Extra: ...

    def on_delete(self, old: Obj) -> Extra: ...


class NoEffects:
    """For kinds without effects."""

    before_validation = False

    def on_create(self, obj: Obj) -> Extra:
        return NOTHING

    def on_update(self, new: Obj, old: Obj) -> Extra:
        return NOTHING

    def on_delete(self, old: Obj) -> Extra:
        return NOTHING


NO_EFFECTS: Effects = NoEffects()

TERMINATING = "namespaces.terminating"  # a key per namespace that is being deleted: nothing may be created there


def terminating_mark(namespace: str) -> Key:
    return Key(TERMINATING, "", namespace)


CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_ENDING_DEFINITIONS = "customresourcedefinitions.terminating"


def ending_mark(definition: str) -> Key:
    """As ``terminating_mark``, for the objects of a definition that is being deleted."""
    return Key(_ENDING_DEFINITIONS, "", definition)


def mark(key: Key) -> Put:
    """A value for keys that only need to exist."""
    return Put(key, b'{"metadata":{"resourceVersion":""}}', 32)
