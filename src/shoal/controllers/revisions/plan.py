"""Revisions of a workload's template: their content, the current one, and surplus ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from shoal.controllers.pods.template import hash_of
from shoal.kube.objects import Obj

REVISION_LABEL: Final = "controller-revision-hash"  # on pods, and on the revisions of DaemonSets
HASH_LABEL: Final = "controller.kubernetes.io/hash"  # on the revisions of StatefulSets

_PREFIX_LIMIT: Final = 223


@dataclass(frozen=True, slots=True)
class UseRevision:
    """This revision has the workload's template and is the newest."""

    revision: Obj


@dataclass(frozen=True, slots=True)
class RenumberRevision:
    """The template was used before: give its revision the highest number."""

    revision: Obj


@dataclass(frozen=True, slots=True)
class CreateRevision:
    """The template is new."""

    revision: Obj


Choice = UseRevision | RenumberRevision | CreateRevision


def data_of(owner: Obj) -> Obj:
    """The data of a revision: a strategic merge patch that restores the template."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def template_of(revision: Obj) -> Obj:
    """The template in a revision."""
    kept = revision["data"]["spec"]["template"]
    return {key: value for key, value in kept.items() if key != "$patch"}


def number_of(revision: Obj) -> int:
    return revision.get("revision") or 0


def name_of(revision: Obj) -> str:
    found: str = revision["metadata"]["name"]
    return found


def new_revision(owner: Obj, reference: Obj, number: int, collisions: int, hash_label: str) -> Obj:
    data = data_of(owner)
    mark = hash_of(data, collisions)
    about, meta = owner["metadata"], owner["spec"]["template"].get("metadata") or {}
    made: Obj = {
        "name": f"{about['name'][:_PREFIX_LIMIT]}-{mark}",
        "namespace": about["namespace"],
        "labels": {**(meta.get("labels") or {}), hash_label: mark},
        "ownerReferences": [reference],
    }
    if about.get("annotations"):
        made["annotations"] = about["annotations"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": made,
        # clients compare its bytes with their own serialization of the template, with sorted keys
        "data": orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)),
        "revision": number,
    }


def ordered(revisions: Iterable[Obj]) -> list[Obj]:
    """Oldest first."""

    def age(revision: Obj) -> tuple[int, str, str]:
        return number_of(revision), revision["metadata"].get("creationTimestamp") or "", name_of(revision)

    return sorted(revisions, key=age)


def choose(owner: Obj, revisions: Sequence[Obj], reference: Obj, collisions: int, hash_label: str) -> Choice:
    """The step for the workload's template, given its revisions, oldest first."""
    wanted = data_of(owner)
    equal = [each for each in revisions if each.get("data") == wanted]
    following = number_of(revisions[-1]) + 1 if revisions else 1
    if not equal:
        return CreateRevision(new_revision(owner, reference, following, collisions, hash_label))
    if revisions[-1].get("data") == wanted:
        return UseRevision(revisions[-1])
    return RenumberRevision({**equal[-1], "revision": following})


def surplus(revisions: Sequence[Obj], live: Collection[str], limit: int | None) -> list[Obj]:
    """The oldest revisions beyond the limit; those named in ``live`` are in use and do not count."""
    history = [each for each in revisions if name_of(each) not in live]
    return history[: max(0, len(history) - limit)] if limit is not None and limit >= 0 else []
