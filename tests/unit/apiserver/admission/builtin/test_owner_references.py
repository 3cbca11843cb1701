"""OwnerReferencesPermissionEnforcement: it asks about deleting the object and about holding up its owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from shoal.apiserver.admission.builtin.owner_references import OwnerReferencesPermissionEnforcement
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission
from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.context import Core, ServerConfig
from shoal.apiserver.registry import Registry
from shoal.apiserver.user import User
from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.errors import Forbidden
from shoal.store import open_store


@dataclass
class Answers:
    """Allows what it is told to and remembers what it was asked."""

    allowed_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.asked: list[str] = []

    def authorize(self, user: User, asked: Attributes, /) -> Answer:
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        text = f"{asked.verb} {resource} {asked.namespace}/{asked.name}"
        self.asked.append(text)
        return Answer(text in self.allowed_to)


@dataclass
class Answer:
    allowed: bool
    reason: str = "because"


def owner(uid: str = "u", *, blocks: bool = False, kind: str = "ReplicaSet", api: str = "apps/v1") -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "name": "o", "uid": uid, "blockOwnerDeletion": blocks}


def admit(answers: Answers, new: list[dict[str, Any]], old: list[dict[str, Any]] | None = None) -> str:
    """The refusal; empty if the write is allowed. ``old`` None: a creation."""
    registry = Registry()
    core = Core(open_store("memory://", attrs_of=registry.attrs_of), registry, FakeClock(), Ids(), ServerConfig())
    served = registry.stored("pods")
    assert served is not None

    def pod(owners: list[dict[str, Any]]) -> dict[str, Any]:
        return {"metadata": {"name": "p", "ownerReferences": owners}}

    admission = Admission(
        CREATE if old is None else UPDATE, served, "", "ns", "p", User("bob"), pod(new),
        None if old is None else pod(old), {}, False, [],
    )  # fmt: skip
    plugin = OwnerReferencesPermissionEnforcement(core, answers)
    assert plugin.handles(("pods", admission.operation, ""))
    try:
        plugin.validate(admission)
    except Forbidden as refused:
        return refused.message
    return ""


ANY = "update */finalizers /*"


@pytest.mark.parametrize(
    ("allowed", "new", "old", "fault"),
    [
        ((), [], None, ""),
        ((), [owner()], None, ""),
        ((), [owner()], [owner()], ""),
        ((), [owner()], [], "cannot set an ownerRef on a resource you can't delete: because, <nil>"),
        (("delete pods ns/p",), [owner()], [], ""),
        (
            (), [owner(blocks=True)], None,
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
            "because, <nil>",
        ),
        (("update replicasets/finalizers ns/o",), [owner(blocks=True)], None, ""),
        ((ANY,), [owner(blocks=True)], None, ""),
        (("delete pods ns/p",), [owner(blocks=True), owner("v")], [owner(blocks=True)], ""),
        (
            (), [owner(blocks=True, kind="Thing", api="x/v1")], None,
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion x/v1 Kind "
            'Thing: no matches for kind "Thing" in version "x/v1"',
        ),
        (("update nodes/finalizers /o",), [owner(blocks=True, kind="Node", api="v1")], None, ""),
    ],
)  # fmt: skip
def test_setting_an_owner_needs_its_permissions(
    allowed: tuple[str, ...], new: list[dict[str, Any]], old: list[dict[str, Any]] | None, fault: str
) -> None:
    assert admit(Answers(allowed), new, old) == (f'pods "p" is forbidden: {fault}' if fault else "")
